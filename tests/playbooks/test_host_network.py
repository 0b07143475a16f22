"""A head and two workers on one machine with its network: one address, and ports of their own."""

from __future__ import annotations

import json
import socket

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.ports import PortPlan
from system import HEAD, NODES, on_node, playbook

BASE = 22000
# Prints the ports on which the processes of its container listen: the network has those of all others, too.
LISTENING = """
import glob, json, os
own = set()
for link in glob.glob("/proc/[0-9]*/fd/*"):
    try:
        own.add(os.readlink(link))
    except OSError:
        pass
ports = set()
for table in ("tcp", "tcp6"):
    for line in open(f"/proc/net/{table}").read().splitlines()[1:]:
        cells = line.split()
        if cells[3] == "0A" and f"socket:[{cells[9]}]" in own:
            ports.add(int(cells[1].rpartition(":")[2], 16))
print(json.dumps(sorted(ports)))
"""


def own_address() -> str:
    """The address of this machine from which it reaches others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])


def listening(node: str) -> set[int]:
    return set(json.loads(on_node(node, "python3", "-c", LISTENING)))


@pytest.mark.usefixtures("no_cluster")
def test_head_and_workers_on_one_machine() -> None:
    network = {"cluster_network": "host", "ray_node_address": own_address(), "cluster_port_base": BASE}
    assert "3 of 3 nodes as expected" in playbook("cluster_up", **network).stdout
    for number, node in enumerate(NODES):
        plan = PortPlan(BASE, number)
        fixed = {ports.first for ports in plan.ranges(node) if ports.first == ports.last}
        # Everything that Ray opens is planned, and nothing of another node's plan.
        dashboard = {8275} if node == HEAD else set()
        assert fixed | dashboard <= listening(node) <= {*range(plan.first, plan.last + 1), *dashboard}

    # The cluster holds all of these ports itself.
    again = playbook("cluster_up", **network).stdout
    assert "changed=0" in again and "changed: [" not in again
    # A second cluster with the same ports is refused, before anything is changed.
    other = playbook("cluster_up", check=False, cluster_name="other", **network)
    assert f"port {BASE} is in use, expected free for GCS of {HEAD}" in " ".join(other.stdout.split())
    assert "changed: [" not in other.stdout

    assert "changed=0" not in playbook("cluster_down", **network).stdout
    assert "changed=0" in playbook("cluster_down", **network).stdout
