"""What the steward decides from what it observes."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from argus.archive import failures
from argus.archive.plan import Plan
from argus.archive.status import Status
from argus.io.schema import parse
from argus.launcher import driver_log
from argus.ray.records import JobRecord
from argus.steward.decisions import (
    DEADLINE_GRACE_SECONDS,
    DEFAULT_RESOURCE_WAIT_SECONDS,
    DRIVER_PENDING_SECONDS,
    END_RECORD_GRACE_SECONDS,
    HEARTBEAT_FRESH_SECONDS,
    JOB_ABSENT_SECONDS,
    NODE_LOSS_DETECTION_SECONDS,
    NODE_LOSS_RECOVERY_SECONDS,
    SUBMISSION_VISIBLE_SECONDS,
    Action,
    ActionKind,
    HeadReport,
    Observations,
    decide,
)

NOW = 10_000.0
RUNNING = JobRecord("RUNNING", job_id="01", driver_node_id="w0")
PENDING = JobRecord("PENDING", message="waiting for worker_node")
CONFIG = "Error executing job with overrides: []\nCould not override 'trainer.x'.\n"
TRACEBACK = """Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):
Traceback (most recent call last):
  File "archive.py", line 7, in write_text
OSError: [Errno 30] Read-only file system: 'status.json'
"""
FULL = failures.failure("disk_full", "No space left on device: 'model.pt'")
TOLD = JobRecord("FAILED", message=f"it ended\n{driver_log.format_end_line(FULL)}\n", driver_exit_code=1)
ENDED = JobRecord("FAILED", message="it ended", driver_node_id="w0")


def seen(
    state: str,
    status: dict[str, Any] | None = None,
    plan: Plan | None = None,
    *,
    job: JobRecord | None = RUNNING,
    answered: bool = True,
    answer: dict[str, Any] | None = None,
    **observed: Any,
) -> Observations:
    values = {"state": state, "submitted_at": NOW - 500, "attempt_submitted_at": NOW - 50, "queued_at": NOW - 500}
    head = HeadReport(**{"job": job, "head_node_id": "h", **(answer or {})})
    return Observations(
        now=NOW,
        status=parse(Status, {**values, **(status or {})}),
        plan=plan or Plan(),
        head=head if answered else None,
        **{"cleaned_up": True, **observed},
    )


def kind(action: Action) -> tuple[str, str]:
    return action.kind, action.failure.kind if action.failure else ""


def test_a_job_that_has_ended_is_finished() -> None:
    for state in ("SUCCEEDED", "FAILED", "STOPPED"):
        assert decide(seen(state)) == decide(seen(state, answered=False)) == Action(ActionKind.FINISH)


def test_without_an_answer_of_the_head_nothing_is_done() -> None:
    overdue = Plan(deadline=1.0)
    for state in ("SUBMITTED", "RUNNING"):
        status = {"attempt_submitted_at": NOW - 9999, "submitted_at": NOW - 9999}
        assert decide(seen(state, status, overdue, answered=False, absent_since=1.0, ended_since=1.0)).kind == "wait"


@pytest.mark.parametrize("status", ["RUNNING", "PENDING"])
def test_a_driver_on_the_head_is_stopped(status: str) -> None:
    action = decide(seen("RUNNING", job=JobRecord(status, driver_node_id="h")))
    assert kind(action) == ("stop_attempt", "config")
    # It has no node yet, and the head no id.
    assert decide(seen("SUBMITTED", job=PENDING, answer={"head_node_id": ""})).kind == "wait"


@pytest.mark.parametrize(
    ("job", "waited", "expected"),
    [
        # The launcher of a running job enforces the deadline itself, if it can.
        (RUNNING, 400 + DEADLINE_GRACE_SECONDS, ("wait", "")),
        (RUNNING, 401 + DEADLINE_GRACE_SECONDS, ("stop_attempt", "deadline")),
        (PENDING, 400, ("wait", "")),
        (PENDING, 401, ("cancel", "deadline")),
    ],
)
def test_a_deadline(job: JobRecord, waited: float, expected: tuple[str, str]) -> None:
    action = decide(seen("RUNNING", {"submitted_at": NOW - waited}, Plan(deadline=400.0), job=job))
    assert kind(action) == expected


@pytest.mark.parametrize(("further", "expected"), [(0, "wait"), (1, "cancel")])
def test_a_driver_that_does_not_start_is_cancelled(further: float, expected: str) -> None:
    for job, said in ((PENDING, "waiting for worker_node"), (JobRecord("PENDING"), "Ray gives no reason")):
        action = decide(seen("SUBMITTED", {"attempt_submitted_at": NOW - DRIVER_PENDING_SECONDS - further}, job=job))
        assert kind(action) == (expected, "no_resources" if expected == "cancel" else "")
        assert not action.failure or action.failure.reason.endswith(said)


def test_a_stop_cancels_a_pending_attempt_and_leaves_a_running_one_to_its_launcher() -> None:
    action = decide(seen("SUBMITTED", job=PENDING, stop_requested=True))
    assert kind(action) == ("cancel", "stopped")
    assert decide(seen("RUNNING", stop_requested=True)).kind == "wait"


@pytest.mark.parametrize(
    ("answer", "observed", "expected"),
    [
        ({}, {}, "no_resources"),
        # A failure that a retry may cure has precedence.
        ({"lost_node": "w1"}, {"no_step_since": NOW - NODE_LOSS_RECOVERY_SECONDS - 1}, "node_lost"),
        ({}, {"actor_unscheduled_since": 1.0}, "head_lost"),
    ],
)
def test_an_attempt_that_no_node_can_hold_is_stopped(
    answer: dict[str, Any], observed: dict[str, Any], expected: str
) -> None:
    action = decide(seen("RUNNING", answer={"placement_problem": "16 GPU on one node", **answer}, **observed))
    assert kind(action) == ("stop_attempt", expected)
    # Other jobs that end would not help.
    assert action.failure and ("cluster_up.yml" in action.failure.todo) == (expected == "no_resources")


@pytest.mark.parametrize(("state", "since"), [("QUEUED", "queued_at"), ("RETRYING", "ended_at")])
def test_waiting_for_capacity(state: str, since: str) -> None:
    recent, full = {since: NOW - 5}, {"capacity_problem": "there is 1"}
    assert decide(seen(state, recent)) == Action(ActionKind.SUBMIT)
    assert decide(seen(state, recent, answer=full)).kind == "wait"
    # A head that does not answer has no capacity.
    assert decide(seen(state, recent, answered=False)).kind == "wait"
    for plan, limit in ((Plan(wait_for_resources=60.0), 60), (Plan(), DEFAULT_RESOURCE_WAIT_SECONDS)):
        assert decide(seen(state, {since: NOW - limit}, plan, answer=full)).kind == "wait"
        action = decide(seen(state, {since: NOW - limit - 1}, plan, answer=full))
        assert kind(action) == ("fail", "no_resources")
        assert action.failure and "there is 1" in action.failure.reason
    action = decide(seen(state, {since: NOW - 61}, Plan(wait_for_resources=60.0), answered=False))
    assert kind(action) == ("fail", "no_resources")


@pytest.mark.parametrize("state", ["QUEUED", "RETRYING"])
def test_a_waiting_job_is_stopped_or_runs_out_of_time(state: str) -> None:
    recent = {"queued_at": NOW - 5, "ended_at": NOW - 5}
    assert kind(decide(seen(state, recent, Plan(deadline=400.0), stop_requested=True))) == ("fail", "stopped")
    assert kind(decide(seen(state, recent, stop_requested=True, answered=False))) == ("fail", "stopped")
    assert kind(decide(seen(state, recent, Plan(deadline=400.0)))) == ("fail", "deadline")
    assert kind(decide(seen(state, recent, Plan(deadline=600.0)))) == ("submit", "")


def test_an_attempt_is_cleaned_up_before_the_next_one() -> None:
    for more in ({}, {"stop_requested": True}, {"answered": False}):
        action = decide(seen("RETRYING", {"ended_at": NOW - 5}, Plan(deadline=1.0), cleaned_up=False, **more))
        assert action == Action(ActionKind.CLEAN_UP)
    # A job in the queue had no attempt.
    assert decide(seen("QUEUED", cleaned_up=False)).kind == "submit"


@pytest.mark.parametrize(("further", "expected"), [(-1, "wait"), (0, "fail")])
def test_a_submission_that_never_reached_ray(further: float, expected: str) -> None:
    for state, more in (("SUBMITTED", {}), ("SUBMITTED", {"absent_since": NOW}), ("RUNNING", {})):
        submitted = {"attempt_submitted_at": NOW - SUBMISSION_VISIBLE_SECONDS - further}
        action = decide(seen(state, submitted, job=None, **more))
        assert kind(action) == (expected, "unknown" if expected == "fail" else "")


@pytest.mark.parametrize(("since", "expected"), [(JOB_ABSENT_SECONDS - 1, "wait"), (JOB_ABSENT_SECONDS, "fail")])
def test_a_head_that_was_restarted(since: float, expected: str) -> None:
    action = decide(seen("RUNNING", {"attempt_submitted_at": NOW - 999}, job=None, absent_since=NOW - since))
    assert kind(action) == (expected, "head_lost" if expected == "fail" else "")


@pytest.mark.parametrize(
    ("observed", "kind"),
    [
        ({"answer": {"driver_alive": False}}, "node_lost"),
        ({}, "unknown"),
        ({"stop_requested": True}, "stopped"),
        # A request to stop counts more than the node that was lost with it.
        ({"stop_requested": True, "answer": {"driver_alive": False}}, "stopped"),
        ({"job": JobRecord("STOPPED")}, "stopped"),
        ({"job": JobRecord("FAILED", message=f"The end of the log: {CONFIG}", driver_exit_code=1)}, "config"),
        ({"job": JobRecord("FAILED", message=TRACEBACK, driver_exit_code=1)}, "storage"),
        *(({"job": JobRecord("FAILED", message="x", driver_exit_code=code)}, "killed") for code in (129, 137, -9)),
        ({"job": JobRecord("FAILED", message="Job supervisor actor died: it is\ndead")}, "killed"),
        # It had failed before it was to be stopped.
        ({"stop_requested": True, "job": JobRecord("FAILED", message="x", driver_exit_code=1)}, "unknown"),
        ({"stop_requested": True, "job": JobRecord("FAILED", message="x", driver_exit_code=137)}, "stopped"),
        ({"stop_requested": True, "job": JobRecord("STOPPED", message="x", driver_exit_code=1)}, "stopped"),
        # The launcher writes to Ray's log what it cannot record.
        ({"job": TOLD}, "disk_full"),
        ({"job": JobRecord("FAILED", message="Task was killed due to the node running low on memory.")}, "host_oom"),
    ],
)
def test_an_attempt_whose_launcher_recorded_no_end(observed: dict[str, Any], kind: str) -> None:
    facts = {"job": ENDED, **observed}
    # A launcher that ended normally may still be writing, unless its node is gone.
    early = "wait" if observed.get("answer", {}).get("driver_alive", True) else "fail"
    assert decide(seen("RUNNING", **facts, ended_since=NOW - END_RECORD_GRACE_SECONDS + 1)).kind == early
    over = seen("RUNNING", **facts, ended_since=NOW - END_RECORD_GRACE_SECONDS)
    action = decide(over)
    assert action.failure and (action.kind, action.failure.kind) == ("fail", kind)
    # The cause of a stopped attempt is its failure.
    cause = failures.failure("node_lost", "node w1 was lost")
    assert decide(replace(over, stop_cause=cause)) == Action(ActionKind.FAIL, cause)


@pytest.mark.parametrize(("further", "expected"), [(None, "wait"), (0, "wait"), (1, "stop_attempt")])
def test_a_trainer_that_waits_for_a_lost_node_is_stopped(further: float | None, expected: str) -> None:
    no_step_since = None if further is None else NOW - NODE_LOSS_RECOVERY_SECONDS - further
    action = decide(seen("RUNNING", answer={"lost_node": "w1"}, no_step_since=no_step_since))
    assert kind(action) == (expected, "node_lost" if expected == "stop_attempt" else "")
    assert decide(seen("RUNNING", answer={"lost_node": ""}, no_step_since=no_step_since)).kind == "wait"


def ending(seconds: float) -> dict[str, Any]:
    failure = failures.Failure(failures.FailureKind.COMMUNICATION, "Connection reset by peer", ("a line",), "Check it.")
    return {"ended_at": NOW - seconds, "failure": json.loads(json.dumps(asdict(failure)))}


def test_a_failure_that_a_lost_node_may_have_caused_waits_for_ray_to_notice() -> None:
    assert decide(seen("ENDING", ending(5))).kind == "wait"
    assert decide(seen("ENDING", ending(5), answered=False)).kind == "wait"
    assert decide(seen("ENDING", ending(NODE_LOSS_DETECTION_SECONDS - 1))).kind == "wait"
    lost = decide(seen("ENDING", ending(5), answer={"lost_node": "worker-1"}))
    assert kind(lost) == ("fail", "node_lost")
    assert lost.failure and "worker-1" in lost.failure.reason and lost.failure.lines == ("a line",)
    for answered in (True, False):
        decision = decide(seen("ENDING", ending(NODE_LOSS_DETECTION_SECONDS), answered=answered))
        assert kind(decision) == ("fail", "communication")
    # A stop ends it at once, with its present failure.
    for node, expected in (("", "communication"), ("worker-1", "node_lost")):
        action = decide(seen("ENDING", ending(5), answer={"lost_node": node}, stop_requested=True))
        assert kind(action) == ("fail", expected)


def test_an_attempt_that_succeeded_without_a_record() -> None:
    job, cause = JobRecord("SUCCEEDED"), failures.failure("node_lost", "node w1 was lost")
    ended_since = NOW - END_RECORD_GRACE_SECONDS
    for more in ({}, {"stop_requested": True}, {"stop_cause": cause}):
        assert decide(seen("RUNNING", job=job, **more)).kind == "wait"
        assert decide(seen("RUNNING", job=job, ended_since=ended_since, **more)) == Action(ActionKind.SUCCEED)


@pytest.mark.parametrize(("state", "job", "expected"), [("QUEUED", RUNNING, "fail"), ("SUBMITTED", PENDING, "cancel")])
def test_a_stop_cause_says_why_a_job_that_waits_is_stopped(state: str, job: JobRecord, expected: str) -> None:
    cause = failures.failure("stopped", "the cluster was removed")
    assert decide(seen(state, job=job, stop_requested=True, stop_cause=cause)) == Action(ActionKind(expected), cause)
    # That of an earlier attempt, which was to be followed by another one.
    lost = failures.failure("node_lost", "node w1 was lost")
    assert kind(decide(seen(state, job=job, stop_requested=True, stop_cause=lost))) == (expected, "stopped")


def test_an_attempt_that_ray_gave_up_and_that_trains_on_is_left_alone() -> None:
    observed: dict[str, Any] = {"job": ENDED, "ended_since": NOW - 60}
    assert decide(seen("RUNNING", heartbeat_seen_at=NOW - HEARTBEAT_FRESH_SECONDS + 1, **observed)).kind == "wait"
    assert decide(seen("RUNNING", heartbeat_seen_at=NOW - HEARTBEAT_FRESH_SECONDS, **observed)).kind == "fail"
    # A stop does not wait for it.
    assert decide(seen("RUNNING", heartbeat_seen_at=NOW, stop_requested=True, **observed)).kind == "fail"
