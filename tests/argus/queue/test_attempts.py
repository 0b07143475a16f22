"""Attempts: how each is started, and what follows one."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from archive_files import lines_of
from fake_ray import FakeRay

from argus.archive import failures
from argus.archive.archive import Archive
from argus.archive.failures import FailureKind
from argus.archive.plan import Plan
from argus.archive.status import Attempt, Status
from argus.queue import attempts
from argus.queue.demand import Demand

OWN = ["data.seed=1", "+trainer.resume_mode=auto", "trainer.save_freq=5", "trainer.resume_from_path=/old"]
PLAN: dict[str, Any] = {
    "workload": "sft",
    "overrides": ["data.seed=1"],
    "retries": 1,
    "entrypoint": "python3 /opt/argus/current launch run /archive",
    "entrypoint_num_cpus": 1,
    "entrypoint_resources": {"worker_node": 1},
}
LOST = failures.failure("node_lost", "node worker-1 was lost")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.write_json("config/plan.json", PLAN)
    made.write_json("config/runtime_env.json", {"env_vars": {"A": "1", "VERL_FILE_LOGGER_PATH": "before"}})
    return made


def checkpoint(archive: Archive, step: int) -> Path:
    """A checkpoint that counts as complete: its backend's files cannot be checked."""
    path = archive.path / "checkpoints" / f"global_step_{step}"
    path.mkdir()
    (path / "weights.distcp").touch()
    (path.parent / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def test_the_steps_of_an_attempt_are_its_own(archive: Archive) -> None:
    assert attempts.steps_done(archive, 1) == 0
    lines = "".join(json.dumps({"step": step, "data": {}}) + "\n" for step in (4, 5, 5, 6))
    # Before the first step, the trainer validates what it resumes from.
    archive.metrics_file(2).write_text('{"step": 3, "data": {"val-core/x": 1}}\n' + lines + '{"step": 7')
    assert attempts.steps_done(archive, 1) == 0
    assert attempts.steps_done(archive, 2) == 3
    # Without its metrics, those of its log count.
    archive.driver_log.write_text("step:1 - x\nARGUS_VERL_ATTEMPT=3\nstep:2 - x\nstep:3 - x\n")
    assert attempts.steps_done(archive, 3) == 2


@pytest.mark.parametrize(
    ("retries", "attempt", "kind", "steps", "answer"),
    [
        (1, 1, "node_lost", 0, True),
        (1, 2, "node_lost", 0, False),
        (2, 2, "node_lost", 0, True),
        (0, 1, "node_lost", 0, False),
        # Before the first step, the configuration of the network is wrong.
        (1, 1, "communication", 0, False),
        (1, 1, "communication", 1, True),
        (9, 1, "config", 5, False),
    ],
)
def test_which_failures_are_retried(retries: int, attempt: int, kind: str, steps: int, answer: bool) -> None:
    assert attempts.may_retry(Plan(retries=retries), Status(attempt=attempt), FailureKind(kind), steps) is answer
    # The end of the head costs no retry.
    assert attempts.may_retry(Plan(), Status(), FailureKind.HEAD_LOST, 0)
    status = Status(attempt=attempt + 1, attempts=(Attempt(attempt=1, state="FAILED", kind="head_lost"),))
    assert attempts.may_retry(Plan(retries=retries), status, FailureKind(kind), steps) is answer


def test_a_verdict_belongs_to_one_attempt(archive: Archive) -> None:
    assert attempts.stop_cause(archive) is None
    archive.set_status("RUNNING", attempt=1)
    attempts.record_stop_cause(archive, LOST)
    assert attempts.stop_cause(archive) == LOST
    archive.set_status("SUBMITTED", attempt=2)
    assert attempts.stop_cause(archive) is None


def running(archive: Archive, **details: Any) -> None:
    archive.set_status("RUNNING", **{"attempt": 1, "attempt_started_at": 5.0, "resumed_from_step": None, **details})


def test_what_a_job_puts_there_are_no_phases() -> None:
    written = {f"phase {number}": 1.0 for number in range(500)} | {"queue": 1e300, "driver": -1.0, "first step": 2.0}
    assert Status(phases=written).phases == Attempt(phases=written).phases == {"first step": 2.0}
    status = Status(attempt=2, queued_at=2.0, ended_at=4.0, attempt_submitted_at=5.0)
    assert attempts.phases_before(status, 12.5) == {"queue": 1.0, "driver": 7.5}
    late = Status(queued_at=9.0, attempt_submitted_at=13.0)
    assert attempts.phases_before(late, 12.5) == {"queue": 4.0, "driver": 0.0}


def test_an_attempt_that_is_retried(archive: Archive) -> None:
    running(archive)
    assert attempts.record_end(archive, "FAILED", LOST, attempt_steps=2) == "RETRYING"
    assert archive.status_json()["state"] == "RETRYING"
    archive.set_status("SUBMITTED", attempt=2, resumed_from_step=10)
    running(archive, attempt=2, attempt_started_at=50.0, resumed_from_step=10)
    # retries: 1
    assert attempts.record_end(archive, "FAILED", LOST, now=99.0, attempt_steps=0) == "FAILED"
    assert archive.status_json()["ended_at"] == archive.status_json()["attempts"][-1]["ended_at"] == 99.0
    shown = [(one.attempt, one.started_at, one.kind, one.resumed_from) for one in archive.read_status().attempts]
    assert shown == [(1, 5.0, "node_lost", None), (2, 50.0, "node_lost", 10)]
    # Every end is an event, without the list that grows.
    assert [line["event"] for line in lines_of(archive, "events.jsonl")] == [
        "RUNNING",
        "RETRYING",
        "SUBMITTED",
        "RUNNING",
        "FAILED",
    ]
    assert "attempts" not in (archive.path / "events.jsonl").read_text()


def test_no_attempt_follows_a_request_to_stop(archive: Archive) -> None:
    running(archive)
    archive.ask_to_stop("alice@laptop")
    assert attempts.record_end(archive, "FAILED", LOST, attempt_steps=2) == "FAILED"
    # Who asked for it is not why it failed.
    assert archive.read_status().reason == LOST.reason


def test_an_attempt_whose_node_was_removed(archive: Archive) -> None:
    for failure in (failures.failure("config", "no key x"), LOST):
        running(archive)
        attempts.record_end(archive, "FAILED", failure)
        before = archive.read_status()
        for _twice in range(2):
            attempts.explain_removal(archive, "worker-1")
        status = archive.read_status()
        # Other ends are not those of a removed node.
        is_removal = failure == LOST
        assert ("drain.yml removed node worker-1" in status.reason) is is_removal
        assert status.failure and status.failure.reason == status.reason == status.attempts[-1].reason
        assert status.failure.todo.startswith("Nothing is wrong with the node") is is_removal
        assert (status.state, status.ended_at, status.failure.kind) == (before.state, before.ended_at, failure.kind)


@pytest.mark.parametrize(
    ("users", "by"),
    [
        ([], "not by stop.yml"),
        (["alice@laptop", "bob"], "by alice@laptop"),
        (["a\n b"], "by a b"),
    ],
)
def test_a_stopped_attempt_names_who_asked_for_it_first(archive: Archive, users: list[str], by: str) -> None:
    running(archive)
    for user in users:
        archive.ask_to_stop(user)
    assert attempts.record_end(archive, "STOPPED", failures.failure("stopped", "signal 15")) == "STOPPED"
    # Who removes its node later has not stopped it.
    if users:
        attempts.explain_removal(archive, "worker-1")
    status = archive.read_status()
    assert status.failure and status.failure.reason == status.reason
    assert status.reason.startswith("signal 15") and by in status.reason
    assert [(one.state, one.kind) for one in status.attempts] == [("STOPPED", "stopped")]


def test_what_an_attempt_resumes_from(archive: Archive) -> None:
    resumed = {**PLAN, "overrides": OWN, "resumed_from": "sft-0", "resumed_from_step": 30}
    archive.write_json("config/plan.json", resumed)
    # The first one may resume from another job; without a checkpoint of its own, the next one does as well.
    for attempt in (1, 2):
        archive.set_status("RETRYING", reason="no GPUs are free", phases={"queue": 100.0})
        attempts.prepare_attempt(archive, attempt)
        status = archive.read_status()
        assert (status.state, status.attempt, status.reason, status.phases) == ("SUBMITTED", attempt, "", {})
        assert abs(status.attempt_submitted_at - time.time()) < 60 and status.resumed_from_step == 30
    assert not (archive.path / "config" / "attempt-1.json").exists()
    assert archive.read_mapping("config/attempt-2.json") == {"overrides": OWN}
    path = checkpoint(archive, 10)
    attempts.prepare_attempt(archive, 2)
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}"]
    overrides = ["data.seed=1", "trainer.save_freq=5"]
    assert archive.read_mapping("config/attempt-2.json")["overrides"] == [*overrides, *resume]
    assert archive.read_status().resumed_from_step == 10


