# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.cluster_plan`: plan a whole cluster, and refuse a run that must not begin.

Documented in plugins/modules/cluster_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine, PlannedMachine, ProbedMachine
from ansible_collections.argus.verl.plugins.modules.cluster_plan import DOCUMENTATION
from ansible_collections.argus.verl.plugins.plugin_utils.action import Result, documented_options
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.inventory import (
    HEADS,
    NODES,
    WORKERS,
    Groups,
    HostVars,
    Variables,
    machine_name,
    placement,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.cluster_plan import ClusterPlan, Planner
from ansible_collections.argus.verl.plugins.plugin_utils.plan.disruption import (
    ActiveJobs,
    disruption_findings,
    removal_findings,
    rotation_findings,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.unlisted import not_removed_findings
from ansible_collections.argus.verl.plugins.plugin_utils.preflight import RESULT, derived_environments
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import (
    Presence,
    machine_problem,
    shortage_findings,
    task_problem,
)
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import print_report
from ansible_collections.argus.verl.plugins.plugin_utils.role_options import play_variables

# The variables in which a run registers its work on a machine after the probe.
PREPARATIONS = ("__ray_image_failed", "__ray_node_prepared")
INSPECT, START, PREPARE, CHANGE, REMOVE = "inspect", "start", "prepare", "change", "remove"
TITLES = {PREPARE: "Images", CHANGE: "Missing nodes"}
REMEDIES = {
    PREPARE: "correct what the engine reports; for a missing image, set cluster_images to names that the machine's "
    "registries have, or cluster_image_builds or cluster_image_archive to where they come from; build the CPU image "
    "with images/cpu/build.py NAME",
    CHANGE: "repair it, or correct the inventory",
}


def probed_machines(
    groups: Groups, hostvars: HostVars, environment: Mapping[str, Mapping[str, str]], is_checked: bool
) -> dict[str, ProbedMachine]:
    """The machines of an inventory, by the hosts that represent them: those that were probed.

    environment: by host, the variables of NCCL and gloo that follow from all machines. is_checked: whether nothing
    starts on a machine with errors of preflight.
    """
    results = {node: hostvars[node].get(RESULT) or {} for node in groups[NODES]}
    placed = placement(groups[NODES], hostvars, filter(results.get, results))
    machines = {}
    for host, nodes in placed.items():
        answer = results[host].get("machine")
        machines[host] = ProbedMachine(
            name=machine_name(host, hostvars[host]),
            nodes=nodes,
            probe=Machine.from_json(answer) if answer else None,
            problem=machine_problem(results[host], is_checked) or later_problem(hostvars[host]),
            derived_env=environment.get(host, {}),
        )
    return machines


def later_problem(variables: Variables) -> str:
    """Why a task failed on a machine after its probe; or ""."""
    for result in filter(None, map(variables.get, PREPARATIONS)):
        if problem := task_problem(result):
            images = ", ".join(result.get("images") or ())
            return f"the image {images}: {problem}" if images else problem
    return ""


def plan_findings(plan: ClusterPlan, planner: Planner, remedy: str) -> list[Finding]:
    """Why a run must not go on."""
    values = planner.variables[planner.heads[0]]
    nodes = plan.nodes.items()
    present = Presence(
        heads=tuple(name for name, node in nodes if node.expected.head),
        workers=tuple(name for name, node in nodes if not node.expected.head),
        absent={name: node.absent_reason for name, node in nodes if node.absent_reason},
        least=values["cluster_min_workers"],
    )
    shortage = shortage_findings(present, remedy)
    # With a shortage, the nodes that cannot take part are named already.
    rotated = [name for name, node in plan.nodes.items() if not node.absent_reason]
    return shortage or (rotation_findings(rotated, planner.variables) if values["rotate_token"] else [])


def unreached_findings(machines: Iterable[PlannedMachine]) -> list[Finding]:
    """Machines that did not answer, where parts of a removed cluster may be left."""
    remedy = "run cluster_down.yml again when it answers: its nodes, and the token there, are not removed"
    return [Finding(machine.name, machine.problem, remedy) for machine in machines if not machine.answers]


class ActionModule(NodeAction):
    """Runs on the controller. For the jobs that a change would end, it asks the head, from the head's machine."""

    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        groups, hostvars, run = (variables[name] for name in ("groups", "hostvars", "ansible_play_hosts_all"))
        typed, problems = play_variables(variables, self._templar)
        if problems:
            return print_report("Variables", findings=problems)
        purpose = arguments["purpose"]
        environment, is_checked = derived_environments(hostvars, groups[NODES]), purpose in (START, PREPARE, CHANGE)
        planner = Planner(
            variables=typed,
            heads=groups[HEADS],
            workers=groups[WORKERS],
            run=[node for node in arguments["nodes"] or run if node in typed],
            machines=probed_machines(groups, hostvars, environment, is_checked),
            builds=arguments["builds"],
            program=program_name(),
        )
        plan = planner.plan()
        result = {"changed": False, "problem": "", **plan.to_json()}
        shown = {}
        if purpose in TITLES:
            shown = print_report(TITLES[purpose], findings=plan_findings(plan, planner, REMEDIES[purpose]))
        if purpose == CHANGE and not shown.get("failed") and result["disrupts"]:
            jobs, _nodes = self.active_jobs(is_removed=False)
            shown = print_report(findings=disruption_findings(plan.nodes, jobs, arguments["allowed"]))
        if purpose == REMOVE and result["head_runs"]:
            jobs, nodes = self.active_jobs(is_removed=True)
            findings = removal_findings(jobs, self.node.name, arguments["allowed"])
            findings += not_removed_findings(nodes, plan.machines.values(), self.node.cluster, groups[NODES])
            shown, result["problem"] = print_report(findings=findings), jobs.problem
        if shown.get("failed"):
            return shown
        if purpose == CHANGE:
            print_report("Changes", ["node", "action", "why"], plan.changes)
        unreached = [finding.as_dict() for finding in unreached_findings(plan.machines.values())]
        return {**result, "unreached": unreached}

    def active_jobs(self, is_removed: bool) -> tuple[ActiveJobs, Sequence[Mapping[str, Any]]]:
        """The jobs that have not ended, and the nodes that the head knows. is_removed: whether the cluster is."""
        state: Result = {}
        try:
            state = self.verb_result("nodes", {}, only_running_node=True)
            problem = str(state["problem"])
        except ProgramError as error:
            problem = str(error)
        # Open archives stand for jobs that the head cannot list, and for waiting jobs, which end with the cluster.
        unended = self.open_archives() if problem or is_removed else []
        running = {job["submission_id"]: job["status"] for job in state.get("jobs", ())}
        return ActiveJobs(running, problem, unended), state.get("nodes", ())

    def open_archives(self) -> list[str] | None:
        """The ids of jobs whose archives are open, from a container beside the head; None if they are not known."""
        try:
            answer = self.call_verb("removal", {"state": "closed", "check": True}, outside_node=True)
        except ProgramError:
            return None
        return None if answer.findings or not answer.accepted else list(answer.result["closed"])
