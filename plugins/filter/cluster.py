# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters for clusters: they read Ansible's variables, call module_utils.cluster, and return plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml
from ansible import constants
from ansible.errors import AnsibleFilterError
from ansible.module_utils.common.validation import check_type_dict, check_type_float, check_type_int, check_type_list
from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.argus.verl.plugins.module_utils.cluster import (
    actions,
    changes,
    container,
    disruption,
    inventory,
    nodes,
    report,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.actions import PlannedNode
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars, Variables
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.report import ClusterInfo
from ansible_collections.argus.verl.plugins.module_utils.job.options import OPTIONS

# The facts of the roles preflight and ray_node that filters read.
PREFLIGHT = "__preflight"
PLAN = "__ray_node_plan"
STARTED = "__ray_node_started"
LOG = "__ray_node_log"
# Those of __ray_node_settings that are no text.
TYPES: dict[str, Callable[[Any], Any]] = {
    "cpus": check_type_int,
    "gpus": check_type_int,
    "shm_gib": check_type_float,
    "env": check_type_dict,
    "pids_limit": check_type_int,
    "read_only": boolean,
    "capabilities": check_type_list,
    "devices": check_type_list,
    "rotate_token": boolean,
}
ROLES = Path(__file__).resolve().parents[2] / "roles"


def public_variables(roles: Path = ROLES) -> dict[str, Any]:
    """Return the defaults of all public variables by name, from the argument specs of the roles."""
    defaults: dict[str, Any] = {}
    for specification in roles.glob("*/meta/argument_specs.yml"):
        # The loader in C is ten times as fast, where there is one; every playbook waits for this.
        loaded = yaml.load(specification.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        for entry in loaded["argument_specs"].values():
            defaults |= {name: option.get("default") for name, option in entry.get("options", {}).items()}
    return defaults


def probed_machine(machine: str, hostvars: HostVars) -> Machine | None:
    """Return the machine as probed in this run; None when it was not."""
    answer = (hostvars[machine].get(PREFLIGHT) or {}).get("machine")
    return Machine.from_json(answer) if answer else None


def gpu_count(machine: str, hostvars: HostVars) -> int:
    """Count the GPUs without converting the machine: the plan of each node needs the counts of all machines."""
    answer = (hostvars[machine].get(PREFLIGHT) or {}).get("machine") or {}
    return len(answer.get("gpus", []))


def plans_of(hosts: Iterable[str], hostvars: HostVars) -> dict[str, PlannedNode]:
    """Return the plans of those nodes that were planned in this run."""
    plans = {host: hostvars[host].get(PLAN) for host in hosts}
    return {host: PlannedNode.from_json(plan) for host, plan in plans.items() if plan}


def validated_hosts(groups: Groups, sources: Sequence[str]) -> str:
    """The hosts of the play that validates: all, which --limit narrows. An inventory without hosts is an error."""
    if not groups["all"]:
        given = ", ".join(map(str, sources))
        todo = "pass an inventory that exists and can be read, as in -i inventories/prod/hosts.yml"
        raise AnsibleFilterError(f"The inventory {given} has no hosts: {todo}")
    return "all"


def inventory_findings(
    hostvars: HostVars,
    groups: Groups,
    reached: Iterable[str] = (),
    works_on: Iterable[str] = (),
    sources: Iterable[str] = (),
) -> list[dict[str, str]]:
    # Keys of a JobSpec are variables of the command line.
    found = inventory.validate(hostvars, groups, {*public_variables(), *OPTIONS, "set"})
    found += inventory.run_findings(reached, works_on, hostvars, groups)
    found += inventory.source_findings(map(str, sources), constants.INVENTORY_IGNORE_PATTERNS)
    return [finding.as_dict() for finding in found]


def inventory_summary(hostvars: HostVars, groups: Groups) -> str:
    return inventory.summary(hostvars, groups, public_variables()["cluster_name"])


def typed(settings: Variables) -> dict[str, Any]:
    """Settings with the types of the role's argument spec: -e passes text, which Ansible only checks."""
    converted = dict(settings)
    for name, convert in TYPES.items():
        # None stands for the default.
        if converted[name] is not None:
            converted[name] = convert(converted[name])
    return converted


def node_plan(settings: Variables, hostvars: HostVars, groups: Groups) -> dict[str, Any]:
    settings = typed(settings)
    name = settings["name"]
    machine = inventory.machine_of(name, hostvars)
    probed = probed_machine(machine, hostvars)
    if not probed:
        raise AnsibleFilterError(
            f"{name}: its machine {machine} was not probed in this run. With --limit, include the machine: "
            f"--limit '{machine},{name}'"
        )
    worker_machines = {inventory.machine_of(worker, hostvars) for worker in groups[inventory.WORKERS]}
    gpus = [gpu_count(host, hostvars) for host in worker_machines]
    accelerator = nodes.accelerator_of(settings["accelerator"], gpus)
    siblings = inventory.nodes_of(machine, hostvars, groups, inventory.WORKERS)
    try:
        resolved = nodes.Settings(**{**settings, "machine": machine, "accelerator": accelerator})
        return actions.planned_node(resolved, probed, siblings).to_json()
    except nodes.PlanError as error:
        raise AnsibleFilterError(str(error)) from error


def nodes_of_machine(machine: str, hostvars: HostVars, groups: Groups) -> list[str]:
    return inventory.nodes_of(machine, hostvars, groups)


def machine_work(machine: str, hostvars: HostVars, groups: Groups) -> dict[str, Any]:
    plans = plans_of(nodes_of_machine(machine, hostvars, groups), hostvars)
    work = changes.machine_work(plans.values())
    return {"user": work.user, "images": list(work.images)}


def expected_nodes(hosts: Sequence[str], hostvars: HostVars) -> list[dict[str, Any]]:
    expected = []
    for host, plan in plans_of(hosts, hostvars).items():
        container = hostvars[host].get(STARTED, {}).get("container") or {}
        started_at = container.get("State", {}).get("StartedAt")
        expected.append(changes.expected_since(plan, started_at).to_json())
    return expected


def change_rows(hosts: Sequence[str], hostvars: HostVars, groups: Groups, cluster: str) -> list[list[str]]:
    machines = {host: probed_machine(host, hostvars) for host in groups[inventory.MACHINES]}
    probed = {host: machine for host, machine in machines.items() if machine}
    return changes.change_rows(plans_of(hosts, hostvars), probed, groups[inventory.NODES], cluster)


def job_findings(cluster: Mapping[str, Any], where: str, operation: str) -> list[dict[str, str]]:
    found = disruption.job_findings(ClusterInfo.from_json(cluster), where, operation)
    return [finding.as_dict() for finding in found]


def disruption_findings(
    hosts: Sequence[str], hostvars: HostVars, cluster: Mapping[str, Any], allowed: bool
) -> list[dict[str, str]]:
    found = disruption.disruption_findings(plans_of(hosts, hostvars), ClusterInfo.from_json(cluster), allowed)
    return [finding.as_dict() for finding in found]


def rotation_findings(hosts: Sequence[str], hostvars: HostVars, groups: Groups) -> list[dict[str, str]]:
    found = disruption.rotation_findings(plans_of(hosts, hostvars), groups[inventory.NODES])
    return [finding.as_dict() for finding in found]


def cluster_containers(machine: Mapping[str, Any], cluster: str) -> list[str]:
    return Machine.from_json(machine).containers_of(cluster)


def cluster_report(
    cluster: Mapping[str, Any], hosts: Sequence[str], hostvars: HostVars, about: Mapping[str, str]
) -> dict[str, Any]:
    info = ClusterInfo.from_json(cluster)
    plans = plans_of(hosts, hostvars)
    read = {name: hostvars[name].get(LOG, {}) for name in info.missing if name in hostvars}
    logs = {name: [*log.get("stdout_lines", []), *log.get("stderr_lines", [])] for name, log in read.items()}
    return asdict(report.cluster_report(info, plans, logs, about["cluster"], about["dashboard"]))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "changes": change_rows,
            "cluster_containers": cluster_containers,
            "cluster_report": cluster_report,
            "disruption_findings": disruption_findings,
            "expected_nodes": expected_nodes,
            "inventory_findings": inventory_findings,
            "inventory_summary": inventory_summary,
            "job_findings": job_findings,
            "machine_work": machine_work,
            "node_plan": node_plan,
            "nodes_of_machine": nodes_of_machine,
            "rotation_findings": rotation_findings,
            "token_file": container.token_file,
            "validated_hosts": validated_hosts,
        }
