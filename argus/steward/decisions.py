# SPDX-License-Identifier: Apache-2.0
"""Decides what the steward of a job does next, as a pure function of what it has observed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from ..archive import failures
from ..archive.failures import Failure, FailureKind
from ..archive.plan import Plan
from ..archive.status import ENDED, WAITING, JobState, Status
from ..io.output import last_lines
from ..launcher import diagnosis, driver_log
from ..ray import departures
from ..ray.records import JobRecord

# A lost machine may come back only the next morning; a job that waits for it takes no resources.
DEFAULT_RESOURCE_WAIT_SECONDS = 86_400.0
# The wait for Ray to report a lost node. A trainer does not fail at once when one of its nodes becomes unreachable.
NODE_LOSS_DETECTION_SECONDS = departures.DEATH_NOTICE_SECONDS
# Ray lists a job within a second of its submission.
SUBMISSION_VISIBLE_SECONDS = 60.0
# If the API answers but no longer lists a job, the head was restarted without its state.
JOB_ABSENT_SECONDS = 30.0
# A launcher that ends normally writes its end before Ray notices.
END_RECORD_GRACE_SECONDS = 10.0
# A launcher with a heartbeat more recent than this is alive, even if Ray reports otherwise. It writes one every 2 s.
HEARTBEAT_FRESH_SECONDS = 6.0
# The launcher enforces the deadline itself; after this time it evidently cannot.
DEADLINE_GRACE_SECONDS = 180.0
# The time for the trainer to resume or fail by itself; verl usually waits forever for processes of a lost node.
NODE_LOSS_RECOVERY_SECONDS = 5.0
# The restarted head forgets pending actors and submitted drivers. After they have waited this long, the attempt is
# ended, and the next one starts.
HEAD_RESTART_GRACE_SECONDS = 40.0
# A driver that fits starts within seconds; if another job took its resources first, it stays PENDING.
DRIVER_PENDING_SECONDS = 600.0
# Ray's message for a job whose supervisor, the actor that runs the launcher, was killed.
SUPERVISOR_DIED = re.compile(r"\A(?:Unexpected error occurred|Job supervisor actor died): ")


class ActionKind(StrEnum):
    WAIT = "wait"
    # Submit the next attempt to Ray.
    SUBMIT = "submit"
    # End an attempt whose driver has not started, and record its end.
    CANCEL = "cancel"
    # Record the failure or success of an attempt whose launcher cannot, or the failure of a job that has no attempt.
    FAIL = "fail"
    SUCCEED = "succeed"
    # End an attempt whose driver runs; its launcher records the end.
    STOP_ATTEMPT = "stop_attempt"
    # Collect the last evidence of an attempt and sweep its nodes before the next attempt.
    CLEAN_UP = "clean_up"
    # Check a job whose dependency has succeeded, and put it into the queue.
    ADMIT = "admit"
    # Clean up after the last attempt, and close the archive.
    FINISH = "finish"


@dataclass(frozen=True)
class HeadReport:
    """What the head reports about a job. Texts are "" if there is nothing to report."""

    job: JobRecord | None = None  # Ray's record of the current attempt; None if Ray does not list it
    head_node_id: str = ""  # Ray's id of the head, on which no driver may run
    driver_alive: bool = True  # whether the node of the driver is alive; True before the driver has a node
    # The names of nodes that died with processes of the attempt, and what is known about their end.
    lost_node: str = ""
    lost_cause: str = ""
    capacity_problem: str = ""  # why the next attempt cannot start now
    transfer_queue_problem: str = ""  # what is wrong with the attempt's TransferQueue, verl's store for samples
    placement_problem: str = ""  # why no node could ever hold what the attempt waits for

    @property
    def node_loss_text(self) -> str:
        return f"node {self.lost_node} was lost{f' ({self.lost_cause})' * bool(self.lost_cause)}"


@dataclass(frozen=True)
class Observations:
    """What the steward has observed of a job. A time is in seconds since the epoch, None if it has not come."""

    now: float
    status: Status
    plan: Plan
    head: HeadReport | None  # None if the head did not answer
    absent_since: float | None = None  # since when Ray no longer lists an attempt that it listed before
    ended_since: float | None = None  # since when Ray reports that the attempt has ended
    heartbeat_seen_at: float | None = None  # when the launcher's last heartbeat was first seen
    # Since when an actor or driver has been waiting that the restarted head forgot to schedule.
    actor_unscheduled_since: float | None = None
    no_step_since: float | None = None  # since when an attempt with a lost node has done no step
    dependency_state: JobState | None = None  # the state of the job that has to succeed before this one starts
    unmet_start_condition: str = ""  # what the job waits for, other than resources, or ""
    ended_required_server: str = ""  # a server whose address the job needs, and that has ended, or ""
    stop_requested: bool = False  # whether a person or a playbook asked for the job's end
    stop_cause: Failure | None = None  # why the current attempt is being stopped from outside
    cleaned_up: bool = False  # whether the current attempt's last evidence was collected and its nodes were swept

    def elapsed(self, since: float | None) -> float:
        return 0.0 if since is None else self.now - since


@dataclass(frozen=True)
class Action:
    kind: ActionKind
    failure: Failure | None = None


WAIT = Action(ActionKind.WAIT)


def decide(seen: Observations) -> Action:
    """The next action for a job, by the state that its archive records and by what Ray reports."""
    state = seen.status.state
    if state in ENDED:
        return Action(ActionKind.FINISH)
    if state in WAITING:
        return decide_without_attempt(seen)
    if state is JobState.ENDING:
        return decide_ending(seen)
    if not seen.head:
        return WAIT
    if seen.head.job is None:
        return decide_absent_from_ray(seen)
    if seen.head.job.ended:
        return decide_unrecorded_end(seen, seen.head, seen.head.job)
    return decide_active_in_ray(seen, seen.head, seen.head.job)


def decide_without_attempt(seen: Observations) -> Action:
    """For a job that has no attempt at the moment."""
    status = seen.status
    if status.state is JobState.RETRYING and not seen.cleaned_up:
        return Action(ActionKind.CLEAN_UP)
    if seen.stop_requested:
        return stopped_action(seen, "stopped while it waited for resources")
    if is_over_deadline(seen, 0):
        return Action(ActionKind.FAIL, deadline_failure(seen))
    if seen.dependency_state is JobState.SUCCEEDED:
        return Action(ActionKind.ADMIT)
    if seen.dependency_state in ENDED:
        reason = f"{seen.plan.depends_on}, on which it depends, ended {seen.dependency_state}"
        return fail_action(FailureKind.DEPENDENCY, reason)
    if seen.ended_required_server:
        return fail_action(FailureKind.DEPENDENCY, f"{seen.ended_required_server}, whose address it needs, has ended")
    if seen.head and not seen.head.capacity_problem:
        return Action(ActionKind.SUBMIT)
    since = status.queued_at if status.state is JobState.QUEUED else status.ended_at
    limit = seen.plan.wait_for_resources or DEFAULT_RESOURCE_WAIT_SECONDS
    if seen.elapsed(since) > limit and not seen.unmet_start_condition:
        problem = seen.head.capacity_problem if seen.head else "the head did not answer"
        return fail_action(FailureKind.NO_RESOURCES, f"waited {limit:g} s: {problem}")
    return WAIT


def decide_ending(seen: Observations) -> Action:
    """For an attempt that has failed, perhaps because of a lost node that Ray has not noticed yet."""
    failure = seen.status.failure
    if seen.head and seen.head.lost_node:
        lost = failures.failure(FailureKind.NODE_LOST, seen.head.node_loss_text)
        return Action(ActionKind.FAIL, replace(lost, lines=failure.lines if failure else ()))
    # A stop was requested after the failure: there is no other attempt, so the cause is not waited for.
    is_wait_over = seen.stop_requested or seen.elapsed(seen.status.ended_at) >= NODE_LOSS_DETECTION_SECONDS
    return Action(ActionKind.FAIL, failure) if is_wait_over else WAIT


def decide_absent_from_ray(seen: Observations) -> Action:
    """For an attempt that Ray does not list: not yet, never, or no longer."""
    # An attempt of a server has started although it is SUBMITTED: its reason says that the server does not answer yet.
    has_not_started = seen.status.state is JobState.SUBMITTED and not seen.status.reason
    if seen.absent_since is None or has_not_started:
        if seen.elapsed(seen.status.attempt_submitted_at) < SUBMISSION_VISIBLE_SECONDS:
            return WAIT
        return fail_action(FailureKind.UNKNOWN, "Ray never received the job: its submission was interrupted")
    if seen.elapsed(seen.absent_since) < JOB_ABSENT_SECONDS:
        return WAIT
    return fail_action(FailureKind.HEAD_LOST, "the head was started again without its jobs")


def decide_unrecorded_end(seen: Observations, head: HeadReport, job: JobRecord) -> Action:
    """For an attempt that Ray lists as ended, and whose launcher has not recorded its end."""
    # On a lost node, no launcher can record its end any more.
    if head.driver_alive and seen.elapsed(seen.ended_since) < END_RECORD_GRACE_SECONDS:
        return WAIT
    # A head that was restarted may list an attempt as ended that is still training.
    is_fresh = seen.heartbeat_seen_at is not None and seen.elapsed(seen.heartbeat_seen_at) < HEARTBEAT_FRESH_SECONDS
    if is_fresh and not seen.stop_requested:
        return WAIT
    if job.status == JobState.SUCCEEDED:
        # Ray reports success only if the launcher exited with 0, which it does after its trainer succeeded.
        return Action(ActionKind.SUCCEED)
    if seen.stop_cause:
        return Action(ActionKind.FAIL, seen.stop_cause)
    message = job.message or "Ray gives no reason"
    if job.status == JobState.STOPPED:
        return fail_action(FailureKind.STOPPED, message)
    recorded = driver_log.parse_end_line(job.message)
    if recorded:
        return Action(ActionKind.FAIL, recorded)
    if not head.driver_alive:
        if seen.stop_requested:
            return fail_action(FailureKind.STOPPED, message)
        loss_text = f"{head.node_loss_text}, and the driver with it"
        reason = loss_text if head.lost_node else "the driver's node was lost"
        return Action(ActionKind.FAIL, failure_with_message(FailureKind.NODE_LOST, reason, message))
    failure = cause_of_unrecorded_end(message, job.driver_exit_code)
    # A trainer that failed before the stop request has failed; one that was only killed was stopped.
    may_be_stop = failure.kind in (FailureKind.KILLED, FailureKind.UNKNOWN)
    has_failed_by_itself = 0 < (job.driver_exit_code or 0) <= 128
    if seen.stop_requested and may_be_stop and not has_failed_by_itself:
        return fail_action(FailureKind.STOPPED, message)
    return Action(ActionKind.FAIL, failure)


def decide_active_in_ray(seen: Observations, head: HeadReport, job: JobRecord) -> Action:
    """For an attempt that Ray lists as PENDING or RUNNING."""
    stop_kind = ActionKind.CANCEL if job.pending else ActionKind.STOP_ATTEMPT
    if head.head_node_id and job.driver_node_id == head.head_node_id:
        failure = failures.failure(FailureKind.CONFIG, "the driver was started on the head")
        return Action(ActionKind.STOP_ATTEMPT, failure)
    if is_over_deadline(seen, 0 if job.pending else DEADLINE_GRACE_SECONDS):
        return Action(stop_kind, deadline_failure(seen))
    if head.transfer_queue_problem:
        failure = failures.failure(FailureKind.TRANSFER_QUEUE, head.transfer_queue_problem)
        return Action(ActionKind.STOP_ATTEMPT, failure)
    if head.lost_node and seen.elapsed(seen.no_step_since) > NODE_LOSS_RECOVERY_SECONDS:
        reason = f"{head.node_loss_text}, and the trainer neither resumed nor failed"
        return Action(ActionKind.STOP_ATTEMPT, failures.failure(FailureKind.NODE_LOST, reason))
    if seen.elapsed(seen.actor_unscheduled_since) > HEAD_RESTART_GRACE_SECONDS:
        reason = "the head ended while the attempt started its processes, and one of them never came"
        return Action(stop_kind, failures.failure(FailureKind.HEAD_LOST, reason))
    if head.placement_problem:
        failure = failures.failure(FailureKind.NO_RESOURCES, f"it cannot start: {head.placement_problem}")
        return Action(stop_kind, replace(failure, todo=failures.TOO_LARGE_REMEDY))
    if not job.pending:
        return WAIT
    if seen.stop_requested:
        return replace(stopped_action(seen, "stopped while it waited for its driver to start"), kind=stop_kind)
    waited = seen.elapsed(seen.status.attempt_submitted_at)
    if waited > DRIVER_PENDING_SECONDS:
        reason = f"the driver was not started within {waited:.0f} s: {job.message or 'Ray gives no reason'}"
        return Action(stop_kind, failures.failure(FailureKind.NO_RESOURCES, reason))
    return WAIT


def cause_of_unrecorded_end(message: str, exit_code: int | None) -> Failure:
    """Why a launcher ended on a node that is alive, read from Ray's message, which has the end of the log."""
    failure = diagnosis.classify(message, exit_code or 1)
    if failure.kind is FailureKind.UNKNOWN and SUPERVISOR_DIED.match(message):
        return failure_with_message(FailureKind.KILLED, "the launcher was killed", message)
    if failure.kind is FailureKind.UNKNOWN and exit_code is None:
        return replace(failure, reason=f"the launcher recorded no end: {message}")
    if failure.kind is FailureKind.UNKNOWN or not 0 <= (exit_code or 0) <= 128:  # a signal ended it
        # The exit code that Ray has is that of the launcher.
        return replace(failure, reason=failure.reason.replace("the trainer", "the launcher", 1))
    return failure


def failure_with_message(kind: FailureKind, reason: str, message: str) -> Failure:
    """A failure with the last lines of Ray's message, which may have a traceback."""
    return replace(failures.failure(kind, reason), lines=last_lines(message))


def fail_action(kind: FailureKind, reason: str) -> Action:
    return Action(ActionKind.FAIL, failures.failure(kind, reason))


def stopped_action(seen: Observations, reason: str) -> Action:
    """For a job that is stopped while no launcher runs; its stop cause may say why."""
    cause = seen.stop_cause if seen.stop_cause and seen.stop_cause.kind is FailureKind.STOPPED else None
    return Action(ActionKind.FAIL, cause or failures.failure(FailureKind.STOPPED, reason))


def is_over_deadline(seen: Observations, grace_seconds: float) -> bool:
    limit = seen.plan.deadline
    return limit is not None and limit > 0 and seen.elapsed(seen.status.submitted_at) > limit + grace_seconds


def deadline_failure(seen: Observations) -> Failure:
    return failures.failure(FailureKind.DEADLINE, f"the job exceeded its deadline of {seen.plan.deadline:g} s")
