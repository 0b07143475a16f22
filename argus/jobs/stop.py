# SPDX-License-Identifier: GPL-3.0-or-later
"""Stop a job in whatever state it is, and wait until it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..archive.archive import Archive
from ..archive.status import JobState, submission_id_of
from ..common.shared_root import JOBS
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import JobRecord, RayHead
from .listing import UnknownJobError, find_job, unknown_job
from .services import Answer, OperationError, Services
from .state import resumable

# How long a stopped job may take to end. The launcher gives its trainer 10 s before it kills it.
STOP_SECONDS = 60
POLL_SECONDS = 0.2


def stop(shared_root: str, submission_id: str, services: Services, check_mode: bool = False, who: str = "") -> Answer:
    """Stop a job. Raises OperationError if there is no such job, or if it cannot be stopped.

    who: ``user@controller``, for the archive.
    """
    jobs = Path(shared_root) / JOBS
    try:
        archive = find_job(jobs, submission_id, harms=True)
    except UnknownJobError as error:
        raise OperationError(str(error)) from error
    before, damaged = state_of(archive)
    if before is None and not damaged:
        raise OperationError(unknown_job(jobs, submission_id))
    if before and before.ended:
        return Answer(False, stopped(archive, before, resumable(archive)))
    if check_mode:
        return Answer(True, {**stopped(archive, JobState.STOPPED, None), "diff": diff(before, JobState.STOPPED)})
    try:
        is_lost = request_stop(archive, services, who)
    except Exception as error:
        raise OperationError(
            f"{submission_id} could not be stopped: {error}. Is the cluster up? See cluster_status.yml."
        ) from error
    # It may also have ended by itself at the same moment.
    state = wait_for_end(archive, services, is_lost)
    return Answer(True, {**stopped(archive, state, resumable(archive)), "diff": diff(before, state)})


def stopped(archive: Archive, state: JobState, checkpoint: int | None) -> dict[str, Any]:
    """checkpoint: the step of its last complete one."""
    own = {"submission_id": archive.submission_id, "archive": str(archive.path)}
    return {**own, "state": str(state), "checkpoint": checkpoint}


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
    # Not the address of its plan, which a job can change.
    head, runs = services.head(services.address), False
    for record in attempts_of(archive, head):
        runs = runs or record.status == JobState.RUNNING
        if record.status == JobState.RUNNING:
            services.client(services.address).stop_job(record.submission_id)
        elif record.pending:
            services.cancel_pending(record.submission_id)
    if damaged:
        archive.set_status(JobState.STOPPED, reason=f"stopped; its status was lost: {damaged}")
    return not damaged and not runs and not services.registry.read(archive.submission_id)


def attempts_of(archive: Archive, head: RayHead) -> list[JobRecord]:
    records = map(JobRecord.from_api, head.jobs())
    return [one for one in records if submission_id_of(one.submission_id) == archive.submission_id]


def wait_for_end(archive: Archive, services: Services, is_lost: bool) -> JobState:
    """The final state of the job. Raises OperationError if it has none in time.

    is_lost: whether nothing but the steward of another head, which is silent soon if it is gone, may end it.
    """
    deadline = services.clock.monotonic() + STOP_SECONDS
    while True:
        state = archive.state()
        if state and state.ended:
            return state
        if is_lost and not archive.has_steward():
            attempts.record_stop(archive, "stopped while it had no steward")
            attempts.close(archive, JobState.STOPPED)
            continue
        if services.clock.monotonic() > deadline:
            raise OperationError(f"{archive.submission_id} is still running {STOP_SECONDS} s after the stop request.")
        services.clock.sleep(POLL_SECONDS)
