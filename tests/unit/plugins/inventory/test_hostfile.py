from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[4]


def inventory(directory: Path, hostfile: str, runtime: str = "", path: str = "hostfile") -> tuple[dict[str, Any], str]:
    """What Ansible makes of a hostfile, and its warnings."""
    (directory / "hostfile").write_text(hostfile)
    source = directory / "hosts.yml"
    source.write_text(f"plugin: argus.verl.hostfile\nhostfile: {path}\n{runtime}\n")
    environment = {**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "COLUMNS": "250", "NODES": str(directory)}
    command = [str(Path(sys.executable).with_name("ansible-inventory")), "-i", str(source), "--list"]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=True)
    return json.loads(done.stdout), done.stderr


def plain(variables: dict[str, Any]) -> dict[str, Any]:
    """Variables without Ansible's marks of their origin."""
    values = {
        name: value["__ansible_unsafe"] if isinstance(value, dict) and value else value
        for name, value in variables.items()
    }
    return {name: value for name, value in values.items() if name != "ansible_local"}


def test_the_inventory_of_a_hostfile(tmp_path: Path) -> None:
    found, errors = inventory(tmp_path, "10.0.0.1 slots=8\n10.0.0.2:8\n")
    assert errors == ""
    assert (found["head"]["hosts"], found["workers"]["hosts"]) == (["ray-head"], ["ray-worker-0", "ray-worker-1"])
    assert found["ray"]["children"] == ["head", "workers"]
    hostvars = found["_meta"]["hostvars"]
    assert plain(hostvars["ray-worker-1"]) == {
        "ansible_host": "10.0.0.2",
        "cluster_network": "host",
        "ray_node_machine": "10.0.0.2",
        "ray_node_address": "10.0.0.2",
        "ray_node_gpus": 8,
    }


def test_processes(tmp_path: Path) -> None:
    found, errors = inventory(tmp_path, "gpu-0\ngpu-1\n", "runtime: process", "$NODES/hostfile")
    assert errors == ""
    assert plain(found["_meta"]["hostvars"]["ray-head"]) == {
        "ansible_connection": "argus.verl.ssh",
        "ansible_host": "gpu-0",
        "ray_node_runtime": "process",
    }


def test_all_problems_of_a_hostfile_are_told_at_once(tmp_path: Path) -> None:
    found, errors = inventory(tmp_path, "10.0.0.1:0\n127.0.0.1\n?\n")
    assert "ray" not in found
    said = " ".join(errors.split())
    assert "line 1 slots are '0'" in said and "line 3 '?' is neither" in said
    assert "line 2 127.0.0.1 has no address at which other hosts reach it" in said
    _found, errors = inventory(tmp_path, "", path="none")
    assert f"'{tmp_path}/none'; correct hostfile in {tmp_path}/hosts.yml" in errors
