"""The host of a node without a container."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import (
    inspect_host,
    is_reachable,
    reachable_address,
)
from samples import PROCESS_HOST, machine


def test_host_without_a_node(tmp_path: Path) -> None:
    ray = tmp_path / "bin" / "ray"
    ray.parent.mkdir()
    ray.touch(0o755)
    (tmp_path / "nodes" / "other").mkdir(parents=True)
    inspected = inspect_host(str(tmp_path / "nodes" / "worker-0"), str(tmp_path / "bin" / "python3"))
    assert (inspected.node, inspected.neighbours, inspected.ray) == (NodeProcess(), ["other"], str(ray))
    assert inspected.home == os.environ["HOME"]
    host = replace(PROCESS_HOST, others=["raylet 7"], node=NodeProcess("running", 5, "2026-01-12"))
    probed = machine(process=host, reserved_ports=[])
    assert Machine.from_json(json.loads(json.dumps(probed.to_json()))) == probed
    for state in ("running", "orphaned", "stopped", ""):
        assert machine(process=replace(host, node=NodeProcess(state))).runs("worker-0") is (state == "running")


def test_the_address_of_the_inventory_is_used_if_the_host_has_it() -> None:
    addresses = ("10.0.0.1", "fd00::1", "127.0.1.1", "::1", "::", "gpu-0")
    assert [is_reachable(address) for address in addresses] == [True, True, False, False, False, False]
    default = reachable_address("", "192.0.2.7")
    if not default:
        pytest.skip("this machine has no route")
    assert reachable_address(default, "") == default
    # The address is translated on the way, or is the other end of a tunnel.
    assert reachable_address("192.0.2.1", "192.0.2.7") == default
    assert reachable_address("127.0.0.1", "") == reachable_address("", "")
    # The head is reached over the loopback: it is this host.
    assert reachable_address("", "127.0.0.1") == reachable_address("", "")
