"""The steward's steps when nodes or the head are lost."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from steward_scene import Scene

from argus.archive import failures
from argus.archive.status import JobState
from argus.queue import attempts
from argus.ray import departures
from argus.ray.records import WorkerCapacity
from argus.steward import job as steward
from argus.steward.decisions import END_RECORD_GRACE_SECONDS, HEAD_RESTART_GRACE_SECONDS, NODE_LOSS_RECOVERY_SECONDS
from argus.steward.observer import MAX_CLOCK_SKEW_SECONDS


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def drained(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that get no new work any more."""
    nodes: list[str] = []
    monkeypatch.setattr(steward, "stop_new_work", lambda node, _registry: nodes.append(node))
    return nodes


def test_a_trainer_that_hangs_on_a_lost_node_is_stopped_once_a_minute(scene: Scene) -> None:
    scene.running()
    scene.step()
    scene.lose("w1")
    scene.step(after=5)
    scene.step(after=NODE_LOSS_RECOVERY_SECONDS)
    assert scene.verbs() == ["evidence start"]
    scene.step(after=1)
    assert scene.verbs() == ["evidence start", "stop 1"]
    cause = attempts.stop_cause(scene.archive)
    assert cause and cause.kind == "node_lost" and "worker-w1" in cause.reason
    scene.step(after=steward.STOP_RETRY_INTERVAL_SECONDS - 1)
    assert scene.verbs()[2:] == []
    scene.step(after=1)
    assert scene.verbs()[2:] == ["stop 1"]
    assert attempts.stop_cause(scene.archive) == cause
    # The launcher was killed before it could record this: the cause remains the reason.
    scene.head.records["one"]["status"] = "FAILED"
    scene.step(after=5)
    scene.step(after=END_RECORD_GRACE_SECONDS)
    status = scene.archive.read_status()
    assert (status.state, status.reason) == ("RETRYING", cause.reason)


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": "02"},
        {"death_cause": {"actor_died_error_context": {"reason": "OUT_OF_SCOPE"}}},
        # While the driver lives, an owner that died is another process of the job.
        {"death_cause": {"actor_died_error_context": {"reason": "OWNER_DIED"}}},
        {"node_id": "w0"},
    ],
)
def test_a_lost_node_of_another_job_does_not_matter(scene: Scene, change: dict[str, Any]) -> None:
    scene.running()
    scene.lose("w1")
    scene.head.actors[0].update(change)
    scene.step()
    scene.step(after=NODE_LOSS_RECOVERY_SECONDS + 1)
    assert "stop 1" not in scene.verbs()


@pytest.mark.parametrize("before", [True, False])
def test_a_node_that_was_lost_before_the_attempt_does_not_matter(scene: Scene, before: bool) -> None:
    """The clock of the driver may be later than that of the head: the attempt seems to have started after the loss."""
    scene.lose("w1")
    scene.clock.now += MAX_CLOCK_SKEW_SECONDS + (1 if before else -1)
    scene.running()
    scene.step()
    scene.step(after=NODE_LOSS_RECOVERY_SECONDS + 1)
    assert ("stop 1" in scene.verbs()) is not before


@pytest.mark.parametrize(("node", "reason"), [("w1", "NODE_DIED"), ("w1", "OWNER_DIED"), ("w0", "")])
def test_a_failure_with_a_lost_node_is_retried(scene: Scene, node: str, reason: str) -> None:
    """The driver's own node counts, too."""
    scene.running()
    attempts.record_trainer_failure(scene.archive, failures.failure("communication", "Connection reset"))
    scene.lose(node)
    scene.head.actors[0]["death_cause"] = {"actor_died_error_context": {"reason": reason}}
    scene.step(after=1)
    status = scene.archive.read_status()
    assert (status.state, status.reason) == ("RETRYING", f"node worker-{node} was lost")


@pytest.mark.parametrize(("jobs", "others", "left_out"), [(1, 1, False), (2, 1, True), (2, 0, False)])
def test_a_node_that_was_lost_under_two_jobs_gets_no_retry_if_others_have_room(
    scene: Scene, drained: list[str], jobs: int, others: int, left_out: bool
) -> None:
    for number in range(jobs - 1):
        departures.remember_loss(scene.queue.directory, "worker-w1", f"sft-{number}", time.time())
    scene.running()
    attempts.record_trainer_failure(scene.archive, failures.failure("communication", "Connection reset"))
    scene.lose("w1")
    scene.step(after=1)
    assert scene.archive.read_status().state == "RETRYING"
    # It is back, as another node of Ray.
    scene.head.workers = [WorkerCapacity("worker-w1", "w1-again", 8, 48, 8, 48), *scene.head.workers[:others]]
    scene.step(after=1)
    scene.step(after=1)
    assert scene.verbs()[-1] == "submit 2"
    assert drained == ["w1-again"] * left_out
    assert scene.events().count("NODE_LEFT_OUT") == left_out


