# SPDX-License-Identifier: Apache-2.0
"""Creates a job that the gate has admitted: reserves its archive, registers it, and submits it to Ray or queues it."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..archive import failures
from ..archive.archive import MAX_REQUESTER_CHARS, STEWARD_HEARTBEAT, Archive
from ..archive.program import PROGRAM_RECORD, VERSION, Program
from ..archive.status import JobState
from ..common.text import printable_line
from ..gate.gate import GateResult
from ..hooks import worker_secrets
from ..io import writing
from ..io.hydra import override_key
from ..jobspec.plan import WANDB_DIRECTORY, Job
from ..jobspec.spec import JobSpec
from ..queue import attempts
from ..queue.demand import Limit
from .job_files import JobFiles
from .registry import RegisteredJob, Registry
from .request import JobRequest

# The values of trainer.logger for W&B; "tracking" is an old one.
WANDB = re.compile(r"\b(wandb|tracking)\b")


@dataclass(frozen=True)
class Submission:
    """A planned job, and what is recorded of it besides."""

    jobspec: Mapping[str, Any]
    job: Job
    resolved: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    # The earlier jobs that this one resumes or repeats, see submission_of.
    lineage: Mapping[str, str] = field(default_factory=dict)
    # What the job waits for; its steward then submits it to Ray later. Empty: it is submitted at once.
    queue_reason: str = ""
    # As in RegisteredJob.
    notify: str = field(default="", repr=False)
    limits: tuple[Limit, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    submitted_by: str = ""
    files: JobFiles = field(default_factory=JobFiles)


def submission_of(request: JobRequest, spec: JobSpec, job: Job, result: GateResult, files: JobFiles) -> Submission:
    """The submission of an admitted job. result: of the gate. job: its plan, with or without changes by the caller."""
    lineage = {
        "resumed_from": spec.resume_from or "",
        "checkpoint": result.checkpoint,
        "resubmitted_from": request.resubmitted_from,
    }
    waits_for = f"for {spec.depends_on} to succeed" if spec.depends_on else ""
    waits_for = waits_for or attempts.unmet_server_condition(Archive(job.archive), job.plan)
    return Submission(
        jobspec=request.author_jobspec,
        job=job,
        resolved=result.resolved,
        # The job gets only the secrets that its JobSpec names.
        secrets={name: request.secrets[name] for name in spec.secrets},
        notify=request.notify,
        limits=Limit.of({tag: limit.model_dump() for tag, limit in request.limits.items()}, job.plan.tags),
        lineage={name: value for name, value in lineage.items() if value},
        queue_reason=f"waits {waits_for}" if waits_for else result.capacity_problem,
        defaults=request.defaults if spec.depends_on else {},
        submitted_by=printable_line(request.submitted_by, colour=False)[:MAX_REQUESTER_CHARS],
        files=files,
    )


def create_job(archive: Archive, submission: Submission, client: Any, registry: Registry) -> JobState:
    """Reserve the archive, fill it and submit the job to Ray, or queue it; return its state.

    The caller holds admission_lock. If a step fails, its error is raised after the archive has recorded it; the steward
    then closes the archive. Raises FileExistsError if the id was taken in the meantime.
    """
    archive.reserve()
    is_registered = False
    try:
        register(archive, submission, registry)
        is_registered = True
        write_archive(archive, submission)
        # If this process is interrupted from here on, the steward finds out whether Ray has the job.
        write_status(archive, submission)
        if not submission.queue_reason:
            attempts.submit(archive, 1, client)
    except BaseException as error:
        attempts.record_end(
            archive, JobState.FAILED, failures.failure("unknown", f"it could not be submitted: {error}")
        )
        worker_secrets.forget(archive.path)
        if not is_registered:
            attempts.close_if_ended(archive, JobState.FAILED)
        raise
    return JobState.QUEUED if submission.queue_reason else JobState.SUBMITTED


def register(archive: Archive, submission: Submission, registry: Registry) -> None:
    """Record that this cluster submits the job: its steward finds it even if this process is interrupted."""
    # The steward looks after a registered job as long as this file is in the archive.
    archive.write_heartbeat(STEWARD_HEARTBEAT, time=0)
    shared_root = str(archive.path.parents[1])
    address = submission.job.plan.address
    entry = (archive.submission_id, time.time(), submission.jobspec, shared_root, address)
    registry.write(RegisteredJob(*entry, submission.notify, submission.limits, submission.defaults))


def write_archive(archive: Archive, submission: Submission) -> None:
    job = submission.job
    archive.write_json("config/job_spec.json", submission.jobspec)
    archive.write_json("config/runtime_env.json", job.runtime_env)
    archive.write_text("config/submit_cmd.txt", job.submit_command())
    archive.write_text("config/train_cmd.txt", job.train_command())
    archive.write_json("config/plan.json", job.plan)
    archive.write_text("config/resolved.yaml", submission.resolved)
    archive.write_json(PROGRAM_RECORD, {"version": VERSION, "program": Program.of_this_process().name})
    submission.files.write(archive)
    if any(override_key(override) == "trainer.logger" and WANDB.search(override) for override in job.plan.overrides):
        writing.make_directory(archive.path / WANDB_DIRECTORY)
    if submission.secrets:
        worker_secrets.store(archive.path, submission.secrets)


def write_status(archive: Archive, submission: Submission) -> None:
    """Write the first status of the job: QUEUED if it waits, otherwise SUBMITTED."""
    now = time.time()
    details: dict[str, Any] = {
        "workload": submission.job.plan.workload,
        "code_id": submission.job.plan.code_id,
        "submitted_at": now,
        "submitted_by": submission.submitted_by,
        "lineage": dict(submission.lineage),
        "tags": submission.job.tags,
    }
    if submission.queue_reason:
        archive.set_status(JobState.QUEUED, **details, attempt=1, queued_at=now, reason=submission.queue_reason)
    else:
        attempts.prepare_attempt(archive, 1, **details)