def test_the_next_attempt_without_a_checkpoint_starts_over(archive: Archive) -> None:
    archive.write_json("config/plan.json", {**PLAN, "overrides": ["data.seed=1", "trainer.resume_mode=auto"]})
    attempts.prepare_attempt(archive, 2)
    assert archive.read_mapping("config/attempt-2.json")["overrides"] == ["data.seed=1", "trainer.resume_mode=disable"]
    assert archive.read_status().resumed_from_step is None


def test_the_submission_to_ray(archive: Archive) -> None:
    client = FakeRay()
    attempts.submit(archive, 2, client)
    variables = {"A": "1", "VERL_FILE_LOGGER_PATH": str(archive.path / "logs" / "metrics-2.jsonl")}
    demand = Demand.of(archive.plan() or Plan()).to_metadata()
    (job,) = client.submitted
    assert (job["submission_id"], job["runtime_env"]) == ("sft-1~2", {"env_vars": variables})
    assert job["entrypoint"] == f"{PLAN['entrypoint']} 2"
    assert [job[f"entrypoint_{name}"] for name in ("num_cpus", "num_gpus", "resources")] == [1, 0, {"worker_node": 1}]
    assert job["metadata"] == {"submission_id": "sft-1", "attempt": "2", **demand}


def test_an_attempt_ended_when_its_trainer_did(archive: Archive) -> None:
    running(archive)
    attempts.record_trainer_failure(archive, failures.failure("communication", "Connection reset by peer"), exit_code=1)
    archive.set_status("ENDING", ended_at=77.0)
    assert attempts.record_end(archive, "FAILED", LOST, attempt_steps=2) == "RETRYING"
    status = archive.read_status()
    # The details that the launcher recorded stay.
    assert (status.ended_at, status.exit_code) == (77.0, 1)
    assert [(one.ended_at, one.kind) for one in status.attempts] == [(77.0, "node_lost")]


@pytest.mark.parametrize(("status", "is_sent"), [("PENDING", True), ("RUNNING", True), ("FAILED", False), ("", False)])
def test_a_lost_answer_is_not_a_refusal(archive: Archive, status: str, is_sent: bool) -> None:
    def lost() -> None:
        raise ConnectionError("timed out")

    client = FakeRay({"sft-1": status} if status else {}, on_submit=lost)
    with contextlib.nullcontext() if is_sent else pytest.raises(ConnectionError):
        attempts.submit(archive, 1, client)
    assert len(client.submitted) == 1
