# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes can take part in a run: what the roles have registered, read for filters and for preflight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster import attendance, clocks
from ansible_collections.argus.verl.plugins.module_utils.cluster.attendance import Attendance
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import (
    HEADS,
    WORKERS,
    Groups,
    HostVars,
    cluster_nodes,
    machine_name,
    placement,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import CLOCK, REACHABLE

# The facts of the roles that are read: how the machine was probed and prepared.
PREFLIGHT = "__preflight"
PREPARED = "__ray_node_prepared"
# What failed on a machine that has no image for its nodes.
IMAGE = "__ray_image_failed"
PLAN = "__ray_node_plan"


def least_workers(least: Any) -> int | None:
    """The variable cluster_min_workers; -e passes text."""
    return None if least in (None, "") else int(least)


def absence(node: str, hostvars: HostVars, checked: bool = True, host: str = "") -> str:
    """Why a node cannot take part in this run, or "".

    checked: whether the errors that preflight found count. host: which represents the machine of a node without a plan.
    """
    plan = hostvars[node].get(PLAN) or {}
    host = host or str(plan.get("host") or "")
    if plan.get("absent") or not host:
        return str(plan.get("absent") or "")
    there = hostvars[host]
    problem = attendance.machine_problem(there.get(PREFLIGHT), checked)
    image_problem = attendance.task_problem(there.get(IMAGE))
    without_image = f"the image {plan.get('image')}: {image_problem}" if image_problem else ""
    problem = problem or without_image or attendance.task_problem(there.get(PREPARED))
    return f"its machine {machine_name(host, there)}: {problem}" if problem else ""


def attendance_of(
    nodes: Sequence[str], hostvars: HostVars, groups: Groups, least: Any, hosts: Mapping[str, str] | None = None
) -> Attendance:
    """hosts: those that represent the machines of nodes without plans, by the names of nodes."""
    here = set(nodes)
    absent = {node: reason for node in nodes if (reason := absence(node, hostvars, host=(hosts or {}).get(node, "")))}
    return Attendance(
        heads=tuple(node for node in groups[HEADS] if node in here),
        workers=tuple(node for node in groups[WORKERS] if node in here),
        absent=absent,
        least=least_workers(least),
    )


@dataclass(frozen=True)
class MachineAttendance:
    """The nodes on the machines of a run.

    machines: those of the nodes that cannot take part. findings: machines that did not answer, and wrong clocks.
    """

    attendance: Attendance
    machines: frozenset[str]
    findings: Sequence[Finding]

    def tolerated(self, found: Sequence[Finding]) -> list[Finding]:
        return attendance.tolerated(found, self.attendance, self.machines)


def machine_attendance(hosts: Sequence[str], hostvars: HostVars, groups: Groups, least: Any) -> MachineAttendance:
    """hosts: those that represent the machines of the run."""
    names = {host: machine_name(host, hostvars[host]) for host in hosts}
    nodes = cluster_nodes(groups)
    placed = {node: host for host, there in placement(nodes, hostvars, hosts).items() for node in there}
    here = [node for node in nodes if placed[node] in names]
    present = attendance_of(here, hostvars, groups, least, placed)
    probed = {names[host]: hostvars[host].get(PREFLIGHT) or {} for host in hosts}
    silent = {name: problem for name, result in probed.items() if (problem := attendance.task_problem(result))}
    skews = {name: skew for name, result in probed.items() if (skew := clocks.Skew.of(result))}
    found = [replace(finding, key=REACHABLE.key) for finding in attendance.silent_findings(silent, present)]
    head = names.get(placed[groups[HEADS][0]], "") if groups[HEADS] else ""
    found += [replace(finding, key=CLOCK.key) for finding in clocks.clock_findings(skews, head)]
    return MachineAttendance(present, frozenset(names[placed[node]] for node in present.absent), found)
