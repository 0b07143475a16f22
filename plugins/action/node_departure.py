# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.node_departure`: how a node leaves its cluster. Documented in plugins/modules/node_departure.py."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import departure, departure_findings
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import HEADS, NODES
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import PlannedMachine
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NODE, SECONDS, given_node, task_result
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "worker": {"type": "str", "default": ""},
    "plan": {"type": "dict", "required": True},
    "machine": {"type": "str", "default": ""},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the machine of the head."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        head, groups = given_node(arguments["node"], task_vars), (task_vars or {})["groups"]
        plan, heads, expected = arguments["plan"], groups[HEADS], groups[NODES]
        machines = {host: PlannedMachine.from_json(machine) for host, machine in plan["machines"].items()}
        host_of = {node: host for host, machine in machines.items() for node in machine.nodes}
        state = task_result(self, head, "nodes", {}, SECONDS, needs_node=True)
        nodes = state.get("nodes", ())
        leaving = departure(arguments["worker"], nodes, machines, arguments["machine"], expected, host_of[heads[0]])
        silent = {machine.name: machine.problem for machine in machines.values() if not machine.answers}
        known = dict.fromkeys([*expected, *(node["node_name"] for node in nodes)])
        its_machine = machines[host_of[leaving.node]].name if leaving.in_inventory else ""
        findings = departure_findings(leaving, heads, list(known), silent, its_machine)
        if problem := state.get("msg") if state.get("failed") else state["problem"]:
            findings.append(Finding(heads[0], problem, "repair the head: cluster_up.yml"))
        name = machines[leaving.machine].name if leaving.machine in machines else leaving.machine
        return {**show("Drain", findings=findings), **leaving.to_json(), "machine_name": name}
