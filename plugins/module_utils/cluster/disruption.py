# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disruption: the jobs that an operation on running nodes would end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ..argus.common.findings import WARNING, Finding
from ..argus.launcher.status import submission_id_of
from .actions import PlannedNode
from .report import ClusterInfo

# What ray_cluster_info says of a head on which nothing listens, or whose container ends again and again.
NOBODY_LISTENS = (os.strerror(errno.ECONNREFUSED), "is restarting on", "is not running on")
GOES_ON = "nothing, the restart goes on"
WHAT_TO_DO = "wait for them or stop them, or pass -e allow_disruption=true"


def job_findings(cluster: ClusterInfo, where: str, operation: str, unended: Sequence[str] = ()) -> list[Finding]:
    """Return why an operation that ends nodes has to be refused now; no finding when no job runs.

    operation: the first words of a sentence, such as "restarting it".
    unended: the ids of further jobs that it would end, which Ray may not know yet.
    """
    running = {submission_id_of(job.submission_id) for job in cluster.jobs}
    jobs = [f"{job.submission_id} ({job.status})" for job in cluster.jobs]
    jobs += [submission_id for submission_id in unended if submission_id not in running]
    if cluster.problem:
        what = f"{operation} may end jobs, and they cannot be listed: {cluster.problem}"
        what += f"; it would end {', '.join(unended)}" if unended else ""
    elif jobs:
        what = f"{operation} would end {', '.join(jobs)}"
    else:
        return []
    return [Finding(where, what, WHAT_TO_DO)]


def disruption_findings(
    plans: Mapping[str, PlannedNode], cluster: ClusterInfo, allowed: bool, unended: Sequence[str] | None = None
) -> list[Finding]:
    """Return the jobs that the planned restarts would end; warnings when that is allowed.

    unended: the ids of the cluster's jobs whose archives are not closed, if the head could not list its jobs; None if
    that is not known.
    """
    found = []
    for host, plan in plans.items():
        if plan.action.disrupts:
            operation = f"restarting it ({plan.action.reason})"
            found += job_findings(cluster, host, operation, (unended or ()) if cluster.problem else ())
    # A Ray that has not started, as with wrong settings: nothing listens, and no job was submitted or all have ended.
    never_ran = any(each in cluster.problem for each in NOBODY_LISTENS)
    if never_ran and unended is not None and not unended and not allowed:
        return [
            replace(finding, what=f"{finding.what}; all archives are closed", todo=GOES_ON, severity=WARNING)
            for finding in found
        ]
    return [replace(finding, severity=WARNING) for finding in found] if allowed else found


def rotation_findings(planned: Iterable[str], nodes: Iterable[str]) -> list[Finding]:
    """Return why a rotation of the token has to be refused: a node that is not in this run would keep the old one."""
    known = set(planned)
    return [
        Finding(
            node,
            "is not in this run, and would be cut off by the new token",
            "rotate the token of all nodes at once: run without --limit, with every machine reachable",
        )
        for node in nodes
        if node not in known
    ]
