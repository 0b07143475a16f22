# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate: everything that can be known about a job before it is submitted. Runs on the head."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..checks.facts import Facts
from ..common.findings import Finding, about, errors
from ..jobspec.capacity import Cluster, size_findings, size_of, storage_findings
from ..jobspec.driver_resources import driver_findings
from ..jobspec.owned import OVERRIDES, repetition_notes
from ..jobspec.plan import Job, plan_job
from ..jobspec.spec import JobSpec
from ..jobspec.spec_checks import accelerator_findings
from ..jobspec.verl_releases import SFT
from ..launcher.ray_api import RayHead, free_workers
from ..launcher.room import Demand, Room, look_at_placed
from .head import file_findings, read_marker, resume_findings, snapshot_profile
from .nodes import NodeAnswers, ask_nodes
from .transfer_queue import with_queue

AskNodes = Callable[[JobSpec, Job, str, Mapping[str, str]], NodeAnswers]


@dataclass(frozen=True)
class GateResult:
    """What the gate found out about a job.

    job: None if it could not be planned; then there are findings.
    checkpoint: the path of the checkpoint that the job resumes from, or "".
    capacity_problem: why the cluster has no capacity for the job now, or "".
    room: what was free then, for the last check right before the submission.
    resolved: the composed configuration as YAML, or "".
    """

    findings: tuple[Finding, ...]
    job: Job | None = None
    checkpoint: str = ""
    capacity_problem: str = ""
    room: Room = field(default_factory=Room)
    resolved: str = ""
    facts: Facts = field(default_factory=Facts)


def examine(
    spec: JobSpec,
    submission_id: str,
    head: RayHead,
    ask: AskNodes = ask_nodes,
    clock: Callable[[], float] = time.time,
) -> GateResult:
    """All problems of a JobSpec without syntax errors. Raises RayApiError if the head does not answer."""
    started = clock()
    placed = look_at_placed(head, started)
    nodes = head.nodes()
    cluster = Cluster.of(nodes)
    found = [*file_findings(spec), *size_findings(spec, cluster), *driver_findings(spec, nodes)]
    code_path = Path(spec.inputs.code_path)
    profile = snapshot_profile(code_path)
    if profile is None or profile.module(spec.workload, spec.launcher) is None or not cluster.workers:
        return GateResult(tuple(found))
    found += accelerator_findings(spec.workload, profile, cluster)
    unfit, checkpoint = resume_findings(spec, size_of(spec, cluster).gpus)
    found += unfit
    # Only SFT needs no data for validation; file_findings reports a file that is missing.
    validates = spec.workload != SFT or Path(spec.inputs.dataset, "val.parquet").exists()
    job = plan_job(spec, cluster, read_marker(code_path) or "", submission_id, profile, checkpoint, validates)
    # The present capacity does not matter to a job that can never run.
    can_run = not errors(found)
    answers = ask(spec, job, profile.version, workers_of(nodes))
    found += new_findings(answers.findings, found)
    job = with_queue(job, answers.queue)
    if can_run:
        found += (never := storage_findings(spec, cluster, job.plan.storage_units))
        can_run = not never
    room = Room(tuple(head.capacity(started)), placed) if can_run else Room()
    waits_for = room.problem(submission_id, Demand.of(job.plan), head.jobs()) if can_run else ""
    if waits_for and not spec.wait_for_resources:
        found.append(no_room(waits_for))
    # Only then the values are known to be those of the job.
    found += [] if errors(found) else repetition_notes(spec)
    return GateResult(
        findings=tuple(found),
        job=job.with_python_path(answers.python_path),
        checkpoint=str(checkpoint.path) if checkpoint else "",
        capacity_problem=waits_for,
        room=room,
        resolved=answers.resolved,
        facts=replace(answers.facts, workers=sorted(workers_of(nodes).values())),
    )


def new_findings(found: Iterable[Finding], known: Iterable[Finding]) -> list[Finding]:
    """Findings without those about overrides or problems that are already known."""
    known = list(known)
    overrides = {finding.key for finding in errors(known) if finding.key.startswith(f"{OVERRIDES}.")}
    problems = {(finding.where, finding.what) for finding in known}
    return [
        finding for finding in found if finding.key not in overrides and (finding.where, finding.what) not in problems
    ]


def workers_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of the workers that are alive, by Ray's node IDs."""
    return {worker.node_id: worker.name for worker in free_workers(nodes, {})}


def no_room(problem: str) -> Finding:
    return about("resources", problem, "wait until other jobs have ended, or set wait_for_resources: 2h")
