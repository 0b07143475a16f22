# SPDX-License-Identifier: GPL-3.0-or-later
"""`argus.verl.cluster_plan`: plan a whole cluster. Fail if too few nodes can take part, or jobs would end unasked.

Documented in plugins/modules/cluster_plan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
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
from ansible_collections.argus.verl.plugins.plugin_utils.plan.drain import not_removed_findings
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


class Purpose(StrEnum):
    """When the module is called: its option purpose."""

    INSPECT = "inspect"  # At any time, only to know the nodes.
    CHANGE = "change"  # Before cluster_up.yml changes anything.
    PREPARE = "prepare"  # After images were brought to the machines.
    START = "start"  # Before nodes start on the prepared machines.
    REMOVE = "remove"  # Before cluster_down.yml removes anything.


# The variables in which the play registers results of the tasks that prepare a machine after its probe.
PREPARATION_RESULTS = ("__ray_image_failed", "__ray_node_prepared")
# By purpose that fails with too few nodes: the title of the report on the absent nodes, and its remedy.
SHORTAGE_TITLES = {Purpose.PREPARE: "Images", Purpose.CHANGE: "Missing nodes"}
SHORTAGE_REMEDIES = {
    Purpose.PREPARE: "correct what the engine reports; for a missing image, set cluster_images to names that the "
    "machine's registries have, or cluster_image_builds or cluster_image_archive to where they come from; build the "
    "CPU image with images/cpu/build.py NAME",
    Purpose.CHANGE: "repair it, or correct the inventory",
}


def probed_machines(
    groups: Groups, hostvars: HostVars, environments: Mapping[str, Mapping[str, str]], excludes_failed: bool
) -> dict[str, ProbedMachine]:
    """The machines of the inventory, by the hosts that represent them, with the results of their probes.

    environments: by host, the variables of NCCL and gloo that follow from all machines.
    excludes_failed: whether no node may start on a machine with errors of preflight.
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
            problem=machine_problem(results[host], excludes_failed) or preparation_problem(hostvars[host]),
            derived_env=environments.get(host, {}),
        )
    return machines


def preparation_problem(variables: Variables) -> str:
    """Why a task failed that prepares a machine after its probe; "" if none did."""
    for result in filter(None, map(variables.get, PREPARATION_RESULTS)):
        if problem := task_problem(result):
            images = ", ".join(result.get("images") or ())
            return f"the image {images}: {problem}" if images else problem
    return ""


def shortage_or_rotation_findings(plan: ClusterPlan, planner: Planner, remedy: str) -> list[Finding]:
    """Errors if too few nodes can take part; else, errors if the token is rotated, but not on all nodes."""
    values = planner.variables[planner.heads[0]]
    nodes = plan.nodes.items()
    presence = Presence(
        heads=tuple(name for name, node in nodes if node.expected.head),
        workers=tuple(name for name, node in nodes if not node.expected.head),
        absent={name: node.absent_reason for name, node in nodes if node.absent_reason},
        min_workers=values["cluster_min_workers"],
    )
    shortage = shortage_findings(presence, remedy)
    # With a shortage, its findings name the nodes that cannot take part.
    rotated = [name for name, node in plan.nodes.items() if not node.absent_reason]
    return shortage or (rotation_findings(rotated, planner.variables) if values["rotate_token"] else [])


def unreached_findings(machines: Iterable[PlannedMachine]) -> list[Finding]:
    """Errors for machines that did not answer, where parts of a removed cluster may be left."""
    remedy = "run cluster_down.yml again when it answers: its nodes, and the token there, are not removed"
    return [Finding(machine.name, machine.problem, remedy) for machine in machines if not machine.answers]


class ActionModule(NodeAction):
    """Runs on the controller. If a change may end jobs, it asks the head for them, through the head's machine."""

    options = documented_options(DOCUMENTATION)

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        groups, hostvars, play_hosts = (variables[name] for name in ("groups", "hostvars", "ansible_play_hosts_all"))
        typed, problems = play_variables(variables, self._templar)
        if problems:
            return print_report("Variables", findings=problems)
        purpose, allowed = Purpose(arguments["purpose"]), arguments["allowed"]
        environments = derived_environments(hostvars, groups[NODES])
        excludes_failed = purpose in (Purpose.START, Purpose.PREPARE, Purpose.CHANGE)
        planner = Planner(
            variables=typed,
            heads=groups[HEADS],
            workers=groups[WORKERS],
            run_nodes=[node for node in arguments["nodes"] or play_hosts if node in typed],
            machines=probed_machines(groups, hostvars, environments, excludes_failed),
            builds=arguments["builds"],
            program=program_name(),
        )
        plan = planner.plan()
        result = {"changed": False, "problem": "", **plan.to_json()}
        report: Result = {}
        if purpose in SHORTAGE_TITLES:
            findings = shortage_or_rotation_findings(plan, planner, SHORTAGE_REMEDIES[purpose])
            report = print_report(SHORTAGE_TITLES[purpose], findings=findings)
        if purpose == Purpose.CHANGE and not report.get("failed") and result["disrupts"]:
            jobs, _ray_nodes = self.active_jobs(removes_cluster=False)
            report = print_report(findings=disruption_findings(plan.nodes, jobs, allowed))
        if purpose == Purpose.REMOVE and result["head_runs"]:
            jobs, ray_nodes = self.active_jobs(removes_cluster=True)
            findings = removal_findings(jobs, self.node.name, allowed)
            findings += not_removed_findings(ray_nodes, plan.machines.values(), self.node.cluster, groups[NODES])
            report, result["problem"] = print_report(findings=findings), jobs.problem
        if report.get("failed"):
            return report
        if purpose == Purpose.CHANGE:
            print_report("Changes", ["node", "action", "why"], plan.changes)
        unreached = [finding.as_dict() for finding in unreached_findings(plan.machines.values())]
        return {**result, "unreached": unreached}

    def active_jobs(self, removes_cluster: bool) -> tuple[ActiveJobs, Sequence[Mapping[str, Any]]]:
        """The jobs that have not ended, and the rows of Ray's nodes."""
        state: Result = {}
        try:
            state = self.verb_result("nodes", {}, only_running_node=True)
            problem = str(state["problem"])
        except ProgramError as error:
            problem = str(error)
        # The open archives name jobs that the head cannot list, and waiting jobs, which end with the cluster.
        unended = self.open_archives() if problem or removes_cluster else []
        running = {job["submission_id"]: job["status"] for job in state.get("jobs", ())}
        return ActiveJobs(running, problem, unended), state.get("nodes", ())

    def open_archives(self) -> list[str] | None:
        """The ids of jobs whose archives are open, read outside of the head's node; None if they cannot be read."""
        try:
            # In check mode, the verb names the archives that it would close: the open ones.
            answer = self.call_verb("removal", {"state": "closed", "check": True}, outside_node=True)
        except ProgramError:
            return None
        return None if answer.findings or not answer.accepted else list(answer.result["closed"])
