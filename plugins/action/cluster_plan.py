# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.cluster_plan`: plan a whole cluster. Documented in plugins/modules/cluster_plan.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.attendance import (
    Attendance,
    machine_problem,
    shortage_findings,
    task_problem,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.cluster_plan import (
    ClusterPlan,
    Planner,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.disruption import rotation_findings
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import (
    HEADS,
    NODES,
    WORKERS,
    Groups,
    HostVars,
    Variables,
    machine_name,
    placement,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine, PlannedMachine, ProbedMachine
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import show
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import play_variables

ARGUMENTS = {
    "probes": {"type": "str", "required": True},
    "derived": {"type": "dict", "default": {}},
    "builds": {"type": "dict", "default": {}},
    "is_checked": {"type": "bool", "default": True},
    "failures": {"type": "list", "elements": "str", "default": []},
    "nodes": {"type": "list", "elements": "str"},
    "remedy": {"type": "str", "default": "repair it, or correct the inventory"},
}


def probed_machines(groups: Groups, hostvars: HostVars, arguments: Mapping[str, Any]) -> dict[str, ProbedMachine]:
    """The machines of an inventory, by the hosts that represent them: those that were probed."""
    results = {node: hostvars[node].get(arguments["probes"]) or {} for node in groups[NODES]}
    machines = {}
    for host, nodes in placement(groups[NODES], hostvars, filter(results.get, results)).items():
        result = results[host]
        answer, later = result.get("machine"), later_problem(hostvars[host], arguments["failures"])
        machines[host] = ProbedMachine(
            name=machine_name(host, hostvars[host]),
            nodes=nodes,
            probe=Machine.from_json(answer) if answer else None,
            problem=machine_problem(result, arguments["is_checked"]) or later,
            derived_env=arguments["derived"].get(host, {}),
        )
    return machines


def later_problem(variables: Variables, names: Iterable[str]) -> str:
    """What failed on a machine after it was probed, by the variables in which that is registered; or ""."""
    for result in filter(None, map(variables.get, names)):
        if problem := task_problem(result):
            images = ", ".join(result.get("images") or ())
            return f"the image {images}: {problem}" if images else problem
    return ""


def plan_findings(plan: ClusterPlan, planner: Planner, remedy: str) -> list[Finding]:
    """Why a run must not go on."""
    values = planner.variables[planner.heads[0]]
    nodes = plan.nodes.items()
    present = Attendance(
        heads=tuple(name for name, node in nodes if node.expected.head),
        workers=tuple(name for name, node in nodes if not node.expected.head),
        absent={name: node.absent for name, node in nodes if node.absent},
        least=values["cluster_min_workers"],
    )
    shortage = shortage_findings(present, remedy)
    # With a shortage, the nodes that cannot take part are named already.
    rotated = [name for name, node in plan.nodes.items() if not node.absent]
    return shortage or (rotation_findings(rotated, planner.variables) if values["rotate_token"] else [])


def unreached_findings(machines: Iterable[PlannedMachine]) -> list[Finding]:
    """Machines that did not answer, on which something of a removed cluster may be left."""
    todo = "run cluster_down.yml again when it answers: its nodes, and the token there, are not removed"
    return [Finding(machine.name, machine.problem, todo) for machine in machines if not machine.answers]


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _dummy, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        variables = task_vars or {}
        groups, hostvars, run = (variables[name] for name in ("groups", "hostvars", "ansible_play_hosts_all"))
        typed, problems = play_variables(variables, self._templar)
        if problems:
            return show("Variables", findings=problems)
        planner = Planner(
            variables=typed,
            heads=groups[HEADS],
            workers=groups[WORKERS],
            run=[node for node in arguments["nodes"] or run if node in typed],
            machines=probed_machines(groups, hostvars, arguments),
            builds=arguments["builds"],
            program=program_name(),
        )
        plan = planner.plan()
        findings = [finding.as_dict() for finding in plan_findings(plan, planner, arguments["remedy"])]
        unreached = [finding.as_dict() for finding in unreached_findings(plan.machines.values())]
        return {"changed": False, **plan.to_json(), "findings": findings, "unreached": unreached}
