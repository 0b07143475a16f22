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


def hosts(data: dict[str, Any], group: str) -> list[str]:
    inside = data.get(group, {})
    return [*inside.get("hosts", []), *(host for child in inside.get("children", []) for host in hosts(data, child))]


def test_tasks_of_two_nodes_and_of_one() -> None:
    inventory = read(REPO / "inventories" / "inside" / "hosts.py", DSTACK_NODES_IPS="10.0.0.1\n10.0.0.2")
    # The first host has a worker, too: its GPUs train.
    assert (hosts(inventory, "head"), hosts(inventory, "workers")) == (["node-head"], ["node-0", "node-1"])
    nodes = inventory["_meta"]["hostvars"]
    reached = {host: (node.get("ansible_host"), node.get("ansible_connection", "ssh")) for host, node in nodes.items()}
    local, other = ("10.0.0.1", "local"), ("10.0.0.2", "argus.verl.ssh")
    assert reached == {"node-head": local, "node-0": local, "node-1": other}
    assert {node["ray_node_runtime"] for node in nodes.values()} == {"process"}
    inventory = read(REPO / "inventories" / "inside" / "hosts.py", DSTACK_NODES_IPS="")
    assert (hosts(inventory, "head"), hosts(inventory, "workers")) == (["node-head"], ["node-0"])
    assert all("ansible_host" not in node for node in inventory["_meta"]["hostvars"].values())


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
    inventory = read(copy)
    assert (hosts(inventory, "head"), hosts(inventory, "workers")) == (["ctl"], ["gpu-0", "gpu-1"])
    assert sorted(hosts(inventory, "ray")) == ["ctl", "gpu-0", "gpu-1"]
    variables = inventory["_meta"]["hostvars"]
    assert (variables["ctl"]["preflight_gpus"], variables["gpu-1"]["preflight_gpus"]) == (0, 8)
    validate = ["ansible-playbook", "--inventory", str(copy), str(REPO / "playbooks" / "validate.yml")]
    done = subprocess.run(validate, env=ENVIRONMENT, text=True, capture_output=True, check=False)
    assert "Inventory fine: cluster cloud, 1 head, 2 workers" in done.stdout, done.stdout + done.stderr
