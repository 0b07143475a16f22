# SPDX-License-Identifier: Apache-2.0
"""Submits a job: checks its JobSpec, and creates the job. The same JobSpec under the same id is submitted once.

A job with `depends_on` is admitted twice: at its submission, apart from what the other job may still make, and when the
other job has succeeded. Then it is checked as a whole, and planned anew.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.plan import Plan
from ..archive.status import ENDED, JobState
from ..common.findings import ERROR, Finding, about, errors
from ..common.shared_root import archive_path
from ..common.text import spelling_hint
from ..gate.gate import GateResult, examine, no_room_finding
from ..hooks import worker_secrets
from ..io.reading import UnreadableError
from ..jobspec.spec import JobSpec, new_submission_id
from ..queue import attempts
from ..queue.demand import Demand
from ..queue.queue import WaitingJob, find_turn, read_queue
from ..ray.admission import NO_STEWARD, BusyError, admission_lock, steward_runs
from ..ray.api import HeadTimeoutError, RayApiError, RayHead
from .creation import Submission, create_job, submission_of, write_archive
from .describe import describe
from .job_files import change_findings, collect_job_files
from .registry import RegisteredJob, Registry
from .request import JobRequest, time_limit_findings
from .services import Effect, OperationError, RefusedError, Services

# Keys whose values may be results of the job in depends_on.
DEPENDENT_KEYS = ("model", "dataset", "resume_from")

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
    request = JobRequest(jobspec=job.jobspec, defaults=dict(job.defaults), secrets=worker_secrets.load(archive.path))
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


def submit(request: JobRequest, services: Services, gate: Gate = examine) -> Effect:
    """Submit a job. Raises RefusedError for a JobSpec with errors, OperationError if anything else fails."""
    findings, spec = request.parsed()
    if spec is None or errors(findings):
        raise RefusedError(findings)
    if not services.registry.path.is_dir():
        raise OperationError(f"The head has no {services.registry.path}. Run cluster_up.yml, which creates it.")
    check_steward(services)
    head = services.head(spec.address)
    submission_id = spec.submission_id or new_submission_id(spec.workload)
    archive = Archive(archive_path(spec.shared_root, submission_id))
    if archive.exists():
        return existing_job(archive, request, head, services)
    findings += [*dependency_findings(spec, services.registry), *server_findings(spec, services.registry)]
    if spec.depends_on and dependency_state(spec) is JobState.SUCCEEDED:
        spec = spec.model_copy(update={"depends_on": None})
    result = admit(spec, findings, submission_id, head, services, gate, DEPENDENT_KEYS if spec.depends_on else ())
    if result.job is None:
        raise RuntimeError(f"no job and no finding: {spec}")
    files = collect_job_files(spec, result.files, result.job.runtime_env["env_vars"]["PYTHONPATH"])
    submission = submission_of(request, spec, result.job, result, files)
    # These problems remain even if no other job runs.
    if problems := [text for limit in submission.limits if (text := limit.problem(Demand.of(result.job.plan), ()))]:
        raise RefusedError([Finding("job_limits", text, "ask for less, or raise the limit") for text in problems])
    origin = request.resubmitted_from
    changed = change_findings(Archive(archive_path(spec.shared_root, origin)), files) if origin else []
    if not request.check:
        try:
            client = services.client(spec.address)
            with admission_lock(services.registry.path):
                submission = recheck_room(submission, spec, result, head, services.registry)
                create_job(archive, submission, client, services.registry)
        except FileExistsError:
            return existing_job(archive, request, head, services)
        except RefusedError:
            raise
        except Exception as error:
            where = f"Its archive is {archive.path}." if archive.exists() else "Nothing was changed."
            raise OperationError(f"{submission_id} could not be submitted: {error}. {where}") from error
    state = JobState.QUEUED if submission.queue_reason else JobState.SUBMITTED
    overrides = list(result.job.plan.overrides)
    created = {
        "submission_id": submission_id,
        "archive": result.job.archive,
        "state": str(state),
        "overrides": overrides,
        "facts": result.facts.to_json(),
        "files": files.record.files,
        "diff": {"before": "", "after": "".join(f"{override}\n" for override in overrides)},
    }
    return Effect(True, created, (*result.findings, *changed))


def check_steward(services: Services) -> None:
    """Raise OperationError if no steward runs: nothing would look after the job."""
    try:
        is_running = steward_runs(services.registry.path)
    except OSError as error:
        raise OperationError(f"{error.filename} cannot be opened: {error.strerror}") from error
    if not is_running:
        raise OperationError(NO_STEWARD)


def recheck_room(
    submission: Submission, spec: JobSpec, result: GateResult, head: RayHead, registry: Registry
) -> Submission:
    """The submission, queued if its room now belongs to a job before it in the queue.

    Raises RefusedError if the job may not wait: its wait_for_resources is 0.
    """
    if submission.queue_reason:
        return submission
    job = submission.job
    now, plan = time.time(), job.plan
    waiting = WaitingJob(
        job.submission_id, Demand.of(plan), plan.priority, now, now, plan.queue_patience, limits=submission.limits
    )
    problem = find_turn(read_queue(registry.path), waiting, result.room, head.jobs(), now).problem
    if problem and not spec.wait_for_resources:
        raise RefusedError([no_room_finding(problem)])
    return replace(submission, queue_reason=problem)


def existing_job(archive: Archive, request: JobRequest, head: RayHead, services: Services) -> Effect:
    """The job that already has the id, if it was submitted with the same JobSpec. Raises RefusedError otherwise."""
    if not archive.has_status():
        try:
            # Another submission may have reserved the archive a moment ago, and fills it while it has the lock.
            with admission_lock(services.registry.path):
                pass
        except BusyError as error:
            raise OperationError(f"{error}. Nothing was changed.") from error
    job = read_registered(archive.submission_id, services)
    if job is None:
        problem = f"{archive.submission_id!r} is taken by {archive.path}, which this cluster has not submitted"
        remedy = "choose another id, or leave it out; or find out who made that directory, and move it away"
        raise RefusedError([Finding("submission_id", problem, remedy, key="submission_id")])
    if not same_spec(job.jobspec, request.author_jobspec):
        problem = f"{archive.submission_id!r} is taken by another JobSpec, see {archive.path}/config/job_spec.json"
        remedy = "choose another id, or leave it out; archives are never reused"
        raise RefusedError([Finding("submission_id", problem, remedy, key="submission_id")])
    try:
        return unchanged_effect(archive, head, services)
    except UnreadableError as error:
        raise OperationError(
            f"{archive.submission_id} was submitted before, but {error}. Choose another id."
        ) from error


def unchanged_effect(archive: Archive, head: RayHead, services: Services) -> Effect:
    """The effect of submitting a job again that already exists. Raises UnreadableError."""
    existing = {
        "submission_id": archive.submission_id,
        "archive": str(archive.path),
        "state": describe(archive, head, tail=0).state,
        "overrides": list((archive.plan() or Plan()).overrides),
    }
    return Effect(False, existing)


def read_registered(submission_id: str, services: Services) -> RegisteredJob | None:
    """The entry of a job in the registry, if there is one. Raises OperationError if it is unreadable."""
    try:
        return services.registry.read(submission_id)
    except UnreadableError as error:
        raise OperationError(f"{error}. Nothing was changed; choose another id.") from error


def same_spec(registered: Mapping[str, Any], jobspec: Mapping[str, Any]) -> bool:
    return bool(registered == json.loads(json.dumps(jobspec)))
