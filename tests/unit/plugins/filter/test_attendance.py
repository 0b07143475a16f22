"""Which nodes can take part in a run, from Ansible's variables."""

from __future__ import annotations

from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import outside_notes
from ansible_collections.argus.verl.plugins.plugin_utils.attendance import machine_attendance
from ansible_collections.argus.verl.plugins.plugin_utils.filters.attendance import (
    absence,
    shortage_findings,
    unreached,
)

NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": NODES[:1], "workers": NODES[1:]}
MACHINES = ["ctl", "gpu-0", "gpu-1"]
SILENT = {"__preflight": {"unreachable": True, "msg": "no route"}}
ERROR = {"where": "gpu-1", "what": "7 GPUs", "todo": "x", "severity": "error", "key": ""}


def variables(**changed: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Each node represents its machine."""
    probed = {"__preflight": {"machine": {}, "findings": []}}
    found: dict[str, dict[str, Any]] = {
        node: {"ray_node_machine": machine, **probed, "__ray_node_plan": {"host": node}}
        for node, machine in zip(NODES, MACHINES, strict=True)
    }
    for name, more in changed.items():
        found[name.replace("_", "-")] |= more
    return found


def test_node_is_absent_for_what_is_wrong_with_its_machine() -> None:
    assert absence("worker-1", variables()) == ""
    assert absence("worker-1", variables(worker_1=SILENT)) == "its machine gpu-1: does not answer: no route"
    assert absence("worker-0", variables(worker_1=SILENT)) == ""
    wrong = variables(worker_1={"__preflight": {"findings": [ERROR]}})
    assert absence("worker-1", wrong) == "its machine gpu-1: 7 GPUs"
    assert absence("worker-1", wrong, checked=False) == ""
    later = variables(worker_1={"__ray_node_prepared": {"failed": True, "msg": "no space"}})
    assert absence("worker-1", later) == "its machine gpu-1: no space"
    pulled = {"results": [{"failed": True, "rc": 1, "stderr": "no such host", "msg": "non-zero return code"}]}
    without_image = {"__ray_image_failed": pulled, "__ray_node_plan": {"host": "worker-1", "image": "verl:1"}}
    assert absence("worker-1", variables(worker_1=without_image)) == "its machine gpu-1: the image verl:1: no such host"
    assert absence("worker-0", variables(worker_1=without_image)) == ""
    assert absence("worker-1", variables(worker_1={"__ray_node_plan": {"absent": "no GPU"}})) == "no GPU"


def severities(hostvars: dict[str, Any], least: Any, hosts: list[str] = NODES) -> list[str]:
    present = machine_attendance(hosts, hostvars, GROUPS, least)
    own = [Finding(**finding) for name in hosts for finding in hostvars[name]["__preflight"].get("findings", [])]
    return [finding.severity for finding in present.tolerated([*present.findings, *own])]


def test_one_policy_for_machines_that_do_not_answer_and_those_with_errors() -> None:
    for bad in (SILENT, {"__preflight": {"machine": {}, "findings": [ERROR]}}):
        hostvars = variables(worker_1=bad)
        assert severities(hostvars, None) == ["error"]
        assert severities(hostvars, "1") == ["warning"]
        assert severities(hostvars, 2) == ["error"]
        # The machine of the head is always needed.
        assert severities(variables(ray_head=bad), 0) == ["error"]
        # With --limit, only those of the run count.
        assert severities(hostvars, None, NODES[:2]) == []
        found = shortage_findings(NODES, hostvars, GROUPS, None, "repair it")
        assert [finding["where"] for finding in found] == ["worker-1"]
        assert shortage_findings(NODES, hostvars, GROUPS, "1", "repair it") == []
        assert shortage_findings(NODES[:2], hostvars, GROUPS, None, "repair it") == []


def test_clocks_are_compared_with_that_of_the_head() -> None:
    def at(time: float) -> dict[str, Any]:
        return {"__preflight": {"machine": {}, "findings": [], "time": time, "clock": {"sent": 0.0, "received": 1.0}}}

    hostvars = variables(ray_head=at(100), worker_0=at(100.5), worker_1=at(160))
    (found,) = machine_attendance(NODES, hostvars, GROUPS, None).findings
    assert (found.where, found.severity, found.key) == ("gpu-1", "error", "machine.clock")


def test_machines_from_which_a_cluster_is_not_removed() -> None:
    assert unreached(NODES, variables()) == []
    (found,) = unreached(NODES, variables(worker_0=SILENT))
    assert (found["where"], found["severity"]) == ("gpu-0", "error")


def test_workers_outside_the_inventory_are_named_with_a_job() -> None:
    assert outside_notes(["worker-0", "worker-1"], NODES) == []
    assert outside_notes(["worker-0", "x"], NODES) == [
        "x is not in the inventory, and counted as room: drain.yml -e node=x"
    ]
    assert outside_notes(["x", "y"], NODES)[0].startswith("x, y are not in the inventory")
