# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.disruption_report`: show the jobs that a change of the cluster would end.

Documented in plugins/modules/disruption_report.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.cluster.actions import PlannedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.departure import left_behind
from ansible_collections.argus.verl.plugins.module_utils.cluster.disruption import (
    ActiveJobs,
    disruption_findings,
    removal_findings,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import NODES
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import PlannedMachine
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import (
    NODE,
    Node,
    ProgramError,
    call,
    given_node,
    task_result,
)
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show

ARGUMENTS = {
    "node": {"type": "dict", "options": NODE},
    "plan": {"type": "dict", "required": True},
    "removes_cluster": {"type": "bool", "default": False},
    "allowed": {"type": "bool", "default": False},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the machine of the head."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        head = given_node(arguments["node"], task_vars)
        plan, groups = arguments["plan"], (task_vars or {})["groups"]
        state: Mapping[str, Any] = task_result(self, head, "nodes", {}, needs_node=True)
        problem = str(state.get("msg") if state.get("failed") else state["problem"])
        # Open archives are listed if the head cannot list its jobs; with the cluster, the jobs that wait end as well.
        unended = self.open_archives(head) if problem or arguments["removes_cluster"] else []
        jobs = ActiveJobs({job["submission_id"]: job["status"] for job in state.get("jobs", ())}, problem, unended)
        if arguments["removes_cluster"]:
            machines = [PlannedMachine.from_json(machine) for machine in plan["machines"].values()]
            findings = removal_findings(jobs, head.name, arguments["allowed"])
            findings += left_behind(state.get("nodes", ()), machines, head.cluster, groups[NODES])
        else:
            nodes = {name: PlannedNode.from_json(node) for name, node in plan["nodes"].items()}
            findings = disruption_findings(nodes, jobs, arguments["allowed"])
        return {**show(findings=findings), "problem": problem}

    def open_archives(self, head: Node) -> list[str] | None:
        """The ids of jobs whose archives are open, from a container beside the head; None if they are not known."""
        try:
            answer = call(self, head, "removal", {"state": "closed", "check": True}, apart=True)
        except ProgramError:
            return None
        return None if answer.findings or not answer.done else list(answer.result["closed"])
