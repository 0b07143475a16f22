# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: the pure functions of module_utils, where YAML needs their answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.argus.verl.plugins.module_utils.cluster import inventory, nodes
from ansible_collections.argus.verl.plugins.module_utils.findings import WARNING, Finding

# Of each missing node, as many lines as still let the reader see all of them.
LOG_LINES = 15
ROLES = Path(__file__).resolve().parents[2] / "roles"


def public_variables(roles: Path = ROLES) -> set[str]:
    """The names of all public variables, from the roles' own argument specs."""
    names: set[str] = set()
    for specification in roles.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(specification.read_text(encoding="utf-8"))["argument_specs"].values():
            names.update(entry.get("options", {}))
    return names


def inventory_findings(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]]
) -> list[dict[str, str]]:
    """Findings of an inventory, before any host is touched."""
    return [finding.as_dict() for finding in inventory.validate(hostvars, groups, public_variables())]


def node_plan(
    settings: Mapping[str, Any], hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]]
) -> dict[str, Any]:
    """What a node's container is to be, what has to be done for that, and what the gate has to see of it."""
    name = settings["name"]
    machine = inventory.machine_of(name, hostvars)
    probed = hostvars[machine].get("__preflight", {}).get("machine")
    if not probed:
        raise AnsibleFilterError(
            f"{name}: its machine {machine} was not looked at in this run. With --limit, name the machine as well: "
            f"--limit '{machine},{name}'"
        )
    worker_machines = {inventory.machine_of(worker, hostvars) for worker in groups[inventory.WORKERS]}
    gpus = [
        len((hostvars[host].get("__preflight") or {}).get("machine", {}).get("gpus", [])) for host in worker_machines
    ]
    accelerator = nodes.accelerator_of(settings["accelerator"], gpus)
    try:
        plan = nodes.plan_node(
            nodes.Settings(**{**settings, "machine": machine, "accelerator": accelerator}),
            probed,
            inventory.workers_of(machine, hostvars, groups),
        )
    except nodes.PlanError as error:
        raise AnsibleFilterError(str(error)) from error
    arguments = nodes.container_arguments(plan)
    action = nodes.decide(plan, arguments, probed["containers"])
    return {
        "accelerator": plan.accelerator,
        "image": plan.image,
        "image_missing": not plan.image_id,
        "user": plan.user,
        "container": arguments,
        "action": action.kind,
        "reason": action.reason,
        "disrupts": action.disrupts,
        "started_at": (probed["containers"].get(name) or {}).get("started_at"),
        "expected": nodes.expected_node(plan),
    }


def nodes_of_machine(
    machine: str, hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]]
) -> list[str]:
    """The nodes whose containers are on a machine."""
    return [node for node in groups[inventory.NODES] if inventory.machine_of(node, hostvars) == machine]


def machine_work(
    machine: str, hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]]
) -> dict[str, Any]:
    """What has to be on a machine before its nodes start; all empty when none of them has to be started."""
    plans = [hostvars[node].get("__ray_node_plan") for node in nodes_of_machine(machine, hostvars, groups)]
    starting = [plan for plan in plans if plan and plan["action"] != nodes.KEEP]
    return {
        "user": starting[0]["user"] if starting else "",
        "images": sorted({plan["image"] for plan in starting if plan["image_missing"]}),
    }


