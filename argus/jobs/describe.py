# SPDX-License-Identifier: Apache-2.0
"""Describes one job as a JobInfo, from its archive and from the head's record of it.

`describe` asks the head itself; `describe_from_record` takes a record, for lists, which ask the head once for all jobs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from ..archive import checkpoints
from ..archive.archive import Archive, Heartbeat, StewardHeartbeat
from ..archive.job_warnings import JobWarning, WarningKind
from ..archive.plan import COMMAND
from ..archive.status import ENDED, WAITING, JobState, Phase, Status, ray_id
from ..common.text import duration
from ..evidence import hardware
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray import departures
from ..ray.api import ANSWERS_SLOWLY, RayApiError, RayHead
from ..ray.records import JobRecord
from .info import UNKNOWN, UNREADABLE, JobInfo, Progress
from .logs import BEGINNING, LogPart, log_since, log_tail
from .progress import read_progress, time_left

Value = TypeVar("Value")
# How long an ended job without final evidence counts as incomplete. The steward itself waits for it up to 120 s.
CLOSE_TIMEOUT_SECONDS = 150
# A submission to Ray takes less than a second.
SUBMISSION_TIMEOUT_SECONDS = 60
# A launcher writes its heartbeat every 2 s.
HEARTBEAT_FRESH_SECONDS = 30
# The states of a job with at least one attempt that has started.
STARTED_STATES = (JobState.RUNNING, JobState.ENDING, JobState.RETRYING)
# The steward is a process of the head, so it comes back with the head.
NO_STEWARD = "waits for the steward of its cluster, which has written nothing for a minute"


def merge_states(status: Status, record: JobRecord | None) -> tuple[str, str]:
    """The state of a job and the reason for it, from the archive and from Ray's own record.

    The archive tells how a job has ended, as its launcher knows best, and its steward decides whether another attempt
    follows. Ray's record counts while the job waits for its driver to start.
    """
    if record is None or record.ended or status.state in (*STARTED_STATES, *ENDED):
        return str(status.state or UNKNOWN), status.reason
    if record.status == JobState.RUNNING:
        # Ray's message would be "Job is currently running." The reason is that a server does not answer yet.
        return str(status.state) if status.reason else record.status, status.reason
    return record.status, status.reason or record.message


def is_complete(status: Status, now: float) -> bool:
    """Whether the job has ended and its final evidence is in the archive, or is not expected any more."""
    if status.state not in ENDED:
        return False
    return bool(status.closed_at) or now - (status.ended_at or 0) > CLOSE_TIMEOUT_SECONDS


def is_unattended(status: Status, steward: StewardHeartbeat | None, heartbeat: Heartbeat, now: float) -> bool:
    """Whether neither a steward nor a launcher looks after a job that has not ended."""
    # The steward only looks after a job that has its heartbeat file.
    if status.state in ENDED or steward is None or steward.is_recent:
        return False
    # A launcher works without a steward. While a job is being submitted, it has neither for a moment.
    launcher_time = (heartbeat.time if status.state in STARTED_STATES else None) or 0
    return (
        now - launcher_time > HEARTBEAT_FRESH_SECONDS and now - status_written_at(status) > SUBMISSION_TIMEOUT_SECONDS
    )


def describe(archive: Archive, head: RayHead | None, tail: int | None, position: str | None = None) -> JobInfo:
    """Describe one job.

    head: None reads the archive alone.
    tail: how many of the last lines of the log to include; None for as many as log_tail reads.
    position: include the lines of the log after this position instead, see log_since.
    """
    record, problem = None, ""
    try:
        identifier = ray_id(archive.submission_id, attempts.current_attempt(archive))
    except UnreadableError:
        identifier = archive.submission_id
    if head:
        try:
            answer = head.job(identifier)
            record = JobRecord.from_api(answer) if answer else None
        except RayApiError as error:
            problem = str(error)
    return describe_from_record(archive, record, bool(head) and not problem, tail, position, problem)


def unreadable_job(archive: Archive, error: UnreadableError, problem: str = "") -> JobInfo:
    """Describe a job whose status cannot be read. There is no end to wait for."""
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


def read_part(read: Callable[[], Value], default: Value, problems: list[str]) -> Value:
    """Read a part of an archive; if it is unreadable, add to `problems` and return the default.

    One unreadable part must not hide the others.
    """
    try:
        return read()
    except FileNotFoundError:
        return default
    except (OSError, UnreadableError) as error:
        problems.append(str(error))
        return default


def describe_from_record(
    archive: Archive,
    record: JobRecord | None,
    head_answered: bool,
    tail: int | None = 0,
    position: str | None = None,
    problem: str = "",
) -> JobInfo:
    """Describe one job from its archive and from Ray's record of its current attempt, if there is one.

    head_answered: whether a head was asked for the record and answered.
    problem: why the head was asked in vain, or "".
    """
    try:
        status = archive.read_status()
    except UnreadableError as error:
        return unreadable_job(archive, error, problem)
    problems: list[str] = []
    now = time.time()
    heartbeat = archive.heartbeat()
    state, reason = merge_states(status, record)
    has_ended = state in ENDED
    steward = archive.steward_heartbeat()
    unattended = is_unattended(status, steward, heartbeat, now)
    notice = steward.notice if steward and steward.is_recent and not has_ended else ""
    notice = no_steward_notice(record, head_answered) if unattended else notice
    if notice and not unattended and state == JobState.QUEUED:
        # The steward knows what the job waits for now; the submission wrote the reason.
        reason = ""
    no_log = LogPart([], position or BEGINNING)
    log = read_part(lambda: read_log(archive, tail, position, has_ended), no_log, problems)
    progress = read_part(lambda: read_progress(archive, status, heartbeat), Progress(), problems)
    is_running = state == JobState.RUNNING
    seconds_left = time_left(heartbeat, progress.total_steps, now) if is_running else None
    return JobInfo(
        submission_id=archive.submission_id,
        state=state,
        ended=is_complete(status, now),
        reason=reason,
        failure=status.failure if status.state in (*ENDED, JobState.RETRYING) else None,
        workload=status.workload,
        code_id=status.code_id,
        tags=status.tags,
        lineage=status.lineage,
        attempt=status.attempt,
        attempts=status.attempts,
        warnings=(*status.warnings, *time_limit_warnings(seconds_left, now)),
        phase=current_phase(heartbeat, status, progress) if is_running else "",
        phases=status.phases,
        submitted_at=archive.created_at(),
        submitted_by=status.submitted_by,
        started_at=status.started_at,
        # While another attempt follows, this is the end of an attempt, not of the job.
        ended_at=status.ended_at if has_ended else None,
        silent_for=max(0.0, now - heartbeat.time) if is_running and heartbeat.time is not None else None,
        time_left=seconds_left,
        gpu_percent=read_part(lambda: hardware.mean_gpu_percent(archive), None, problems) if is_running else None,
        address=status.address if is_running else "",
        driver_host=str(status.driver.get("host") or "") or None,
        driver_node_id=(record.driver_node_id or None) if record else None,
        driver_node_ip=(record.driver_node_ip or None) if record else None,
        progress=progress,
        archive=str(archive.path),
        log=tuple(log.lines),
        log_position=log.position,
        problem=problem,
        head_away_for=head_away_seconds(problem, steward, now),
        written_at=archive_written_at(status, steward, heartbeat),
        unreadable=tuple(problems),
        notice=notice,
        unattended=unattended,
        place=steward.place if state in WAITING and steward and not unattended else None,
    )


def time_limit_warnings(seconds_left: float | None, now: float) -> Iterator[JobWarning]:
    """A warning if the cluster's machines are taken away before the job ends. Only its nodes know when."""
    stop_at = departures.read_stop_at()
    if seconds_left is not None and stop_at is not None and now + seconds_left > stop_at:
        needs = f"at its pace, the job needs {duration(seconds_left)} more"
        yield JobWarning(WarningKind.TIME_LIMIT, f"{needs}, and jobs are stopped at {departures.moment_text(stop_at)}")


