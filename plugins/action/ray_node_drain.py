# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.ray_node_drain`: find the node that is to leave, and run `argus drain` on the head until no job uses it.

Documented in plugins/modules/ray_node_drain.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, wrap_sentence
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import PlannedMachine
from ansible_collections.argus.verl.plugins.modules.ray_node_drain import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import HEADS, NODES, Groups
from ansible_collections.argus.verl.plugins.plugin_utils.plan.drain import (
    departure_findings,
    plan_departure,
    still_used_findings,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report, text_width

display = Display()
# How long one call waits, and goes on waiting on the head after Ctrl-C.
CALL_WAIT_SECONDS = 60.0
# How long a call may take besides: Ray's command takes up to a minute, and each answer of a slow head 25 s.
CALL_TIMEOUT_SECONDS = 300.0


def show_line(text: str) -> None:
    display.display(wrap_sentence(printable(text, lines=False), text_width()))


class ActionModule(NodeAction):
    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        if arguments["state"] == "located":
            return self.locate_node(arguments, variables["groups"])
        return self.drain_node(arguments)

    def locate_node(self, arguments: Mapping[str, Any], groups: Groups) -> Result:
        """Find the node in Ray and on the machines of the plan, and fail if it cannot be taken out."""
        heads, inventory_nodes = groups[HEADS], groups[NODES]
        machines = {host: PlannedMachine(**machine) for host, machine in arguments["plan"]["machines"].items()}
        host_of = {node: host for host, machine in machines.items() for node in machine.nodes}
        try:
            state = self.verb_result("nodes", {}, only_running_node=True)
            ray_nodes, problem = state["nodes"], state["problem"]
        except ProgramError as error:
            ray_nodes, problem = (), str(error)
        leaving = plan_departure(arguments["node_name"], ray_nodes, machines, inventory_nodes, host_of[heads[0]])
        silent = {machine.name: machine.problem for machine in machines.values() if not machine.answers}
        names = dict.fromkeys([*inventory_nodes, *(node["node_name"] for node in ray_nodes)])
        node_machine = machines[host_of[leaving.node]].name if leaving.in_inventory else ""
        findings = departure_findings(leaving, heads, list(names), silent, node_machine)
        if problem:
            findings.append(Finding(heads[0], problem, "repair the head: cluster_up.yml"))
        machine_name = machines[leaving.machine].name if leaving.machine in machines else leaving.machine
        return {**print_report("Drain", findings=findings), **leaving.to_json(), "machine_name": machine_name}

    def drain_node(self, arguments: Mapping[str, Any]) -> Result:
        """Give the node no new work, and wait until its jobs have ended; fail if some are left and may not be ended."""
        check, may_end = bool(self._task.check_mode), arguments["allow_disruption"]
        worker, timeout = arguments["node_name"], 0 if may_end else arguments["wait_timeout"]
        request = {"worker": worker, "node_id": arguments["node_id"], "ends_jobs": may_end, "check": check}
        result = self.run_drain(request)
        changed, jobs, waited = result["changed"], result["jobs"], 0.0
        if jobs and timeout and not check:
            waits = f"Waits for {', '.join(jobs)}, up to {timeout:.0f} s. Ctrl-C ends only the waiting"
            show_line(f"{worker} gets no new work. {waits}")
        while jobs and waited < timeout and not check:
            seconds = min(CALL_WAIT_SECONDS, timeout - waited)
            result = self.run_drain({**request, "held_by": jobs, "wait_timeout": seconds})
            waited += result["waited"]
            if set(result["jobs"]) != set(jobs):
                jobs = result["jobs"]
                show_line(waiting_line(worker, jobs, waited))
        findings = still_used_findings(worker, jobs, waited, may_end, timeout if check else None)
        shown = print_report("Drain", findings=findings)
        return {**result, **shown, "changed": changed, "waited": round(waited, 1)}

    def run_drain(self, request: Result) -> Result:
        # Only the head itself can be asked.
        timeout = CALL_TIMEOUT_SECONDS + request.get("wait_timeout", 0)
        return self.verb_result("drain", request, timeout, only_running_node=True)


def waiting_line(worker: str, jobs: Sequence[str], waited: float) -> str:
    state = f"waits for {', '.join(jobs)}" if jobs else "no job uses it"
    return f"{worker} after {waited:.0f} s: {state}"