def expected_nodes(hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the gate has to see: the planned nodes of this run, not older than their containers."""
    expected = []
    for host in hosts:
        plan = hostvars[host].get("__ray_node_plan")
        if plan:
            started = hostvars[host].get("__ray_node_started", {}).get("container") or {}
            started_at = started.get("State", {}).get("StartedAt") or plan["started_at"]
            since = datetime.fromisoformat(started_at).timestamp() if started_at else None
            expected.append({**plan["expected"], "since": since})
    return expected


def changes(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, list[str]], cluster: str
) -> list[list[str]]:
    """Rows of what will be done to nodes; those that stay as they are have none.

    Nodes that left the inventory are named, and left alone: jobs may run there, and take them for workers.
    """
    plans = {host: hostvars[host]["__ray_node_plan"] for host in hosts}
    rows = [[host, plan["action"], plan["reason"]] for host, plan in plans.items() if plan["action"] != nodes.KEEP]
    for machine in groups[inventory.MACHINES]:
        probed = hostvars[machine].get("__preflight", {}).get("machine", {})
        for name in own_containers(probed.get("containers", {}), cluster):
            if name not in groups[inventory.NODES]:
                rows.append(
                    [name, "none", f"not in the inventory any more; `docker rm -f {name}` on {machine} ends it"]
                )
    return rows


def job_findings(cluster: Mapping[str, Any], where: str, deed: str) -> list[dict[str, str]]:
    """Why a deed that ends nodes must not be done now; empty when no job runs."""
    if cluster["problem"]:
        what = f"{deed} may end jobs, and they cannot be listed: {cluster['problem']}"
    elif cluster["jobs"]:
        what = f"{deed} would end " + ", ".join(f"{job['submission_id']} ({job['status']})" for job in cluster["jobs"])
    else:
        return []
    todo = "wait for them or stop them, or say -e allow_disruption=true"
    return [Finding(where, what, todo).as_dict()]


def disruption_findings(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], cluster: Mapping[str, Any], allowed: bool
) -> list[dict[str, str]]:
    """What a restart of running nodes would end, and why they would be restarted."""
    restarts = {
        host: hostvars[host]["__ray_node_plan"] for host in hosts if hostvars[host]["__ray_node_plan"]["disrupts"]
    }
    found = []
    for host, plan in restarts.items():
        found += job_findings(cluster, host, f"restarting it ({plan['reason']})")
    if allowed:
        return [{**finding, "severity": WARNING} for finding in found]
    return found


def own_containers(containers: Mapping[str, Mapping[str, Any]], cluster: str) -> list[str]:
    """The names of a machine's containers that belong to the cluster."""
    return [name for name, there in containers.items() if there["labels"].get(nodes.LABEL_CLUSTER) == cluster]


def cluster_report(
    cluster: Mapping[str, Any],
    hosts: Sequence[str],
    hostvars: Mapping[str, Mapping[str, Any]],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """The arguments of argus.verl.report for a cluster: whole, or what is missing and the tail of its log."""
    plans = {host: hostvars[host].get("__ray_node_plan") or {} for host in hosts}
    total, missing = len(cluster["rows"]), cluster["missing"]
    title = f"Cluster {about['cluster']}: {total - len(missing)} of {total} nodes as expected"
    # The node as expected and as seen is the same thing in a whole cluster.
    columns = ["resources"] if cluster["complete"] else ["expected", "seen"]
    rows = []
    for name, expected, seen, verdict in cluster["rows"]:
        plan = plans.get(name, {})
        described = [seen] if cluster["complete"] else [expected, seen]
        rows.append([name, verdict, *described, plan.get("accelerator"), plan.get("action")])
    header = ["node", "state", *columns, "accelerator", "action"]
    report: dict[str, Any] = {"title": title, "header": header, "rows": rows}
    if cluster["complete"]:
        return {**report, "text": [f"Dashboard: {about['dashboard']}"], "fail_when": ""}
    text = [f"The head: {cluster['problem']}"] if cluster["problem"] else []
    for name in missing:
        log = hostvars[name].get("__ray_node_log", {}) if name in hostvars else {}
        lines = [*log.get("stdout_lines", []), *log.get("stderr_lines", [])][-LOG_LINES:]
        if lines:
            text += [f"The last lines of {name}:", *(f"  {line}" for line in lines)]
    report["text"] = text
    waited = f" after {cluster['waited']:g} s" if cluster["waited"] >= 1 else ""
    report["fail_when"] = (
        f"The cluster is not whole{waited}. Mend what the lines above say and run cluster_up.yml: it starts only what "
        "is missing. `docker logs NODE` has more"
    )
    return report


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "changes": changes,
            "cluster_report": cluster_report,
            "disruption_findings": disruption_findings,
            "expected_nodes": expected_nodes,
            "inventory_findings": inventory_findings,
            "job_findings": job_findings,
            "machine_work": machine_work,
            "node_plan": node_plan,
            "nodes_of_machine": nodes_of_machine,
            "own_containers": own_containers,
            "token_file": nodes.token_file,
        }
