"""Which nodes can take part in a run, from Ansible's variables."""

from __future__ import annotations

from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import machine_presence
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import tolerated

NODES = ["ray-head", "worker-0", "worker-1"]
GROUPS = {"ray": NODES, "head": NODES[:1], "workers": NODES[1:]}
MACHINES = ["ctl", "gpu-0", "gpu-1"]
SILENT = {"__preflight": {"unreachable": True, "msg": "no route"}}
ERROR = {"where": "gpu-1", "problem": "7 GPUs", "remedy": "x", "severity": "error", "key": ""}


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
