# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of one job: from its archive, and from the head if it answers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from ..launcher import attempts, checkpoints, ending, failures
from ..launcher.archive import Archive
from ..launcher.failures import Failure
from ..launcher.job_warnings import JobWarning, WarningKind
from ..launcher.log_scan import Phase
from ..launcher.ray_api import RayApiError, RayHead
from ..launcher.reading import UnreadableError
from ..launcher.schema import seconds_of
from ..launcher.status import ENDED, JobState, Status, ray_id
from ..text import duration
from .info import UNKNOWN, UNREADABLE, Heartbeat, JobInfo, Progress, RayRecord, failure_from
from .logs import BEGINNING, LogPart, log_since, log_tail
from .progress import progress, time_left, total_steps

POLL_SECONDS = 0.5
# The steward waits up to 120 s for the final evidence.
CLOSING_SECONDS = 150
# A submission to Ray takes less than a second.
SUBMITTING_SECONDS = 60
# A launcher writes its heartbeat every 2 s.
ALIVE_SECONDS = 30
Value = TypeVar("Value")
# The states of a job with at least one attempt that has started.
STARTED = (JobState.RUNNING, JobState.ENDING, JobState.RETRYING)
# Ray keeps its jobs in the memory of the head.
LOST_MESSAGE = "the head does not know the job: it was restarted and has lost its jobs"


def merge_states(status: Status, record: RayRecord | None) -> tuple[str, str]:
    """The state of a job and its reason, from the archive and from Ray's own record.

    The archive decides how a job has ended, because the launcher knows best. Ray's record decides if the launcher
    was killed before it could write, and while the job waits for its driver to start.
    """
    state = str(status.state or UNKNOWN)
    if record is None or (status.state and status.state.ended):
        return state, status.reason
    if record.ended:
        return record.status, status.reason or record.message
    if status.state in STARTED:
        return state, status.reason
    if record.status == JobState.RUNNING:
        # Ray's message would be "Job is currently running."
        return record.status, status.reason
    return record.status, status.reason or record.message


def is_complete(status: Status, now: float) -> bool:
    """Whether the job has ended and its final evidence is in the archive, or is not expected any more."""
    if status.state not in ENDED:
        return False
    return bool(status.closed_at) or now - (status.ended_at or 0) > CLOSING_SECONDS


def is_overdue(status: Status, heartbeat: Heartbeat, now: float) -> bool:
    """Whether the head has to know the job. It does not know it yet for a moment after the archive was created."""
    if not status.updated_at or status.state == JobState.QUEUED:
        return False
    if status.state in STARTED:
        # A shared root may also hold jobs of another cluster, which this head has never known.
        return now - (heartbeat.time or 0) > ALIVE_SECONDS
    return now - seconds_of(status.updated_at) > SUBMITTING_SECONDS


def describe(archive: Archive, head: RayHead | None, tail: int, position: str | None = None) -> JobInfo:
    """The status of one job.

    tail: how many of the last lines of the log to include.
    position: include the lines of the log after this position instead, see log_since.
    """
    record, problem = None, ""
    try:
        identifier = ray_id(archive.submission_id, attempts.current(archive))
    except UnreadableError:
        identifier = archive.submission_id
    if head:
        try:
            answer = head.job(identifier)
            record = RayRecord.from_json(answer) if answer else None
        except RayApiError as error:
            problem = str(error)
    return job_info(archive, record, bool(head) and not problem, tail, position, problem)


def unreadable_job(archive: Archive, error: UnreadableError, problem: str = "") -> JobInfo:
    """A job whose status cannot be read. Nothing more is expected of it."""
    return JobInfo(
        archive.submission_id,
        UNREADABLE,
        ended=True,
        reason=f"its archive is unreadable: {error}",
        submitted_at=archive.created_at(),
        archive=str(archive.path),
        problem=problem,
        unreadable=(str(error),),
    )


