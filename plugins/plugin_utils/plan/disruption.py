# SPDX-License-Identifier: GPL-3.0-or-later
"""Findings about a run that disrupts the cluster: jobs that it would end, and nodes that would keep an old token."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...module_utils.argus.archive.status import submission_id_of
from ...module_utils.argus.common.findings import WARNING, Finding
from .actions import PlannedNode

# Parts of the message for a head on which nothing listens, or whose container does not run or ends again and again.
RAY_IS_DOWN_TEXTS = (os.strerror(errno.ECONNREFUSED), "is restarting on", "is not running on")
NO_REMEDY_NEEDED = "nothing, the restart goes on"
DISRUPTION_REMEDY = "wait for them or stop them, or pass -e allow_disruption=true"


@dataclass(frozen=True)
class ActiveJobs:
    """The jobs of a cluster that have not ended."""

    # Ray's states of the jobs that it lists, by its ids.
    running: Mapping[str, str]
    # Why the head cannot list its jobs; "" if it can.
    problem: str = ""
    # The ids of jobs whose archives are open, also of those that Ray does not list yet; None if not known.
    unended: Sequence[str] | None = ()


def job_findings(jobs: ActiveJobs, where: str, operation: str) -> list[Finding]:
    """An error if an operation would end jobs, or if the jobs are not known; none if there are no jobs.

    operation: the subject of the sentence, such as "restarting it".
    """
    unended = list(jobs.unended or ())
    if jobs.problem:
        problem = f"{operation} may end jobs, and they cannot be listed: {jobs.problem}"
        problem += f"; it would end {', '.join(unended)}" if unended else ""
        return [Finding(where, problem, DISRUPTION_REMEDY)]
    submission_ids = {submission_id_of(job) for job in jobs.running}
    listed = [f"{job} ({status})" for job, status in jobs.running.items()]
    listed += [job for job in unended if job not in submission_ids]
    return [Finding(where, f"{operation} would end {', '.join(listed)}", DISRUPTION_REMEDY)] if listed else []


def removal_findings(jobs: ActiveJobs, head: str, allowed: bool) -> list[Finding]:
    """The jobs that removing the cluster would end, as an error, or as a warning if that is allowed."""
    findings = job_findings(jobs, head, "removing the cluster")
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def disruption_findings(planned_nodes: Mapping[str, PlannedNode], jobs: ActiveJobs, allowed: bool) -> list[Finding]:
    """The jobs that the planned restarts would end, as errors, or as warnings if that is allowed or no job is left."""
    findings = [
        finding
        for name, node in planned_nodes.items()
        if node.disrupts
        for finding in job_findings(jobs, name, f"restarting it ({node.reason})")
    ]
    # Ray is down, as after a start with wrong settings, and all archives are closed: a restart cannot end a job.
    is_down = any(text in jobs.problem for text in RAY_IS_DOWN_TEXTS)
    if is_down and jobs.unended is not None and not jobs.unended and not allowed:
        return [
            Finding(finding.where, f"{finding.problem}; all archives are closed", NO_REMEDY_NEEDED, WARNING)
            for finding in findings
        ]
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def rotation_findings(rotated_nodes: Iterable[str], inventory_nodes: Iterable[str]) -> list[Finding]:
    """An error for each node outside of this run, which would keep the old token."""
    rotated = set(rotated_nodes)
    return [
        Finding(
            node,
            "is not in this run, and would be cut off by the new token",
            "rotate the token of all nodes at once: run without --limit, with every machine reachable",
        )
        for node in inventory_nodes
        if node not in rotated
    ]
