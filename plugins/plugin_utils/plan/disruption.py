# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings about a run that would disrupt a running cluster: jobs it would end, nodes that would keep an old token."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...module_utils.argus.archive.status import submission_id_of
from ...module_utils.argus.common.findings import WARNING, Finding
from .actions import PlannedNode

# What ray_cluster_info says of a head on which nothing listens, or whose container ends again and again.
NOBODY_LISTENS = (os.strerror(errno.ECONNREFUSED), "is restarting on", "is not running on")
GOES_ON = "nothing, the restart goes on"
REMEDY = "wait for them or stop them, or pass -e allow_disruption=true"


@dataclass(frozen=True)
class ActiveJobs:
    """The jobs of a cluster that have not ended.

    running: their states as Ray reports them, by its ids. problem: why the head cannot list them, or "".
    unended: the ids of jobs whose archives are open, also of those that Ray does not know yet; None if not known.
    """

    running: Mapping[str, str]
    problem: str = ""
    unended: Sequence[str] | None = ()


def job_findings(jobs: ActiveJobs, where: str, operation: str) -> list[Finding]:
    """Why an operation that ends nodes has to be refused now; no finding when no job runs.

    operation: the first words of a sentence, such as "restarting it".
    """
    unended = list(jobs.unended or ())
    if jobs.problem:
        problem = f"{operation} may end jobs, and they cannot be listed: {jobs.problem}"
        problem += f"; it would end {', '.join(unended)}" if unended else ""
        return [Finding(where, problem, REMEDY)]
    submission_ids = {submission_id_of(job) for job in jobs.running}
    listed = [f"{job} ({status})" for job, status in jobs.running.items()]
    listed += [job for job in unended if job not in submission_ids]
    return [Finding(where, f"{operation} would end {', '.join(listed)}", REMEDY)] if listed else []


def removal_findings(jobs: ActiveJobs, head: str, allowed: bool) -> list[Finding]:
    """The jobs that the removal of a cluster would end; warnings when that is allowed."""
    findings = job_findings(jobs, head, "removing the cluster")
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def disruption_findings(nodes: Mapping[str, PlannedNode], jobs: ActiveJobs, allowed: bool) -> list[Finding]:
    """The jobs that the planned restarts would end; warnings when that is allowed."""
    findings = [
        finding
        for name, node in nodes.items()
        if node.disrupts
        for finding in job_findings(jobs, name, f"restarting it ({node.reason})")
    ]
    # A Ray that has not started, as with wrong settings: nothing listens, and no job was submitted or all have ended.
    never_ran = any(message in jobs.problem for message in NOBODY_LISTENS)
    if never_ran and jobs.unended is not None and not jobs.unended and not allowed:
        return [
            replace(finding, problem=f"{finding.problem}; all archives are closed", remedy=GOES_ON, severity=WARNING)
            for finding in findings
        ]
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def rotation_findings(planned: Iterable[str], nodes: Iterable[str]) -> list[Finding]:
    """Return why a rotation of the token has to be refused: a node that is not in this run would keep the old one."""
    rotated = set(planned)
    return [
        Finding(
            node,
            "is not in this run, and would be cut off by the new token",
            "rotate the token of all nodes at once: run without --limit, with every machine reachable",
        )
        for node in nodes
        if node not in rotated
    ]
