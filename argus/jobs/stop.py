# SPDX-License-Identifier: Apache-2.0
"""Stops one job, in whatever state it is, and waits until it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..archive.archive import Archive
from ..archive.status import JobState, submission_id_of
from ..common.shared_root import JOBS_DIR
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.records import JobRecord
from .describe import resumable_step
from .listing import UnknownJobError, find_job, unknown_job_text
from .services import Effect, OperationError, Services

# The time for a stopped job to end. The launcher gives its trainer 10 s before it kills it.
STOP_TIMEOUT_SECONDS = 60
POLL_INTERVAL_SECONDS = 0.2


def stop(shared_root: str, submission_id: str, services: Services, check_mode: bool = False, who: str = "") -> Effect:
    """Stop a job. Raises OperationError if there is no such job, or if it cannot be stopped.

    who: ``user@controller``, for the archive.
    """
    jobs_dir = Path(shared_root) / JOBS_DIR
    try:
        archive = find_job(jobs_dir, submission_id, harms=True)
    except UnknownJobError as error:
        raise OperationError(str(error)) from error
    before, problem = read_state(archive)
    if before is None and not problem:
        raise OperationError(unknown_job_text(jobs_dir, submission_id))
    if before and before.ended:
        return Effect(changed=False, result=stop_result(archive, before, resumable_step(archive)))
    if check_mode:
        result = stop_result(archive, JobState.STOPPED, None)
        return Effect(True, {**result, "diff": state_diff(before, JobState.STOPPED)})
    try:
        may_be_orphaned = request_stop(archive, services, who)
    except Exception as error:
        raise OperationError(
            f"{submission_id} could not be stopped: {error}. Is the cluster up? See cluster_status.yml."
        ) from error
    # The job may also have ended by itself at the same moment.
    state = wait_for_end(archive, services, may_be_orphaned)
    result = stop_result(archive, state, resumable_step(archive))
    return Effect(True, {**result, "diff": state_diff(before, state)})


def stop_result(archive: Archive, state: JobState, checkpoint: int | None) -> dict[str, Any]:
    """The result of `argus stop`. checkpoint: the step of the last complete one; None if the job cannot be resumed."""
    ids = {"submission_id": archive.submission_id, "archive": str(archive.path)}
    return {**ids, "state": str(state), "checkpoint": checkpoint}


def state_diff(before: JobState | None, after: JobState) -> dict[str, str]:
    return {"before": f"{before or 'unknown'}\n", "after": f"{after}\n"}


def read_state(archive: Archive) -> tuple[JobState | None, str]:
    """The state and ""; None and why the status cannot be read; or None and "" if the archive has no status."""
    try:
        return archive.read_status().state, ""
    except UnreadableError as error:
        return None, str(error)


def request_stop(archive: Archive, services: Services, who: str = "") -> bool:
    """Ask the steward and the launcher of a job to end it. If its status is lost, record the end here.

    Returns may_be_orphaned: this head has neither for the job, because another head submitted it, and may be gone.
    """
    archive.ask_to_stop(who)
    _state, problem = read_state(archive)
    # Not the address in the plan, because a job can change it.
    head, is_running = services.head(services.address), False
    for record in map(JobRecord.from_api, head.jobs()):
        if submission_id_of(record.submission_id) != archive.submission_id:
            continue
        is_running = is_running or record.status == JobState.RUNNING
        if record.status == JobState.RUNNING:
            services.client(services.address).stop_job(record.submission_id)
        elif record.pending:
            services.cancel_pending(record.submission_id)
    if problem:
        archive.set_status(JobState.STOPPED, reason=f"stopped; its status was lost: {problem}")
    return not problem and not is_running and not services.registry.read(archive.submission_id)


def wait_for_end(archive: Archive, services: Services, may_be_orphaned: bool) -> JobState:
    """The final state of the job. Raises OperationError if it has none in time.

    may_be_orphaned: whether only the steward of another head can still end the job. If that steward writes no heartbeat
        any more, this process records the end.
    """
    deadline = services.clock.monotonic() + STOP_TIMEOUT_SECONDS
    while True:
        state = archive.state()
        if state and state.ended:
            return state
        if may_be_orphaned and not archive.has_steward():
            attempts.record_unattended_stop(archive, "stopped while it had no steward")
            attempts.close_if_ended(archive, JobState.STOPPED)
            continue
        if services.clock.monotonic() > deadline:
            problem = f"is still running {STOP_TIMEOUT_SECONDS} s after the stop request."
            raise OperationError(f"{archive.submission_id} {problem}")
        services.clock.sleep(POLL_INTERVAL_SECONDS)
