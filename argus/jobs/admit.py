# SPDX-License-Identifier: Apache-2.0
"""Admits jobs: runs the gate, with checks of the jobs on which a job depends.

A job with `depends_on` is admitted twice: at its submission, apart from what the other job may still make, and when the
other job has succeeded. Then it is checked as a whole, and planned anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.status import ENDED, JobState
from ..common.findings import ERROR, Finding, about, errors
from ..common.shared_root import archive_path
from ..common.text import spelling_hint
from ..gate.gate import GateResult, examine
from ..hooks import redact
from ..jobspec.spec import JobSpec
from ..queue import attempts
from ..ray.api import HeadTimeoutError, RayApiError, RayHead
from .creation import submission_of, write_archive
from .job_files import collect_job_files
from .registry import Registry
from .request import JobRequest, time_limit_findings
from .services import OperationError, RefusedError, Services

Gate = Callable[[JobSpec, str, RayHead], GateResult]


def admit(
    spec: JobSpec,
    earlier_findings: Sequence[Finding],
    submission_id: str,
    head: RayHead,
    services: Services,
    gate: Gate,
    undecided_keys: Collection[str] = (),
) -> GateResult:
    """Run the gate, and return its result with all findings. Raises RefusedError if an error is among them.

    undecided_keys: keys of the JobSpec whose errors do not count, because another job may still make what they name.
    """
    try:
        result = gate(spec, submission_id, head)
    except RayApiError as error:
        is_slow = isinstance(error, HeadTimeoutError)
        remedy = "Is its machine overloaded?" if is_slow else "Is the cluster up?"
        raise OperationError(f"{error}. {remedy} See cluster_status.yml.") from error
    findings = [*earlier_findings, *result.findings, *time_limit_findings(spec, services.clock.time())]
    findings = [finding for finding in findings if finding.severity != ERROR or finding.key not in undecided_keys]
    if errors(findings):
        raise RefusedError(findings)
    return replace(result, findings=tuple(findings))


def dependency_state(spec: JobSpec) -> JobState | None:
    """The state of the job in depends_on."""
    return Archive(archive_path(spec.shared_root, spec.depends_on or "")).state()


def dependency_findings(spec: JobSpec, registry: Registry) -> list[Finding]:
    """Errors about depends_on: the job with that id is unknown, or has failed, so that this one can never start."""
    if spec.depends_on is None:
        return []
    if spec.depends_on not in registry.ids():
        problem = f"{spec.depends_on} is not a job of this cluster"
        return [
            about("depends_on", problem, spelling_hint(spec.depends_on, registry.ids()) or "status.yml lists the jobs")
        ]
    state = dependency_state(spec)
    if state in (JobState.FAILED, JobState.STOPPED):
        return [about("depends_on", f"{spec.depends_on} ended {state}", "submit that one again, and name its new id")]
    return []


def server_findings(spec: JobSpec, registry: Registry) -> Iterator[Finding]:
    """Errors about env_from, which names servers: a job with that id is no server of this cluster, or has ended."""
    for name, server in spec.env_from.items():
        key, archive = f"env_from.{name}", Archive(archive_path(spec.shared_root, server))
        plan = archive.plan() if server in registry.ids() else None
        if plan is None or not plan.ready_port:
            remedy = spelling_hint(server, registry.ids()) or "name a command with ready, see `argus status`"
            yield about(key, f"{server} is not a job of this cluster with ready", remedy)
        elif (state := archive.state()) in ENDED:
            yield about(key, f"{server} ended {state}", "submit that one again, and name its new id")


def admit_dependent(submission_id: str, services: Services, gate: Gate = examine) -> JobState:
    """Admit a job whose other job has succeeded: put it into the queue, or record why it failed; return its state.

    Raises OperationError if the job cannot be checked now, and UnreadableError.
    """
    job = services.registry.read(submission_id)
    if job is None:
        raise OperationError(f"{submission_id} is not registered on this head")
    archive = Archive(archive_path(job.shared_root, submission_id))
    request = JobRequest(jobspec=job.jobspec, defaults=dict(job.defaults), secrets=redact.load(archive.path))
    try:
        findings, spec = request.parsed()
        if spec is None:
            raise RefusedError(findings)
        result = admit(spec, findings, submission_id, services.head(spec.address), services, gate)
        if result.job is None:
            raise RuntimeError(f"no job and no finding: {spec}")
    except RefusedError as refused:
        reason = "; ".join(f"{finding.where}: {finding.problem}" for finding in errors(refused.findings))
        return attempts.record_end(archive, JobState.FAILED, failures.failure(FailureKind.CONFIG, reason))
    planned = replace(result.job, plan=replace(result.job.plan, depends_on=None))
    files = collect_job_files(spec, result.files, planned.runtime_env["env_vars"]["PYTHONPATH"])
    submission = submission_of(request, spec, planned, result, files)
    write_archive(archive, submission)
    details = {"code_id": planned.plan.code_id, "lineage": {**archive.read_status().lineage, **submission.lineage}}
    # From now on the job waits for room.
    archive.set_status(JobState.QUEUED, **details, queued_at=time.time(), reason=result.capacity_problem)
    return JobState.QUEUED
