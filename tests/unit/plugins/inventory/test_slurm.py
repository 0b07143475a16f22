"""The inventory of a job, with programs that print what Slurm has printed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleParserError
from ansible.inventory.data import InventoryData
from ansible.parsing.dataloader import DataLoader
from ansible_collections.argus.verl.plugins.inventory import slurm

RECORDED = Path(__file__).parents[1] / "plugin_utils" / "slurm" / "recorded"


class Site:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.program("squeue", "")
        self.warnings: list[str] = []

    def program(self, name: str, text: str, code: int = 0, log: str = "asked") -> None:
        body = f"#!/bin/sh\necho \"{name} $*\" >> {self.root}/{log}\ncat <<'E'\n{text}\nE\nexit {code}\n"
        (self.bin / name).write_text(body)
        (self.bin / name).chmod(0o755)

    def scontrol(self, job: str) -> None:
        self.program("scontrol.job", (RECORDED / f"{job}.txt").read_text())
        self.program("scontrol.node", (RECORDED / "nodes.txt").read_text())
        (self.bin / "scontrol").write_text('#!/bin/sh\nexec scontrol.$2 "$@"\n')
        (self.bin / "scontrol").chmod(0o755)

    def requests(self) -> str:
        return (self.root / "asked").read_text()

    def parse(self, **options: Any) -> InventoryData:
        lines = ["plugin: argus.verl.slurm", *(f"{name}: {value}" for name, value in options.items())]
        file = self.root / "slurm.yml"
        file.write_text("\n".join(lines))
        plugin = slurm.InventoryModule()
        plugin._read_config_data = lambda path: None
        settings = {"job_id": options.get("job_id"), "job_name": options.get("job_name", "argus-verl")}
        plugin.get_option = settings.__getitem__
        inventory = InventoryData()
        assert plugin.verify_file(str(file))
        plugin.parse(inventory, DataLoader(), str(file))
        return inventory


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    one = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{one.bin}:{os.environ['PATH']}")
    monkeypatch.setattr(slurm.display, "warning", one.warnings.append)
    return one


def test_the_hosts_of_a_job_by_its_id(site: Site) -> None:
    site.scontrol("job")
    inventory = site.parse(job_id=2)
    inventory.reconcile_inventory()
    groups = {name: [host.name for host in group.get_hosts()] for name, group in inventory.groups.items()}
    assert groups["ray"] == groups["all"] == ["ray-head", "gpu-0", "gpu-1"]
    assert (groups["head"], groups["workers"], groups["ungrouped"]) == (["ray-head"], ["gpu-0", "gpu-1"], [])
    ray = inventory.groups["ray"].get_vars()
    variables = [ray[name] for name in ("slurm_job_id", "ansible_connection", "ray_node_runtime")]
    assert variables == [2, "argus.verl.srun", "process"]
    assert ray["cluster_ends_at"] == 1795358681
    assert inventory.hosts["gpu-1"].get_vars()["ray_node_gpus"] == 2
    assert "squeue" not in site.requests()
    (warning,) = site.warnings
    assert "bad disk" in warning and "node=gpu-1" in warning


def test_the_job_with_the_name(site: Site) -> None:
    site.scontrol("het_job")
    site.program("squeue", "3+0 RUNNING\n3+1 RUNNING")
    inventory = site.parse(job_name="mine")
    assert inventory.groups["all"].get_vars()["slurm_job_name"] == "mine"
    assert inventory.hosts["ray-head"].get_vars()["slurm_node"] == "cpu-0"
    assert "--name=mine" in site.requests()
    assert "show job --details --oneliner 3" in site.requests()
    assert "show node --oneliner cpu-0,gpu-0,gpu-1" in site.requests()


def test_without_a_job_there_are_no_hosts(site: Site) -> None:
    inventory = site.parse()
    assert not inventory.hosts
    assert {"ray", "head", "workers"} < inventory.groups.keys()
    site.scontrol("pending")
    assert not site.parse(job_id=3).hosts
    (site.bin / "scontrol").write_text("#!/bin/sh\necho 'error: Invalid job id specified' >&2\nexit 1\n")
    assert not site.parse(job_id=9).hosts
    none, waits, unknown = site.warnings
    assert "argus-verl" in none and "PENDING (Resources)" in waits and "not known" in unknown


def test_a_site_that_does_not_answer_is_an_error(site: Site) -> None:
    site.program("squeue", "", code=1)
    with pytest.raises(AnsibleParserError):
        site.parse()
    (site.bin / "squeue").unlink()
    with pytest.raises(AnsibleParserError, match="no command squeue"):
        site.parse()
