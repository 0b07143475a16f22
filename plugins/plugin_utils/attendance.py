# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes can take part in a run: what the roles have registered, read for filters and for preflight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster import attendance
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
from ansible_collections.argus.verl.plugins.module_utils.preflight.clocks import clock_findings

# How a machine was probed.
PREFLIGHT = "__preflight"


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


def machine_attendance(
    hosts: Sequence[str], hostvars: HostVars, groups: Groups, least: int | None
) -> MachineAttendance:
    """hosts: those that represent the machines of the run."""
    names = {host: machine_name(host, hostvars[host]) for host in hosts}
    nodes = cluster_nodes(groups)
    placed = {node: host for host, there in placement(nodes, hostvars, hosts).items() for node in there}
    here = [node for node in nodes if placed[node] in names]
    probed = {names[host]: hostvars[host].get(PREFLIGHT) or {} for host in hosts}
    problems = {node: attendance.machine_problem(probed[names[placed[node]]]) for node in here}
    present = Attendance(
        heads=tuple(node for node in groups[HEADS] if node in problems),
        workers=tuple(node for node in groups[WORKERS] if node in problems),
        absent={node: problem for node, problem in problems.items() if problem},
        least=least,
    )
    silent = {name: problem for name, result in probed.items() if (problem := attendance.task_problem(result))}
    found = [replace(finding, key="machine.reachable") for finding in attendance.silent_findings(silent, present)]
    head = names.get(placed[groups[HEADS][0]], "") if groups[HEADS] else ""
    found += clock_findings(probed, head)
    return MachineAttendance(present, frozenset(names[placed[node]] for node in present.absent), found)
