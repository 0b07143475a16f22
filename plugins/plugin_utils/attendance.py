# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes can take part in a run: what the roles have registered, read for filters and for preflight."""

from __future__ import annotations

from collections.abc import Sequence
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
    machine_of,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import CLOCK, REACHABLE

# The facts of the roles that are read: how the machine was probed and prepared.
PREFLIGHT = "__preflight"
PREPARED = "__ray_node_prepared"
# Of machines that cannot have their images, the reason.
IMAGES = "__ray_image_problems"
PLAN = "__ray_node_plan"


def least_workers(least: Any) -> int | None:
    """The variable cluster_min_workers; -e passes text."""
    return None if least in (None, "") else int(least)


def absence(node: str, hostvars: HostVars, checked: bool = True) -> str:
    """Why a node cannot take part in this run, or "".

    checked: whether the errors that preflight found count.
    """
    own = hostvars[node]
    planned = str((own.get(PLAN) or {}).get("absent") or "")
    if planned:
        return planned
    machine = machine_of(node, hostvars)
    there = hostvars[machine]
    problem = attendance.machine_problem(there.get(PREFLIGHT), checked)
    without_image = (there.get(IMAGES) or {}).get(machine)
    problem = problem or without_image or attendance.task_problem(there.get(PREPARED))
    return f"its machine {machine}: {problem}" if problem else ""


def attendance_of(nodes: Sequence[str], hostvars: HostVars, groups: Groups, least: Any) -> Attendance:
    here = set(nodes)
    absent = {node: reason for node in nodes if (reason := absence(node, hostvars))}
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


def machine_attendance(machines: Sequence[str], hostvars: HostVars, groups: Groups, least: Any) -> MachineAttendance:
    here = set(machines)
    placed = {node: machine_of(node, hostvars) for node in [*groups[HEADS], *groups[WORKERS]]}
    nodes = [node for node, machine in placed.items() if machine in here]
    present = attendance_of(nodes, hostvars, groups, least)
    probed = {machine: hostvars[machine].get(PREFLIGHT) or {} for machine in machines}
    silent = {machine: problem for machine in machines if (problem := attendance.task_problem(probed[machine]))}
    skews = {machine: skew for machine in machines if (skew := clocks.Skew.of(probed[machine]))}
    found = [replace(finding, key=REACHABLE.key) for finding in attendance.silent_findings(silent, present)]
    head = placed[groups[HEADS][0]] if groups[HEADS] else ""
    found += [replace(finding, key=CLOCK.key) for finding in clocks.clock_findings(skews, head)]
    return MachineAttendance(present, frozenset(placed[node] for node in present.absent), found)
