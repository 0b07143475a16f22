# SPDX-License-Identifier: Apache-2.0
"""Stop a job, or all jobs of a cluster that is removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.status import ENDED, JobState, submission_id_of
from ..common.findings import WARNING, Finding
from ..common.shared_root import JOBS_DIR
from ..hooks import worker_secrets
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import RayApiError
from ..ray.records import JobRecord
from .listing import UnknownJobError, find_job, unknown_job
from .services import Effect, OperationError, Services
from .state import resumable

# Stop a job in whatever state it is, and wait until it has ended.

# The time for a stopped job to end. The launcher gives its trainer 10 s before it kills it.
STOP_TIMEOUT_SECONDS = 60
POLL_INTERVAL_SECONDS = 0.2


def stop(shared_root: str, submission_id: str, services: Services, check_mode: bool = False, who: str = "") -> Effect:
    """Stop a job. Raises OperationError if there is no such job, or if it cannot be stopped.

    who: ``user@controller``, for the archive.
    """
    jobs = Path(shared_root) / JOBS_DIR
    try:
        archive = find_job(jobs, submission_id, harms=True)
    except UnknownJobError as error:
        raise OperationError(str(error)) from error
    before, damaged = state_of(archive)
    if before is None and not damaged:
        raise OperationError(unknown_job(jobs, submission_id))
    if before and before.ended:
        return Effect(False, stop_result(archive, before, resumable(archive)))
    if check_mode:
        return Effect(True, {**stop_result(archive, JobState.STOPPED, None), "diff": diff(before, JobState.STOPPED)})
    try:
        is_lost = request_stop(archive, services, who)
    except Exception as error:
        raise OperationError(
            f"{submission_id} could not be stopped: {error}. Is the cluster up? See cluster_status.yml."
        ) from error
    # It may also have ended by itself at the same moment.
    state = wait_for_end(archive, services, is_lost)
    return Effect(True, {**stop_result(archive, state, resumable(archive)), "diff": diff(before, state)})


def stop_result(archive: Archive, state: JobState, checkpoint: int | None) -> dict[str, Any]:
    """checkpoint: the step of its last complete one."""
    ids = {"submission_id": archive.submission_id, "archive": str(archive.path)}
    return {**ids, "state": str(state), "checkpoint": checkpoint}


def diff(before: JobState | None, after: JobState) -> dict[str, str]:
    return {"before": f"{before or 'unknown'}\n", "after": f"{after}\n"}


def state_of(archive: Archive) -> tuple[JobState | None, str]:
    try:
        return archive.read_status().state, ""
    except UnreadableError as error:
        return None, str(error)


def request_stop(archive: Archive, services: Services, who: str = "") -> bool:
    """Let the steward or the launcher end the job; whether it may have neither, as a job of a head that is gone."""
    archive.ask_to_stop(who)
    damaged = state_of(archive)[1]
    # The address in the plan is not used, because a job can change it.
    head, runs = services.head(services.address), False
    for record in map(JobRecord.from_api, head.jobs()):
        if submission_id_of(record.submission_id) != archive.submission_id:
            continue
        runs = runs or record.status == JobState.RUNNING
        if record.status == JobState.RUNNING:
            services.client(services.address).stop_job(record.submission_id)
        elif record.pending:
            services.cancel_pending(record.submission_id)
    if damaged:
        archive.set_status(JobState.STOPPED, reason=f"stopped; its status was lost: {damaged}")
    return not damaged and not runs and not services.registry.read(archive.submission_id)


def wait_for_end(archive: Archive, services: Services, is_lost: bool) -> JobState:
    """The final state of the job. Raises OperationError if it has none in time.

    is_lost: whether nothing but the steward of another head, which is silent soon if it is gone, may end it.
    """
    deadline = services.clock.monotonic() + STOP_TIMEOUT_SECONDS
    while True:
        state = archive.state()
        if state and state.ended:
            return state
        if is_lost and not archive.has_steward():
            attempts.record_unattended_stop(archive, "stopped while it had no steward")
            attempts.close_if_ended(archive, JobState.STOPPED)
            continue
        if services.clock.monotonic() > deadline:
            problem = f"is still running {STOP_TIMEOUT_SECONDS} s after the stop request."
            raise OperationError(f"{archive.submission_id} {problem}")
        services.clock.sleep(POLL_INTERVAL_SECONDS)


# The jobs of a cluster that is removed: they are ended, their archives closed, their secrets removed.

REMOVAL_REASON = "the cluster was removed"
# The time for all stewards together to end their jobs and to close the archives.
END_TIMEOUT_SECONDS = 60.0


def removal_effect(closed: Sequence[str], findings: Sequence[Finding] = ()) -> Effect:
    """The jobs whose archives were closed, or would be in check mode, and findings on the others."""
    return Effect(bool(closed), {"closed": list(closed)}, tuple(findings))


def is_open(archive: Archive) -> bool:
    try:
        return archive.exists() and not archive.read_status().closed_at
    except UnreadableError:
        return True


def end_jobs(jobs: Path, registered: Sequence[str], services: Services, check_mode: bool = False) -> Effect:
    """On the head: let the stewards end the jobs of this cluster, and wait until they have closed the archives."""
    open_archives = [archive for archive in (Archive(jobs / name) for name in registered) if is_open(archive)]
    if check_mode:
        return removal_effect([archive.submission_id for archive in open_archives])
    waiting = []
    for archive in open_archives:
        try:
            ask_to_end(archive, services)
            waiting.append(archive)
        except RayApiError:
            # Nor does it answer for the others. Their archives are closed when the nodes are gone, as this one.
            break
        except Exception:  # noqa: S112 - one broken archive must not keep other jobs running
            continue
    deadline = services.clock.monotonic() + END_TIMEOUT_SECONDS
    while any(map(is_open, waiting)) and services.clock.monotonic() < deadline:
        services.clock.sleep(POLL_INTERVAL_SECONDS)
    return removal_effect([archive.submission_id for archive in open_archives if not is_open(archive)])


def ask_to_end(archive: Archive, services: Services) -> None:
    if archive.state() not in (*ENDED, JobState.ENDING):
        attempts.record_stop_cause(archive, failures.failure(FailureKind.STOPPED, REMOVAL_REASON))
    request_stop(archive, services, "cluster_down.yml")


def close_jobs(jobs: Path, registered: Sequence[str], check_mode: bool = False) -> Effect:
    """On the head's machine, when no node runs any more: close the archives that the stewards have left."""
    closed, findings = [], []
    for archive in (Archive(jobs / name) for name in registered):
        if check_mode:
            closed += [archive.submission_id] * is_open(archive)
            continue
        try:
            # A job without an archive may have secrets as well.
            worker_secrets.forget(archive.path)
            if is_open(archive):
                close_removed(archive)
                closed.append(archive.submission_id)
        except Exception as error:
            file = worker_secrets.secrets_path(archive.path)
            remedy = f"remove the file with its secrets: {file}" if file.exists() else "nothing; its job has ended"
            findings.append(Finding(archive.submission_id, f"its archive cannot be closed: {error}", remedy, WARNING))
    return removal_effect(closed, findings)


def close_removed(archive: Archive) -> None:
    """Record the end of a job that no process looks after any more."""
    # There is no further attempt.
    archive.ask_to_stop("cluster_down.yml")
    try:
        if archive.read_status().state not in ENDED:
            attempts.record_unattended_stop(archive, REMOVAL_REASON)
    except UnreadableError as error:
        archive.set_status(JobState.STOPPED, reason=f"{REMOVAL_REASON}; its status was lost: {error}")
    attempts.close_if_ended(archive, str(archive.state()))
