"""The collection as a user installs it from its tarball, without the checkout: inventories to begin with, and links."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from docs.test_links import problem

from docs import pages

REPO = Path(__file__).resolve().parents[2]
KINDS = sorted(path.name for path in (REPO / "inventories").iterdir())
# Their hosts come from Slurm and from a cloud.
WITHOUT_HOSTS = ("cloud", "slurm")
BY_HAND = {"ANSIBLE_CONFIG", "ANSIBLE_COLLECTIONS_PATH", "COLUMNS"}
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in BY_HAND}


def run(directory: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=directory, env=ENVIRONMENT, text=True, capture_output=True, check=False)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory after the first steps of docs/install.md."""
    directory = tmp_path_factory.mktemp("project")
    [settings] = re.findall(r"```ini\n(.*?)```", (REPO / "docs" / "install.md").read_text(), re.DOTALL)
    (directory / "ansible.cfg").write_text(settings)
    built = run(REPO, "ansible-galaxy", "collection", "build", "--output-path", str(directory))
    assert built.returncode == 0, built.stderr
    [tarball] = directory.glob("argus-verl-*.tar.gz")
    # The environment of the tests has a link to the checkout, which counts as installed.
    installed = run(directory, "ansible-galaxy", "collection", "install", "--no-deps", "--force", tarball.name)
    assert installed.returncode == 0, installed.stderr
    return directory


def test_no_link_in_the_tarball_is_broken(project: Path) -> None:
    collection = project / "collections" / "ansible_collections" / "argus" / "verl"
    files = list(collection.rglob("*.md"))
    broken = [
        f"{page.relative_to(collection)}: {target}: {why}"
        for page in files
        for _line, target in pages.links(page)
        if (why := problem(page, target))
    ]
    assert len(files) > 40
    assert not broken, "\n".join(broken)


@pytest.fixture(scope="module")
def written(project: Path) -> str:
    """The output of a run of the playbook for each kind."""
    plays = [{"import_playbook": "argus.verl.init", "vars": {"kind": kind, "dest": f"all/{kind}"}} for kind in KINDS]
    (project / "all.yml").write_text(json.dumps(plays))
    done = run(project, "ansible-playbook", "all.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_an_inventory_of_each_kind_stands_alone(project: Path, written: str, kind: str) -> None:
    inventory, template = project / "all" / kind, REPO / "inventories" / kind
    text = {path: path.read_text() for path in inventory.rglob("*") if path.is_file()}
    assert {path.relative_to(inventory) for path in text} == {
        path.relative_to(template) for path in template.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    schemas = [schema for content in text.values() for schema in re.findall(r"\$schema=(\S+)", content)]
    assert all(Path(schema).is_file() and project in Path(schema).parents for schema in schemas), schemas
    commands = [shlex.split(line) for line in re.findall(rf"^ +(ansible-playbook -i all/{kind}/.*)", written, re.M)]
    assert commands[-1][-1] == ("argus.verl.slurm_up" if kind == "slurm" else "argus.verl.cluster_up")
    if kind not in WITHOUT_HOSTS:
        validated = run(project, *commands[0])
        assert "Inventory fine: " in validated.stdout, validated.stdout + validated.stderr
    if kind == "dev":
        show = ["-m", "ansible.builtin.debug", "-a", "msg='{{ cluster_state_dir }} {{ shared_root_source }}'"]
        shown = run(project, "ansible", *commands[0][1:3], "head", *show).stdout
        assert f"{project}/all/.state {project}/all/shared" in shown
        assert (project / "all" / "shared").is_dir()


def test_hosts_come_from_a_hostfile(project: Path) -> None:
    inventory, hostfile = project / "hostfile-platform", project / "hostfile"
    init = ["ansible-playbook", "argus.verl.init", *("-e", f"dest={inventory.name}"), *("-e", "kind=platform")]
    init += ["-e", "hostfile=hostfile"]
    hostfile.write_text("10.0.0.1 slots=0\n10.0.0.2\n?\n")
    refused = run(project, *init)
    assert refused.returncode == 2
    assert "line 1" in refused.stdout and "line 3" in refused.stdout
    assert not inventory.exists()

    hostfile.write_text("10.0.0.1 slots=8\n10.0.0.2:4\n")
    assert run(project, *init).returncode == 0
    hosts = inventory / "hosts.yml"
    shown = json.loads(run(project, "ansible-inventory", "-i", str(hosts), "--list").stdout)
    assert (shown["head"]["hosts"], shown["workers"]["hosts"]) == (["ray-head"], ["ray-worker-0", "ray-worker-1"])
    head, worker = (shown["_meta"]["hostvars"][node] for node in ("ray-head", "ray-worker-1"))
    assert (head["ansible_host"], worker["ansible_host"], worker["ray_node_gpus"]) == ("10.0.0.1", "10.0.0.2", 4)
    validated = run(project, "ansible-playbook", "-i", str(hosts), "argus.verl.validate")
    assert "Inventory fine: " in validated.stdout, validated.stdout + validated.stderr

    settings = inventory / "group_vars" / "all" / "cluster.yml"
    settings.write_text(edited := settings.read_text() + "# Mine.\n")
    before = hosts.read_text()
    hostfile.write_text("10.0.0.3\n")
    refused = run(project, *init)
    assert f"{hosts}: exists" in refused.stdout
    assert hosts.read_text() == before
    hosts.rename(project / "old.yml")
    assert run(project, *init).returncode == 0
    assert "10.0.0.3" in hosts.read_text() and "10.0.0.1" not in hosts.read_text()
    assert settings.read_text() == edited


@pytest.mark.parametrize("variables", [{}, {"kind": "../dev"}, {"kind": "dev", "hostfile": "hostfile"}], ids=str)
def test_what_is_no_kind_and_what_takes_no_hostfile_is_refused(project: Path, variables: dict[str, str]) -> None:
    (project / "hostfile").write_text("10.0.0.1\n")
    refused = run(project, "ansible-playbook", "argus.verl.init", "-e", json.dumps({"dest": "x", **variables}))
    assert refused.returncode == 2 and not (project / "x").exists()
    assert "hostfile" in variables or ", ".join(KINDS) in refused.stdout