def head_away_seconds(problem: str, steward: StewardHeartbeat | None, now: float) -> float | None:
    """The time since the head has been away, which is when its steward wrote the last heartbeat; None if it is not."""
    is_away = problem and ANSWERS_SLOWLY not in problem
    return max(0.0, now - steward.time) if is_away and steward and steward.time else None


def archive_written_at(status: Status, steward: StewardHeartbeat | None, heartbeat: Heartbeat) -> float | None:
    return max(heartbeat.time or 0, steward.time if steward else 0, status_written_at(status)) or None


def status_written_at(status: Status) -> float:
    with contextlib.suppress(ValueError, OverflowError):
        return datetime.fromisoformat(status.updated_at).timestamp()
    return 0.0


def current_phase(heartbeat: Heartbeat, status: Status, progress: Progress) -> str:
    """The phase of a running trainer before its first step; "" if unknown, or if a job has written another text."""
    # A command may run an inference server, whose engine logs the same lines as a trainer's; no step follows.
    if status.workload == COMMAND:
        return ""
    # Steps can be newer than the heartbeat. In a later attempt, they may come from earlier attempts.
    has_first_step = progress.step > (status.resumed_from_step or 0) and status.attempt == 1
    return heartbeat.phase if heartbeat.phase in list(Phase) and not has_first_step else ""


def with_checkpoints(archive: Archive, job: JobInfo) -> JobInfo:
    """The job with the steps of its complete checkpoints and models. This opens every shard, so it is not for lists.

    verl leaves the directory of a checkpoint that it has deleted: such a checkpoint is not complete.
    """
    if job.workload not in checkpoints.SHARD_DIRECTORIES:
        return job
    problems: list[str] = []
    saved: list[checkpoints.Checkpoint] = read_part(
        lambda: list(checkpoints.saved_checkpoints(archive.path / "checkpoints", job.workload)), [], problems
    )
    complete_steps = tuple(sorted(checkpoint.step for checkpoint in saved if not checkpoint.problem))
    ended_early = job.state in (JobState.FAILED, JobState.STOPPED)
    steps_remain = complete_steps and not (job.progress.total_steps and complete_steps[-1] >= job.progress.total_steps)
    return replace(
        job,
        checkpoints=complete_steps,
        models=tuple(sorted(checkpoint.step for checkpoint in saved if checkpoint.is_model)),
        resumable=complete_steps[-1] if ended_early and steps_remain else None,
        unreadable=(*job.unreadable, *problems),
    )


def resumable_step(archive: Archive) -> int | None:
    """The step of the last complete checkpoint of a job that has failed or was stopped; None without one."""
    return with_checkpoints(archive, describe(archive, None, tail=0)).resumable


def no_steward_notice(record: JobRecord | None, head_answered: bool) -> str:
    """The notice of an unattended job. record: Ray's, if the head answered and has one."""
    if not head_answered:
        return f"{NO_STEWARD}: if the head is gone, cluster_up.yml starts it again"
    state = f"lists its attempt as {record.status}" if record else "does not know its attempt: the head was restarted"
    return f"{NO_STEWARD}; Ray {state}"


def read_log(archive: Archive, tail: int | None, position: str | None, final: bool) -> LogPart:
    return log_tail(archive, tail) if position is None else log_since(archive, position, is_complete=final)
