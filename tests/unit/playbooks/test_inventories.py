"""Inventories of hosts that others bring up, as Ansible reads them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[3]
ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg")}


def read(inventory: Path, **environment: str) -> dict[str, Any]:
    argv = ["ansible-inventory", "--inventory", str(inventory), "--list"]
    environ = {**ENVIRONMENT, **environment}
    done = subprocess.run(argv, env=environ, text=True, capture_output=True, check=True)
    assert "WARNING" not in done.stderr, done.stderr
    return dict(json.loads(done.stdout))


def hosts(found: dict[str, Any], group: str) -> list[str]:
    inside = found.get(group, {})
    return [*inside.get("hosts", []), *(host for child in inside.get("children", []) for host in hosts(found, child))]


def test_tasks_of_two_nodes_and_of_one() -> None:
    found = read(REPO / "inventories" / "inside" / "hosts.py", DSTACK_NODES_IPS="10.0.0.1\n10.0.0.2")
    # The first host has a worker, too: its GPUs train.
    assert (hosts(found, "head"), hosts(found, "workers")) == (["node-head"], ["node-0", "node-1"])
    variables = found["_meta"]["hostvars"]
    reached = {host: (own.get("ansible_host"), own.get("ansible_connection", "ssh")) for host, own in variables.items()}
    local, other = ("10.0.0.1", "local"), ("10.0.0.2", "argus.verl.ssh")
    assert reached == {"node-head": local, "node-0": local, "node-1": other}
    assert {own["ray_node_runtime"] for own in variables.values()} == {"process"}
    found = read(REPO / "inventories" / "inside" / "hosts.py", DSTACK_NODES_IPS="")
    assert (hosts(found, "head"), hosts(found, "workers")) == (["node-head"], ["node-0"])
    assert all("ansible_host" not in own for own in found["_meta"]["hostvars"].values())


def test_groups_of_instances_of_a_cloud(tmp_path: Path) -> None:
    """With a file in the place of the cloud: what its plugin returns of instances with tags."""
    copy = tmp_path / "cloud"
    shutil.copytree(REPO / "inventories" / "cloud", copy)
    (copy / "1_instances.aws_ec2.yml").unlink()
    roles = {"ctl": {"role": "head"}, "gpu-0": {"role": "worker"}, "gpu-1": {"role": "worker"}, "x": {"Name": "x"}}
    addresses = {name: {"ansible_host": f"10.0.0.{last}"} for last, name in enumerate((*roles, "other"))}
    instances = {
        name: {**host, **({"ec2_tags": roles[name]} if name in roles else {})} for name, host in addresses.items()
    }
    (copy / "1_instances.yml").write_text(json.dumps({"all": {"hosts": instances}}))
    found = read(copy)
    assert (hosts(found, "head"), hosts(found, "workers")) == (["ctl"], ["gpu-0", "gpu-1"])
    assert sorted(hosts(found, "ray")) == ["ctl", "gpu-0", "gpu-1"]
    variables = found["_meta"]["hostvars"]
    assert (variables["ctl"]["preflight_gpus"], variables["gpu-1"]["preflight_gpus"]) == (0, 8)
    validate = ["ansible-playbook", "--inventory", str(copy), str(REPO / "playbooks" / "validate.yml")]
    done = subprocess.run(validate, env=ENVIRONMENT, text=True, capture_output=True, check=False)
    assert "Inventory fine: cluster cloud, 1 head, 2 workers" in done.stdout, done.stdout + done.stderr
