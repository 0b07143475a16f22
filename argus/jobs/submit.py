# SPDX-License-Identifier: Apache-2.0
"""Submit a job: check its JobSpec, then create it; and admit a job that has waited for another one."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, TypeVar

from ..archive import failures
from ..archive.archive import MAX_REQUESTER_CHARS, STEWARD_HEARTBEAT, Archive
from ..archive.failures import FailureKind
from ..archive.plan import Plan
from ..archive.program import PROGRAM_RECORD, VERSION, Program
from ..archive.status import ENDED, JobState
from ..common.findings import ERROR, Finding, about, errors
from ..common.shared_root import archive_path
from ..common.text import nearest, printable_line
from ..gate.gate import GateResult, examine, no_room_finding
from ..hooks import worker_secrets
from ..io import writing
from ..io.hydra import override_key
from ..io.reading import UnreadableError
from ..jobspec.plan import WANDB_DIRECTORY, Job
from ..jobspec.spec import JobSpec, new_submission_id
from ..queue import attempts
from ..queue.demand import Demand, Limit
from ..queue.queue import WaitingJob, find_turn, read_queue
from ..ray.admission import NO_STEWARD, admission_lock, steward_runs
from ..ray.api import HeadTimeoutError, RayApiError, RayHead
from .job_files import JobFiles, change_findings, job_files
from .registry import RegisteredJob, Registry
from .request import JobRequest, time_limit_findings
from .services import Effect, OperationError, RefusedError, Services
from .state import describe

# Submit a job: check its JobSpec, then create it. The same JobSpec under the same id is submitted once.

# A reserved archive is registered at once, and then gets its JobSpec and its status.
REGISTER_TIMEOUT_SECONDS = 2
STATUS_TIMEOUT_SECONDS = 5
POLL_INTERVAL_SECONDS = 0.1
# Keys whose values may be results of the job in depends_on.
DEPENDENT_KEYS = ("model", "dataset", "resume_from")
# Names of the logger W&B; "tracking" is an old one.
WANDB = re.compile(r"\b(wandb|tracking)\b")

Value = TypeVar("Value")
Gate = Callable[[JobSpec, str, RayHead], GateResult]


@dataclass(frozen=True)
class Submission:
    """The parts of a job that are archived and submitted."""

    # The JobSpec as its author wrote it.
    jobspec: Mapping[str, Any]
    job: Job
    # The composed configuration, as YAML.
    resolved: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    lineage: Mapping[str, str] = field(default_factory=dict)
    # Why the cluster has no capacity for the job; its steward then submits it later.
    queue_reason: str = ""
    notify: str = field(default="", repr=False)
    limits: tuple[Limit, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    submitted_by: str = ""
    files: JobFiles = field(default_factory=JobFiles)


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
    files = job_files(spec, result.files, result.job.runtime_env["env_vars"]["PYTHONPATH"])
    submission = submission_of(request, spec, result.job, result, files)
    if beyond := [problem for limit in submission.limits if (problem := limit.problem(Demand.of(result.job.plan), ()))]:
        raise RefusedError([Finding("job_limits", problem, "ask for less, or raise the limit") for problem in beyond])
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
    """Raises OperationError without a steward: nothing would look after the job."""
    try:
        runs = steward_runs(services.registry.path)
    except OSError as error:
        raise OperationError(f"{error.filename} cannot be opened: {error.strerror}") from error
    if not runs:
        raise OperationError(NO_STEWARD)


def admit(
    spec: JobSpec,
    earlier: Sequence[Finding],
    submission_id: str,
    head: RayHead,
    services: Services,
    gate: Gate,
    unknown: Collection[str] = (),
) -> GateResult:
    """The result of the gate, if it admits the job.

    earlier: findings from before. unknown: keys whose values may still become right.
    """
    try:
        result = gate(spec, submission_id, head)
    except RayApiError as error:
        slow = isinstance(error, HeadTimeoutError)
        remedy = "Is its machine overloaded?" if slow else "Is the cluster up?"
        raise OperationError(f"{error}. {remedy} See cluster_status.yml.") from error
    findings = [*earlier, *result.findings, *time_limit_findings(spec, services.clock.time())]
    findings = [finding for finding in findings if finding.severity != ERROR or finding.key not in unknown]
    if errors(findings):
        raise RefusedError(findings)
    return replace(result, findings=tuple(findings))


def dependency_state(spec: JobSpec) -> JobState | None:
    return Archive(archive_path(spec.shared_root, spec.depends_on or "")).state()


def dependency_findings(spec: JobSpec, registry: Registry) -> list[Finding]:
    """Why a job can never start after the one that it depends on."""
    if spec.depends_on is None:
        return []
    if spec.depends_on not in registry.ids():
        problem = f"{spec.depends_on} is not a job of this cluster"
        return [about("depends_on", problem, nearest(spec.depends_on, registry.ids()) or "status.yml lists the jobs")]
    state = dependency_state(spec)
    if state in (JobState.FAILED, JobState.STOPPED):
        return [about("depends_on", f"{spec.depends_on} ended {state}", "submit that one again, and name its new id")]
    return []


def server_findings(spec: JobSpec, registry: Registry) -> Iterator[Finding]:
    """Why a job can never get the address of a server."""
    for name, server in spec.env_from.items():
        key, archive = f"env_from.{name}", Archive(archive_path(spec.shared_root, server))
        plan = archive.plan() if server in registry.ids() else None
        if plan is None or not plan.ready_port:
            remedy = nearest(server, registry.ids()) or "name a command with ready, see `argus status`"
            yield about(key, f"{server} is not a job of this cluster with ready", remedy)
        elif (state := archive.state()) in ENDED:
            yield about(key, f"{server} ended {state}", "submit that one again, and name its new id")


def submission_of(request: JobRequest, spec: JobSpec, job: Job, result: GateResult, files: JobFiles) -> Submission:
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


def recheck_room(
    submission: Submission, spec: JobSpec, result: GateResult, head: RayHead, registry: Registry
) -> Submission:
    """The submission, queued if a job before it takes its place. Raises RefusedError."""
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
    """The job that has the id, if it was submitted with the same JobSpec. Raises RefusedError otherwise."""
    # Another submission may have reserved the archive only a moment ago.
    job = wait_for(lambda: read_registered(archive.submission_id, services), REGISTER_TIMEOUT_SECONDS, services.clock)
    if job is None:
        problem = f"{archive.submission_id!r} is taken by {archive.path}, which this cluster has not submitted"
        remedy = "choose another id, or leave it out; or find out who made that directory, and move it away"
        raise RefusedError([Finding("submission_id", problem, remedy, key="submission_id")])
    if not same_spec(job.jobspec, request.author_jobspec):
        problem = f"{archive.submission_id!r} is taken by another JobSpec, see {archive.path}/config/job_spec.json"
        remedy = "choose another id, or leave it out; archives are never reused"
        raise RefusedError([Finding("submission_id", problem, remedy, key="submission_id")])
    try:
        return registered_job(archive, head, services)
    except UnreadableError as error:
        raise OperationError(
            f"{archive.submission_id} was submitted before, but {error}. Choose another id."
        ) from error


def registered_job(archive: Archive, head: RayHead, services: Services) -> Effect:
    """A job that was submitted before. Raises UnreadableError."""
    wait_for(lambda: archive.read_status().state, STATUS_TIMEOUT_SECONDS, services.clock)
    existing = {
        "submission_id": archive.submission_id,
        "archive": str(archive.path),
        "state": describe(archive, head, tail=0).state,
        "overrides": list((archive.plan() or Plan()).overrides),
    }
    return Effect(False, existing)


def read_registered(submission_id: str, services: Services) -> RegisteredJob | None:
    try:
        return services.registry.read(submission_id)
    except UnreadableError as error:
        raise OperationError(f"{error}. Nothing was changed; choose another id.") from error


def wait_for(value: Callable[[], Value | None], seconds: float, clock: ModuleType) -> Value | None:
    deadline = clock.monotonic() + seconds
    while (result := value()) is None and clock.monotonic() < deadline:
        clock.sleep(POLL_INTERVAL_SECONDS)
    return result


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
    """The first status of the job: QUEUED without capacity, otherwise SUBMITTED."""
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


def register(archive: Archive, submission: Submission, registry: Registry) -> None:
    """Record that this cluster submits the job. From now on, its steward finds it if this process is interrupted."""
    # The steward of the cluster looks after a registered job as long as it has this file.
    archive.write_heartbeat(STEWARD_HEARTBEAT, time=0)
    shared_root = str(archive.path.parents[1])
    address = submission.job.plan.address
    entry = (archive.submission_id, time.time(), submission.jobspec, shared_root, address)
    registry.write(RegisteredJob(*entry, submission.notify, submission.limits, submission.defaults))


def create_job(archive: Archive, submission: Submission, client: Any, registry: Registry) -> JobState:
    """Reserve the archive, fill it and submit the job. Returns the state of the job. The caller holds admission_lock.

    Afterwards there is either a job, or an archive with the reason, which the steward closes. Raises FileExistsError if
    the id was taken in the meantime.
    """
    archive.reserve()
    is_registered = False
    try:
        register(archive, submission, registry)
        is_registered = True
        write_archive(archive, submission)
        # If this process is interrupted after it, the steward finds out whether Ray has the job.
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


def same_spec(registered: Mapping[str, Any], jobspec: Mapping[str, Any]) -> bool:
    """Whether a job was submitted with the same JobSpec; it is stored as JSON."""
    return bool(registered == json.loads(json.dumps(jobspec)))


# Admit a job that has waited for another one, which has succeeded: `depends_on` of its JobSpec.
#
# It was checked at its submission, apart from what the other job might still make. Now it is checked as a whole, and
# planned anew.


def admit_dependent(submission_id: str, services: Services, gate: Gate = examine) -> JobState:
    """Put the job into the queue, or record why it failed; returns its state.

    Raises OperationError if it cannot be checked now, and UnreadableError.
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
    files = job_files(spec, result.files, planned.runtime_env["env_vars"]["PYTHONPATH"])
    submission = submission_of(request, spec, planned, result, files)
    write_archive(archive, submission)
    details = {"code_id": planned.plan.code_id, "lineage": {**archive.read_status().lineage, **submission.lineage}}
    # From now on it waits for room.
    archive.set_status(JobState.QUEUED, **details, queued_at=time.time(), reason=result.capacity_problem)
    return JobState.QUEUED
