"""What the keeper decides, from what it sees; and that it does so once for a job."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import failures, keep
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.keep import (
    CANCEL,
    FAIL,
    FINISH,
    STOP_ATTEMPT,
    SUBMIT,
    WAIT,
    View,
    decide,
)

NOW = 10_000.0
ALIVE = {"status": "RUNNING", "driver_node_id": "w0"}


def view(state: str, status: dict[str, Any] | None = None, plan: dict[str, Any] | None = None, **seen: Any) -> View:
    known = {"state": state, "submitted_at": NOW - 500, "attempt_submitted_at": NOW - 100, "queued_at": NOW - 500}
    given = {"job": ALIVE, "answered": True, "head_node_id": "h", **seen}
    return View(now=NOW, status={**known, **(status or {})}, plan=plan or {}, **given)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "STOPPED"])
def test_a_job_that_has_ended_is_finished(state: str) -> None:
    assert decide(view(state)).kind == FINISH


def test_a_job_that_runs_is_left_alone() -> None:
    assert decide(view("RUNNING")).kind == WAIT
    # Also when nobody can be asked: nothing is known of it, and so nothing is done.
    assert decide(view("RUNNING", job=None, answered=False)).kind == WAIT


def test_a_driver_on_the_head_is_ended() -> None:
    action = decide(view("RUNNING", job={"status": "RUNNING", "driver_node_id": "h"}))
    assert action.kind == STOP_ATTEMPT and action.failure
    assert "driver was started on the head" in action.failure.reason


def test_pending_is_cancelled_for_a_reason_only() -> None:
    pending = {"status": "PENDING", "message": "waiting for worker_node"}
    assert decide(view("SUBMITTED", job=pending)).kind == WAIT
    late = decide(view("SUBMITTED", {"attempt_submitted_at": NOW - keep.PENDING_SECONDS - 1}, job=pending))
    assert late.kind == CANCEL and late.failure
    assert late.failure.kind == "no_resources" and "waiting for worker_node" in late.failure.reason
    stopped = decide(view("SUBMITTED", job=pending, stop_requested=True))
    assert stopped.kind == CANCEL and stopped.failure and stopped.failure.kind == "stopped"
    overdue = decide(view("SUBMITTED", plan={"deadline": 400.0}, job=pending))
    assert overdue.kind == CANCEL and overdue.failure and overdue.failure.kind == "deadline"


def test_the_launcher_has_time_to_keep_the_deadline_itself() -> None:
    assert decide(view("RUNNING", plan={"deadline": 499.0})).kind == WAIT
    action = decide(view("RUNNING", {"submitted_at": NOW - 500 - keep.OVERDUE_SECONDS}, plan={"deadline": 499.0}))
    assert action.kind == STOP_ATTEMPT and action.failure and action.failure.kind == "deadline"


@pytest.mark.parametrize(("state", "since"), [("QUEUED", "queued_at"), ("RETRYING", "ended_at")])
def test_waiting_for_room(state: str, since: str) -> None:
    assert decide(view(state, {since: NOW - 5})).kind == SUBMIT
    assert decide(view(state, {since: NOW - 5}, no_place="there is 1")).kind == WAIT
    # A head that does not answer is no room.
    assert decide(view(state, {since: NOW - 5}, answered=False)).kind == WAIT
    for plan, waited in (({"wait_for_resources": 60.0}, 61), ({}, keep.LOST_RESOURCES_SECONDS + 1)):
        action = decide(view(state, {since: NOW - waited}, plan, no_place="there is 1"))
        assert action.kind == FAIL and action.failure and action.failure.kind == "no_resources"
        assert "there is 1" in action.failure.reason
    for seen, kind in (({"stop_requested": True}, "stopped"), ({}, "deadline")):
        action = decide(view(state, {since: NOW - 5}, {"deadline": 400.0}, **seen))
        assert action.kind == FAIL and action.failure and action.failure.kind == kind


def test_a_submission_that_never_arrived_is_no_ghost() -> None:
    just = {"attempt_submitted_at": NOW - 5}
    assert decide(view("SUBMITTED", just, job=None)).kind == WAIT
    action = decide(view("SUBMITTED", job=None))
    assert action.kind == FAIL and action.failure and "interrupted" in action.failure.reason


def test_a_head_that_has_forgotten_is_believed_after_a_while() -> None:
    assert decide(view("RUNNING", job=None, unknown_since=NOW - 5)).kind == WAIT
    action = decide(view("RUNNING", job=None, unknown_since=NOW - keep.FORGOTTEN_SECONDS))
    assert action.kind == FAIL and action.failure and action.failure.kind == "node_lost"


LOST = {"status": "FAILED", "message": "it ended", "driver_node_id": "w0"}


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        ({"driver_alive": False}, "node_lost"),
        ({}, "killed"),
        ({"stop_requested": True}, "stopped"),
        ({"job": {**LOST, "status": "STOPPED"}}, "stopped"),
    ],
)
def test_an_attempt_that_ended_without_a_word_of_its_launcher(seen: dict[str, Any], kind: str) -> None:
    given = {"job": LOST, **seen}
    # A launcher that has ended by itself may still be writing.
    assert decide(view("RUNNING", **given, ended_since=NOW - 1)).kind == WAIT
    action = decide(view("RUNNING", **given, ended_since=NOW - keep.GRACE_SECONDS))
    assert action.kind == FAIL and action.failure and action.failure.kind == kind


def test_a_failure_that_may_be_a_lost_node_waits_for_ray_to_notice() -> None:
    said = failures.failure("communication", "Connection reset by peer").as_dict()
    ending = {"ended_at": NOW - 5, "failure": json.loads(json.dumps(said))}
    assert decide(view("ENDING", ending)).kind == WAIT
    lost = decide(view("ENDING", ending, lost_node="worker-1"))
    assert lost.kind == FAIL and lost.failure
    assert (lost.failure.kind, lost.failure.reason) == ("node_lost", "node worker-1 was lost")
    own = decide(view("ENDING", {**ending, "ended_at": NOW - keep.NOTICE_SECONDS}))
    assert own.kind == FAIL and own.failure and own.failure.kind == "communication"


def archive_of(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "jobs" / "one")
    archive.reserve()
    archive.write_json("config/plan.json", {"address": "http://127.0.0.1:1"})
    return archive


def test_there_is_one_keeper_for_a_job(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    with (archive.path / ".keeper.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert keep.Keeper(archive).run() == 1
    assert not archive.is_kept()


def test_an_end_without_a_launcher_is_written_down(tmp_path: Path) -> None:
    archive = archive_of(tmp_path)
    archive.set_status("RUNNING", attempt=1, attempt_started_at=1.0)
    keep.Keeper(archive).fail(failures.failure("node_lost", "node w0 was lost"))
    status = archive.status()
    assert (status["state"], status["failure"]["kind"]) == ("FAILED", "node_lost")
    assert [attempt["kind"] for attempt in status["attempts"]] == ["node_lost"]


def test_a_trainer_that_waits_for_a_lost_node_is_ended() -> None:
    assert decide(view("RUNNING", lost_node="w1", lost_since=NOW - 5)).kind == WAIT
    action = decide(view("RUNNING", lost_node="w1", lost_since=NOW - keep.LOST_NODE_SECONDS - 1))
    assert action.kind == STOP_ATTEMPT and action.failure
    assert action.failure.kind == "node_lost" and "node w1 was lost" in action.failure.reason
    # And that stays the reason when the launcher could not write it down.
    over = decide(view("RUNNING", job=LOST, ended_since=NOW - keep.GRACE_SECONDS, verdict=action.failure))
    assert over.failure == action.failure