class Parts:
    """Reads the parts of an archive: one that is unreadable must not hide the others."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def read(self, part: Callable[[], Value], default: Value) -> Value:
        try:
            return part()
        except FileNotFoundError:
            return default
        except (OSError, UnreadableError) as error:
            self.problems.append(str(error))
            return default


def job_info(
    archive: Archive,
    record: RayRecord | None,
    answered: bool,
    tail: int = 0,
    position: str | None = None,
    problem: str = "",
) -> JobInfo:
    """The status of one job from its archive and from Ray's record of its current attempt, if there is one.

    answered: whether a head was asked for the record and answered.
    """
    try:
        status = archive.read_status()
    except UnreadableError as error:
        return unreadable_job(archive, error, problem)
    return readable_job(archive, status, record, answered, tail, position, problem)


def readable_job(
    archive: Archive,
    status: Status,
    record: RayRecord | None,
    answered: bool,
    tail: int,
    position: str | None,
    problem: str,
) -> JobInfo:
    parts, now = Parts(), time.time()
    heartbeat = Heartbeat.from_json(archive.read_json("heartbeat.json"))
    deciding = deciding_record(archive, record, answered, is_overdue(status, heartbeat, now))
    state, reason = merge_states(status, deciding)
    log = parts.read(lambda: read_log(archive, tail, position, state in ENDED), LogPart([], position or BEGINNING))
    running, done = state == JobState.RUNNING, parts.read(lambda: progress(archive, status, heartbeat), Progress())
    left = time_left(heartbeat, done.total_steps) if running else None
    return JobInfo(
        submission_id=archive.submission_id,
        state=state,
        ended=has_ended(status, state, deciding, now),
        reason=reason,
        failure=failure(status, state, reason, lost=record is None and deciding is not None),
        workload=status.workload,
        code_id=status.code_id,
        tags=status.tags,
        lineage=status.lineage,
        attempt=status.attempt,
        attempts=status.attempts,
        warnings=(*status.warnings, *time_warnings(left, now)),
        phase=phase(heartbeat, status, done) if running else "",
        submitted_at=archive.created_at(),
        started_at=status.started_at,
        # While another attempt follows, this is the end of an attempt, not of the job.
        ended_at=status.ended_at if state in ENDED else None,
        silent_for=max(0.0, now - heartbeat.time) if running and heartbeat.time is not None else None,
        time_left=left,
        driver_host=str(status.driver.get("host") or "") or None,
        driver_node_id=record.driver_node_id if record else None,
        driver_node_ip=record.driver_node_ip if record else None,
        progress=done,
        checkpoints=parts.read(lambda: checkpoint_steps(archive, status, complete=tail > 0 and state in ENDED), ()),
        resumable=last_checkpoint(archive) if tail and state in (JobState.FAILED, JobState.STOPPED) else None,
        archive=str(archive.path),
        log=tuple(log.lines),
        log_position=log.position,
        problem=problem,
        written_at=written_at(archive, status, heartbeat),
        unreadable=tuple(parts.problems),
        notice="" if state in ENDED else steward_notice(archive),
    )


def time_warnings(left: float | None, now: float) -> Iterator[JobWarning]:
    """Whether a job that needs so many seconds more is stopped before. Only the nodes of the cluster know when."""
    stop_at = ending.stop_at()
    if left is not None and stop_at is not None and now + left > stop_at:
        needs = f"at its pace, the job needs {duration(left)} more"
        yield JobWarning(WarningKind.TIME_LIMIT, f"{needs}, and jobs are stopped at {ending.moment(stop_at)}")


def has_ended(status: Status, state: str, deciding: RayRecord | None, now: float) -> bool:
    # Ray's record ends together with the launcher. Without it, the archive has to show that the job is complete.
    return state in ENDED and (is_complete(status, now) or bool(deciding and deciding.ended))


def written_at(archive: Archive, status: Status, heartbeat: Heartbeat) -> float | None:
    """When a process of the job last wrote to its archive."""
    steward = archive.steward_heartbeat()
    return max(heartbeat.time or 0, steward.time if steward else 0, seconds_of(status.updated_at)) or None


def phase(heartbeat: Heartbeat, status: Status, done: Progress) -> str:
    """What a running trainer does before its first step; "" if that is not known. Jobs can write to archives."""
    # A step can be newer than the heartbeat. Those of a later attempt may be of the attempts before it.
    has_begun = done.step > (status.resumed_from_step or 0) and status.attempt == 1
    return heartbeat.phase if heartbeat.phase in list(Phase) and not has_begun else ""


def checkpoint_steps(archive: Archive, status: Status, complete: bool) -> tuple[int, ...]:
    """The steps that have a checkpoint. Raises UnreadableError.

    complete: leave out those that cannot be used. Of a checkpoint that is no longer kept, verl leaves the directory.
    This opens every shard, so it is not for jobs that are followed.
    """
    if not complete:
        return tuple(archive.checkpoints())
    found = checkpoints.finished(archive.path / "checkpoints", status.workload)
    return tuple(sorted(checkpoint.step for checkpoint in found if not checkpoint.problem))


def last_checkpoint(archive: Archive) -> int | None:
    """The step of the last complete checkpoint, to resume from.

    None without one, if it cannot be read, or if it is that of the last step.
    """
    try:
        found = checkpoints.last_complete(archive.path / "checkpoints", archive.read_status().workload)
        total = total_steps(archive, Heartbeat.from_json(archive.read_json("heartbeat.json")))
    except UnreadableError:
        return None
    return found.step if found and not (total and found.step >= total) else None


def steward_notice(archive: Archive) -> str:
    """What the job's steward says at the moment, or ""."""
    heartbeat = archive.steward_heartbeat()
    return heartbeat.notice if heartbeat and heartbeat.is_recent else ""