@pytest.mark.parametrize(("address", "others", "left_out"), [("10.0.0.1", 1, True), ("", 0, False)])
def test_a_node_whose_gpu_failed_gets_no_retry_if_others_have_room(
    scene: Scene, drained: list[str], address: str, others: int, left_out: bool
) -> None:
    scene.running()
    scene.archive.set_status(scene.archive.state(), driver={"host": "worker-w1"})
    fault = dataclasses.replace(failures.failure("gpu_fault", "an ECC error"), node=address)
    attempts.record_end(scene.archive, JobState.FAILED, fault)
    assert scene.archive.read_status().state == "RETRYING"
    scene.head.node_list = [{**node, "node_ip": f"10.0.0.{number}"} for number, node in enumerate(scene.head.node_list)]
    faulty = scene.head.node_list[1]["node_name"] if address else "worker-w1"
    scene.head.workers = [WorkerCapacity(faulty, "faulty", 8, 48, 8, 48)]
    scene.head.workers += [WorkerCapacity("worker-other", "other", 8, 48, 8, 48)] * others
    scene.step(after=1)
    scene.step(after=1)
    assert scene.verbs()[-1] == "submit 2"
    assert drained == ["faulty"] * left_out


@pytest.mark.parametrize("actor", [{"state": "PENDING_CREATION"}, {"state": "PENDING_CREATION", "node_id": ""}])
def test_an_actor_that_a_restarted_head_forgot(scene: Scene, actor: dict[str, Any]) -> None:
    scene.running()
    scene.head.actors = [{"job_id": "01", "state": "ALIVE", "node_id": "w0"}, {"job_id": "01", **actor}]
    scene.step(after=1)
    # Without a restart, it may wait as long as it likes.
    scene.step(after=HEAD_RESTART_GRACE_SECONDS + 1)
    assert "stop 1" not in scene.verbs()
    scene.restart_head(after=5)
    scene.step(after=1)
    scene.step(after=HEAD_RESTART_GRACE_SECONDS)
    assert "stop 1" not in scene.verbs()
    # One that is being made is not forgotten.
    forgotten, scene.head.actors[1] = scene.head.actors[1], {"job_id": "01", "state": "ALIVE", "node_id": "w0"}
    scene.start()
    scene.step(after=HEAD_RESTART_GRACE_SECONDS)
    scene.step(after=HEAD_RESTART_GRACE_SECONDS + 1)
    assert "stop 1" not in scene.verbs()
    scene.head.actors[1] = forgotten
    scene.step(after=1)
    scene.step(after=HEAD_RESTART_GRACE_SECONDS + 1)
    assert scene.verbs()[-1] == "stop 1"
    cause = attempts.stop_cause(scene.archive)
    assert cause and cause.kind == "head_lost"


def test_an_attempt_goes_on_with_a_head_that_was_started_again(scene: Scene) -> None:
    scene.running()
    scene.step()
    scene.restart_head(after=60)
    scene.head.records["one"]["status"] = "FAILED"
    for step in range(60):
        scene.archive.write_heartbeat("heartbeat.json", time=scene.clock.now, step=step)
        scene.step(after=1)
    assert scene.archive.read_status().state == "RUNNING"
    scene.step(after=END_RECORD_GRACE_SECONDS)
    assert scene.archive.read_status().state == "FAILED"


def test_a_submission_that_was_lost_with_the_head_is_sent_again(scene: Scene) -> None:
    scene.state("SUBMITTED", attempt=1, attempt_submitted_at=scene.clock.now)
    scene.head.records["one"] = {"status": "PENDING"}
    scene.restart_head(after=1)
    scene.step(after=1)
    scene.step(after=HEAD_RESTART_GRACE_SECONDS + 1)
    status = scene.archive.read_status()
    assert "cancel 1" in scene.verbs()
    assert (status.state, status.failure and status.failure.kind) == ("RETRYING", "head_lost")


def test_a_trainer_that_does_steps_is_not_stopped_for_a_lost_node(scene: Scene) -> None:
    scene.running()
    scene.lose("w1")
    for step in range(8):
        scene.archive.write_heartbeat("heartbeat.json", step=step)
        scene.step(after=NODE_LOSS_RECOVERY_SECONDS - 1)
    assert "stop 1" not in scene.verbs()
