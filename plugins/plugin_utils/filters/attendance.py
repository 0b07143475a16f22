# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters: which nodes can take part in a run, and whether it goes on without the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster import attendance
from ansible_collections.argus.verl.plugins.module_utils.cluster.inventory import Groups, HostVars, machine_name
from ansible_collections.argus.verl.plugins.plugin_utils.attendance import PREFLIGHT, absence, attendance_of


def shortage_findings(
    nodes: Sequence[str], hostvars: HostVars, groups: Groups, least: Any, todo: str
) -> list[dict[str, str]]:
    """The nodes without which a run stops; none while it goes on."""
    found = attendance.shortage_findings(attendance_of(nodes, hostvars, groups, least), todo)
    return [finding.as_dict() for finding in found]


def unreached(hosts: Sequence[str], hostvars: HostVars) -> list[dict[str, str]]:
    """Machines that did not answer, on which something of a removed cluster may be left."""
    found = []
    for host in hosts:
        result: Mapping[str, Any] = hostvars[host].get(PREFLIGHT) or {}
        problem = attendance.task_problem(result)
        if problem:
            todo = "run cluster_down.yml again when it answers: its nodes, and the token there, are not removed"
            found.append(Finding(machine_name(host, hostvars[host]), problem, todo).as_dict())
    return found


FILTERS = {
    "absence": absence,
    "shortage_findings": shortage_findings,
    "unreached": unreached,
}
