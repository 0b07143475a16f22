# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: a node that leaves the cluster, and nodes that a removed machine left behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster import departure as departures
from ansible_collections.argus.verl.plugins.module_utils.cluster.attendance import task_problem
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import (
    HEADS,
    NODES,
    Groups,
    HostVars,
    machine_name,
    placement,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.plugin_utils.attendance import PREFLIGHT


def probed(hostvars: HostVars, groups: Groups) -> dict[str, Machine]:
    """The machines that have answered, by the hosts that represent them."""
    answers = {host: (hostvars[host].get(PREFLIGHT) or {}).get("machine") for host in groups[NODES]}
    return {host: Machine.from_json(answer) for host, answer in answers.items() if answer}


def departure(
    node: str, hostvars: HostVars, groups: Groups, asked: Mapping[str, Any], cluster: str, machine: str = ""
) -> dict[str, Any]:
    """How a node leaves, with why it cannot under `findings`.

    asked: the result of ray_cluster_info. machine: a host outside the inventory.
    """
    machines, nodes = probed(hostvars, groups), asked["nodes"]
    results = {host: result for host in groups[NODES] if (result := hostvars[host].get(PREFLIGHT))}
    placed = {each: host for host, there in placement(groups[NODES], hostvars, results).items() for each in there}
    names = {host: machine_name(host, hostvars[host]) for host in placed.values()}
    leaving = departures.departure(node, nodes, machines, cluster, machine, groups[NODES], placed[groups[HEADS][0]])
    silent = {names[host]: problem for host, result in results.items() if (problem := task_problem(result))}
    known = [*groups[NODES], *(one["node_name"] for one in nodes if one["node_name"] not in groups[NODES])]
    own = names[placed[node]] if leaving.in_inventory else ""
    found = departures.departure_findings(leaving, groups[HEADS], list(dict.fromkeys(known)), silent, own)
    if asked["problem"]:
        found.append(Finding(groups[HEADS][0], asked["problem"], "repair the head: cluster_up.yml"))
    where = names.get(leaving.machine, leaving.machine)
    return {**leaving.to_json(), "machine_name": where, "findings": [finding.as_dict() for finding in found]}


def hold_findings(
    drained: Mapping[str, Any], node: str, allowed: bool, would_wait: float | None = None
) -> list[dict[str, str]]:
    found = departures.hold_findings(node, drained.get("jobs", ()), drained.get("waited", 0.0), allowed, would_wait)
    return [finding.as_dict() for finding in found]


def left_behind(asked: Mapping[str, Any], hostvars: HostVars, groups: Groups, cluster: str) -> list[dict[str, str]]:
    machines = {machine_name(host, hostvars[host]): machine for host, machine in probed(hostvars, groups).items()}
    found = departures.left_behind(asked.get("nodes", ()), machines, cluster, groups[NODES])
    return [finding.as_dict() for finding in found]


FILTERS = {
    "departure": departure,
    "hold_findings": hold_findings,
    "left_behind": left_behind,
}
