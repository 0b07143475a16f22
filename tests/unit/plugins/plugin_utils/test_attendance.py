"""Which nodes can take part in a run, from Ansible's variables."""

from __future__ import annotations

from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils.plan.departure import outside_notes
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import machine_presence
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import tolerated

NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": NODES[:1], "workers": NODES[1:]}
MACHINES = ["ctl", "gpu-0", "gpu-1"]
SILENT = {"__preflight": {"unreachable": True, "msg": "no route"}}
ERROR = {"where": "gpu-1", "what": "7 GPUs", "todo": "x", "severity": "error", "key": ""}


def variables(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each node represents its machine."""
    probed = {"__preflight": {"machine": {}, "findings": []}}
    found: dict[str, dict[str, Any]] = {
        node: {"ray_node_machine": machine, **probed} for node, machine in zip(NODES, MACHINES, strict=True)
    }
    for name, more in changed.items():
        found[name.replace("_", "-")] |= more
    return found


def severities(hostvars: dict[str, Any], least: int | None, hosts: list[str] = NODES) -> list[str]:
    present, machines, found = machine_presence(hosts, hostvars, GROUPS, least)
    own = [Finding(**finding) for name in hosts for finding in hostvars[name]["__preflight"].get("findings", [])]
    return [finding.severity for finding in tolerated([*found, *own], present, machines)]


def test_one_policy_for_machines_that_do_not_answer_and_those_with_errors() -> None:
    for bad in (SILENT, {"__preflight": {"machine": {}, "findings": [ERROR]}}):
        hostvars = variables(worker_1=bad)
        assert severities(hostvars, None) == ["error"]
        assert severities(hostvars, 1) == ["warning"]
        assert severities(hostvars, 2) == ["error"]
        # The machine of the head is always needed.
        assert severities(variables(ray_head=bad), 0) == ["error"]
        # With --limit, only those of the run count.
        assert severities(hostvars, None, NODES[:2]) == []


def test_clocks_are_compared_with_that_of_the_head() -> None:
    def at(time: float) -> dict[str, Any]:
        return {"__preflight": {"machine": {}, "findings": [], "time": time, "clock": {"sent": 0.0, "received": 1.0}}}

    hostvars = variables(ray_head=at(100), worker_0=at(100.5), worker_1=at(160))
    _present, _machines, (found,) = machine_presence(NODES, hostvars, GROUPS, None)
    assert (found.where, found.severity, found.key) == ("gpu-1", "error", "machine.clock")


def test_workers_outside_the_inventory_are_named_with_a_job() -> None:
    assert outside_notes(["worker-0", "worker-1"], NODES) == []
    assert outside_notes(["worker-0", "x"], NODES) == [
        "x is not in the inventory, and counted as room: drain.yml -e node=x"
    ]
    assert outside_notes(["x", "y"], NODES)[0].startswith("x, y are not in the inventory")