def read_log(archive: Archive, tail: int, position: str | None, final: bool) -> LogPart:
    return log_tail(archive, tail) if position is None else log_since(archive, position, final=final)


def deciding_record(archive: Archive, record: RayRecord | None, answered: bool, overdue: bool) -> RayRecord | None:
    """Ray's record as far as it decides on the state of the job."""
    if archive.has_steward():
        # The steward sees an ended record too, and decides whether the job has ended or another attempt follows.
        return None if record and record.ended else record
    if answered and record is None and overdue:
        return RayRecord(archive.submission_id, JobState.FAILED, LOST_MESSAGE)
    return record


def failure(status: Status, state: str, reason: str, lost: bool) -> Failure | None:
    """The recorded failure, or what is known about a job whose launcher could not record one.

    lost: whether the head has lost the job.
    """
    if state == (status.state or ""):
        # In other states, a recorded failure is that of an earlier attempt.
        return failure_from(status.failure) if state in (*ENDED, JobState.RETRYING) else None
    if state != JobState.FAILED:
        return None
    if lost:
        kind, todo = "node_lost", failures.LOST_BY_HEAD
    elif status.state in STARTED:
        kind, todo = "killed", failures.LAUNCHER_KILLED
    else:
        kind, todo = "unknown", failures.NEVER_LAUNCHED
    return dataclasses.replace(failures.failure(kind, reason), todo=todo)


def wait_for_end(
    archive: Archive, head: RayHead | None, tail: int, timeout: float, position: str | None = None
) -> JobInfo:
    """Describe the job once it has ended, after `timeout` seconds, or once its log has more lines after `position`."""
    deadline = time.monotonic() + timeout
    while True:
        # The archive is usually enough. Ray is asked once, at the end.
        try:
            over = is_complete(archive.read_status(), time.time()) or has_more_log(archive, position)
        except UnreadableError:
            over = True
        if over or time.monotonic() >= deadline:
            return describe(archive, head, tail, position)
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def has_more_log(archive: Archive, position: str | None) -> bool:
    """Whether there are lines after a position, or none will follow: the log is complete before the evidence is."""
    if position is None:
        return False
    return archive.read_status().state in ENDED or bool(log_since(archive, position).lines)
