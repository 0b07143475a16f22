# SPDX-License-Identifier: GPL-3.0-or-later
"""Admit a job that has waited for another one, which has succeeded: `depends_on` of its JobSpec.

It was checked at its submission, apart from what the other job might still make. Now it is checked as a whole, and
planned anew.
"""

from __future__ import annotations

import time
from dataclasses import replace

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.status import JobState
from ..common.findings import errors
from ..common.shared_root import archive_path
from ..gate.gate import examine
from ..hooks import redact
from ..queue import attempts
from .job_files import job_files
from .request import Request
from .services import OperationError, RefusedError, Services
from .submit import Gate, admit, submission_of, write_archive


def admit_dependent(submission_id: str, services: Services, gate: Gate = examine) -> JobState:
    """Put the job into the queue, or record why it failed; returns its state.

    Raises OperationError if it cannot be checked now, and UnreadableError.
    """
    job = services.registry.read(submission_id)
    if job is None:
        raise OperationError(f"{submission_id} is not registered on this head")
    archive = Archive(archive_path(job.shared_root, submission_id))
    request = Request(jobspec=job.jobspec, defaults=dict(job.defaults), secrets=redact.load(archive.path))
    try:
        findings, spec = request.parsed()
        if spec is None:
            raise RefusedError(findings)
        result = admit(spec, findings, submission_id, services.head(spec.address), services, gate)
        if result.job is None:
            raise RuntimeError(f"no job and no finding: {spec}")
    except RefusedError as refused:
        reason = "; ".join(f"{finding.where}: {finding.what}" for finding in errors(refused.findings))
        return attempts.record_end(archive, JobState.FAILED, failures.failure(FailureKind.CONFIG, reason))
    planned = replace(result.job, plan=replace(result.job.plan, depends_on=None))
    files = job_files(spec, result.files, planned.runtime_env["env_vars"]["PYTHONPATH"])
    submission = submission_of(request, spec, planned, result, files)
    write_archive(archive, submission)
    known = {"code_id": planned.plan.code_id, "lineage": {**archive.read_status().lineage, **submission.lineage}}
    # From now on it waits for room.
    archive.set_status(JobState.QUEUED, **known, queued_at=time.time(), reason=result.capacity_problem)
    return JobState.QUEUED
