# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for clusters: they read Ansible's variables, call module_utils.cluster, and return plain data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.validation import check_type_dict, check_type_float, check_type_int, check_type_list
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher import ending
from ansible_collections.argus.verl.plugins.module_utils.cluster import (
    actions,
    changes,
    container,
    disruption,
    inventory,
    node_state,
    nodes,
    ports,
    process,
    report,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.actions import PlannedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.attendance import crash, machine_problem, task_problem
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import RUNNING
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars, Variables
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.report import ClusterInfo, Scope
from ansible_collections.argus.verl.plugins.plugin_utils.attendance import absence, least_workers
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name

# The facts of the roles preflight and ray_node that filters read.
PREFLIGHT = "__preflight"
DERIVED = "__preflight_derived"
BUILDS = "__preflight_image_builds"
PLAN = "__ray_node_plan"
STARTED = "__ray_node_started"
LOG = "__ray_node_log"
INSPECTED = "__ray_node_inspected"


def lowered(value: Any) -> str:
    """A choice between "true", "false" and others, which YAML also gives as a boolean."""
    return str(value).lower()


def texts(value: Any) -> list[str]:
    """A list of texts, whose elements YAML may have read as numbers."""
    return [str(element) for element in check_type_list(value)]


# Those of __ray_node_settings that are no text.
TYPES: dict[str, Callable[[Any], Any]] = {
    "cpus": check_type_int,
    "gpus": check_type_int,
    "shm_gib": check_type_float,
    "port_base": check_type_int,
    "env": check_type_dict,
    "pids_limit": check_type_int,
    "read_only": boolean,
    "capabilities": check_type_list,
    "devices": check_type_list,
    "rdma": lowered,
    "groups": texts,
    "ulimits": texts,
    "rotate_token": boolean,
    "ends_at": check_type_float,
    "stop_minutes": check_type_float,
}


def probed_machine(host: str, hostvars: HostVars) -> Machine | None:
    """Return the machine that a host represents as probed in this run; None when it was not."""
    answer = (hostvars[host].get(PREFLIGHT) or {}).get("machine")
    return Machine.from_json(answer) if answer else None


def gpu_count(host: str, hostvars: HostVars, kind: str = "gpus") -> int:
    """Count the GPUs without converting the machine: the plan of each node needs the counts of all machines."""
    answer = (hostvars[host].get(PREFLIGHT) or {}).get("machine") or {}
    return len(answer.get(kind, []))


def plans_of(hosts: Iterable[str], hostvars: HostVars) -> dict[str, PlannedNode]:
    """Return the plans of those nodes that were planned in this run."""
    plans = {host: hostvars[host].get(PLAN) for host in hosts}
    return {host: PlannedNode.from_json(plan) for host, plan in plans.items() if plan and not plan.get("absent")}


def absent_plan(reason: str) -> dict[str, Any]:
    """The plan of a node for which nothing can be planned; the roles read these fields of every plan."""
    return {"absent": reason, "action": "none", "disrupts": False}


def typed(settings: Variables) -> dict[str, Any]:
    """Settings with the types of the role's argument spec: -e passes text, which Ansible only checks."""
    converted = dict(settings)
    for name, convert in TYPES.items():
        # None stands for the default.
        if converted.get(name) is not None:
            converted[name] = convert(converted[name])
    return converted


def known_address(node: str, hostvars: HostVars) -> str:
    """Where other nodes reach one on the network of its host: as the inventory says, or as found there; or ""."""
    own = hostvars[node]
    found = ((own.get(PREFLIGHT) or {}).get("machine") or {}).get("process") or {}
    return str(own.get("ray_node_address") or found.get("address") or inventory.address_of(own))


def presence(groups: Groups, hostvars: HostVars, reached: Sequence[str], cluster: str) -> dict[str, Any]:
    """Whether the head's machine answers and the head runs there, and the nodes that are containers of the cluster."""
    head, containers, machine_of_head = groups[inventory.HEADS][0], [], None
    for host, placed in inventory.placement(groups[inventory.NODES], hostvars, reached).items():
        # On a machine that does not answer, nothing is known to run.
        if machine := probed_machine(host, hostvars):
            containers += [node for node in machine.containers_of(cluster) if node in placed]
            machine_of_head = machine if head in placed else machine_of_head
    runs = machine_of_head is not None and machine_of_head.runs(head)
    return {"answers": machine_of_head is not None, "runs": runs, "containers": containers}


def left_processes(machine: Mapping[str, Any], known: Sequence[str]) -> list[str]:
    """The directories of nodes without a container that left the inventory."""
    found = Machine.from_json(machine).process if machine else None
    if found is None:
        return []
    above = Path(found.directory).parent
    return [str(above / name) for name in found.neighbours if name not in known]


def started_at(result: Mapping[str, Any]) -> str | None:
    """When this run started a node, from the result of the module that did."""
    at = (result.get("container") or {}).get("State", {}).get("StartedAt")
    return at or node_state.moment((result.get("node") or {}).get("started_at"))


def sessions_directory(cluster: str, above: str = "/tmp") -> str:  # noqa: S108
    try:
        return process.sessions_directory(cluster, above)
    except nodes.PlanError as error:
        raise AnsibleFilterError(str(error)) from error


def survey(groups: Groups, hostvars: HostVars, reached: Sequence[str]) -> dict[str, Any]:
    """What the plan of each node needs of all machines.

    hosts: those that represent the machines of nodes. workers: by these hosts. gpus, rocm_gpus: the most that a machine
    with workers has.
    """
    placed = inventory.placement(groups[inventory.NODES], hostvars, reached)
    hosts = {node: host for host, nodes in placed.items() for node in nodes}
    workers: dict[str, list[str]] = {}
    for worker in groups[inventory.WORKERS]:
        workers.setdefault(hosts[worker], []).append(worker)
    most = {
        kind: max((gpu_count(host, hostvars, kind) for host in workers), default=0) for kind in ("gpus", "rocm_gpus")
    }
    return {"hosts": hosts, "workers": workers, **most, "head": groups[inventory.HEADS][0]}


def node_addresses(name: str, head: str, hostvars: HostVars, on_host_network: bool) -> dict[str, str]:
    """The addresses of a node and of its head; in a container network, their names are."""
    own, its = (
        known_address(node, hostvars) if on_host_network else str(hostvars[node].get("ray_node_address") or node)
        for node in (name, head)
    )
    addresses = {"address": own, "head_address": its}
    unknown = next((key for key, address in addresses.items() if not address), "")
    if unknown:
        whose = "the head's address" if unknown == "head_address" else "its address"
        raise nodes.PlanError(
            f"{whose} is not known, as in a run without its host; add that to --limit, or set its ray_node_address"
        )
    return addresses


def node_plan(settings: Variables, hostvars: HostVars, surveyed: Mapping[str, Any], checked: bool) -> dict[str, Any]:
    """The plan of a node, or why there can be none.

    surveyed: as of survey. checked: whether the errors that preflight found on its machine count.
    """
    settings = typed(settings)
    host = surveyed["hosts"][settings["name"]]
    name = inventory.machine_name(host, hostvars[host])
    problem = machine_problem(hostvars[host].get(PREFLIGHT), checked)
    probed = None if problem else probed_machine(host, hostvars)
    if probed is None:
        return absent_plan(f"its machine {name}: {problem}")
    accelerator = nodes.accelerator_of(settings["accelerator"], [surveyed["gpus"]], [surveyed["rocm_gpus"]])
    try:
        on_host = settings.get("network") == "host"
        settings |= node_addresses(settings["name"], surveyed["head"], hostvars, on_host)
        derived = (hostvars[host].get(DERIVED) or {}).get("environment", {}).get(host, {})
        # What follows from a new time limit restarts no node either.
        derived = {**derived, **ending.environment(settings.pop("ends_at", None), settings.pop("stop_minutes", 0.0))}
        build = (hostvars[host].get(BUILDS) or {}).get(settings["images"].get(accelerator)) or {}
        facts = {
            "machine": name,
            "accelerator": accelerator,
            "derived_env": derived,
            "image_inputs": build.get("inputs", ""),
        }
        resolved = nodes.Settings(**{**settings, **facts})
        return {
            **actions.planned_node(resolved, probed, list(surveyed["workers"].get(host, ()))).to_json(),
            "host": host,
        }
    except nodes.PlanError as error:
        return absent_plan(str(error).removeprefix(f"{settings['name']}: "))


def machine_work(placed: Sequence[str], hostvars: HostVars) -> dict[str, Any]:
    """user: of the nodes, as uid:gid; empty if their machines need nothing."""
    plans = plans_of(placed, hostvars)
    outdated = (plan.user for plan in plans.values() if lacks_program(plan.host, hostvars))
    return {"user": changes.machine_work(plans.values()).user or next(outdated, "")}


def lacks_program(host: str, hostvars: HostVars) -> bool:
    """Whether the nodes of a machine run another program than that of this controller."""
    probed = (hostvars[host].get(PREFLIGHT) or {}).get("machine") or {}
    return bool(probed.get("program") != program_name())


def expected_nodes(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, checked: bool = True, head_answers: bool = False
) -> list[dict[str, Any]]:
    plans = plans_of(hosts, hostvars)
    heads = set(groups[inventory.HEADS])
    return [
        expected_node(host, plans.get(host), hostvars, host in heads, checked, head_answers).to_json() for host in hosts
    ]


def expected_node(
    host: str, plan: PlannedNode | None, hostvars: HostVars, is_head: bool, checked: bool, head_answers: bool
) -> ExpectedNode:
    """One node as it is expected now, with what this run knows about its start."""
    problem = absence(host, hostvars, checked)
    if problem or plan is None:
        return ExpectedNode(host, is_head, absent=problem or "it was not planned")
    own = hostvars[host]
    started = own.get(STARTED) or {}
    kind = nodes.PROCESS if plan.process else nodes.CONTAINER
    problem = task_problem(started)
    if problem:
        return replace(plan.expected, absent=f"its {kind} could not be started: {problem}")
    if not started and plan.state != RUNNING:
        # Ray notices a death after half a minute; its machine knows at once. One that starts after now counts.
        ended = f"its {kind} is {plan.state}" if plan.state else f"it has no {kind}"
        return replace(plan.expected, absent=ended, since=time.time())
    problem = crash(inspected(own.get(INSPECTED) or {}), bool(started.get("changed")), head_answers or is_head, kind)
    return replace(changes.expected_since(plan, started_at(started)), absent=problem)


def inspected(result: Mapping[str, Any]) -> str:
    """The state, the last exit code and the restarts of a node, from the result of the task that inspects it."""
    node = result.get("node")
    if node:
        return f"{node['state']} {node['exit_code'] or 0} {node['restarts']}"
    return str(result.get("stdout") or "")


def change_rows(hosts: Sequence[str], hostvars: HostVars, groups: Groups, cluster: str) -> list[list[str]]:
    machines = {host: probed_machine(host, hostvars) for host in groups[inventory.NODES]}
    probed = {host: machine for host, machine in machines.items() if machine}
    return changes.change_rows(plans_of(hosts, hostvars), probed, groups[inventory.NODES], cluster)


def job_findings(
    cluster: Mapping[str, Any], where: str, operation: str, unended: Sequence[str] = ()
) -> list[dict[str, str]]:
    found = disruption.job_findings(ClusterInfo.from_json(cluster), where, operation, unended)
    return [finding.as_dict() for finding in found]


def disruption_findings(
    hosts: Sequence[str], hostvars: HostVars, cluster: Mapping[str, Any], allowed: bool, jobs: Mapping[str, Any]
) -> list[dict[str, str]]:
    # With a finding, the archives could not be read.
    unended = None if jobs.get("findings", True) else jobs["closed"]
    found = disruption.disruption_findings(plans_of(hosts, hostvars), ClusterInfo.from_json(cluster), allowed, unended)
    return [finding.as_dict() for finding in found]


def rotation_findings(hosts: Sequence[str], hostvars: HostVars, groups: Groups) -> list[dict[str, str]]:
    found = disruption.rotation_findings(plans_of(hosts, hostvars), groups[inventory.NODES])
    return [finding.as_dict() for finding in found]


def cluster_containers(machine: Mapping[str, Any], cluster: str) -> list[str]:
    # A machine that does not answer has none that could be removed.
    return Machine.from_json(machine).containers_of(cluster) if machine else []


def cluster_report(
    cluster: Mapping[str, Any], hosts: Sequence[str], hostvars: HostVars, groups: Groups, about: Mapping[str, Any]
) -> dict[str, Any]:
    info = ClusterInfo.from_json(cluster)
    scope = Scope(
        name=about["cluster"],
        dashboard=about["dashboard"],
        inventory_nodes=groups[inventory.NODES],
        heads=groups[inventory.HEADS],
        outside=[node for node in groups[inventory.NODES] if node not in set(hosts)],
        least=least_workers(about["least"]),
    )
    plans = plans_of(hosts, hostvars)
    read = {name: hostvars[name].get(LOG, {}) for name in info.missing if name in hostvars}
    logs = {name: [*log.get("stdout_lines", []), *log.get("stderr_lines", [])] for name, log in read.items()}
    return asdict(report.cluster_report(info, plans, logs, scope))


FILTERS = {
    "changes": change_rows,
    "cluster_containers": cluster_containers,
    "cluster_report": cluster_report,
    "dashboard_port": lambda base: ports.dashboard_port(check_type_int(base)),
    "disruption_findings": disruption_findings,
    "expected_nodes": expected_nodes,
    "job_findings": job_findings,
    "left_processes": left_processes,
    "machine_work": machine_work,
    "node_directory": process.node_directory,
    "node_plan": node_plan,
    "presence": presence,
    "rotation_findings": rotation_findings,
    "sessions_directory": sessions_directory,
    "survey": survey,
    "token_file": container.token_file,
}
