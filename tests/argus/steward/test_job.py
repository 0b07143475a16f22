"""The steward's steps: a fake head, a fake runner and a fake clock over a real archive."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
from steward_scene import Scene

from argus.archive import failures
from argus.archive.archive import Archive
from argus.hooks import worker_secrets
from argus.queue import attempts
from argus.queue.demand import Demand
from argus.queue.queue import WaitingJob
from argus.ray.records import WorkerCapacity
from argus.steward import job as steward
from argus.steward.attempt_checks import CONTROLLER_GONE_SECONDS
from argus.steward.decisions import END_RECORD_GRACE_SECONDS, HEARTBEAT_FRESH_SECONDS

LOST = failures.failure("node_lost", "node w1 was lost")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_the_life_of_a_job_with_two_attempts(scene: Scene) -> None:
    """From its queue over a failure to its success, as a whole."""
    worker_secrets.store(scene.archive.path, {"HF_TOKEN": "hf_secret"})
    scene.head.workers = []
    scene.state("QUEUED", queued_at=scene.clock.now)
    scene.runner.effects["submit"] = lambda: scene.running(int(str(scene.runner.calls[-1][1])))
    assert not scene.step()
    assert scene.verbs() == []
    scene.head.workers = [WorkerCapacity("worker-w0", "w0", 8, 48, 8, 48)]
    assert not scene.step(after=2)
    assert scene.verbs() == ["submit 1"]
    scene.step(after=2)
    # The launcher records the failure, and Ray the end.
    scene.head.records["one"]["status"] = "FAILED"
    attempts.record_end(scene.archive, "FAILED", LOST)  # type: ignore[arg-type]
    for _step in range(3):
        assert not scene.step(after=2)
    scene.head.records["one~2"]["status"] = "SUCCEEDED"
    attempts.record_end(scene.archive, "SUCCEEDED", None)  # type: ignore[arg-type]
    assert worker_secrets.load(scene.archive.path)
    assert scene.step(after=2)
    assert scene.verbs() == ["submit 1", "evidence start", "end", "submit 2", "evidence start", "end"]
    assert scene.head.requests[-1] == "one~2"
    assert scene.events() == ["QUEUED", "RUNNING", "RETRYING", "RUNNING", "SUCCEEDED", "CLOSED"]
    assert worker_secrets.load(scene.archive.path) == {}
    assert not (scene.archive.path / "steward.json").exists()
    assert scene.archive.read_status().closed_at


def test_a_job_waits_for_its_turn(scene: Scene) -> None:
    scene.queue.put(WaitingJob("first", Demand(1, 8, 48), submitted_at=1.0))
    scene.state("QUEUED", attempt=1, queued_at=scene.clock.now)
    for _step in range(2):
        scene.step()
    assert scene.verbs() == []
    waits = scene.archive.steward_heartbeat()
    assert waits and (waits.place, waits.notice.endswith("once first has started; before it: first")) == (2, True)
    # The next steward knows the order before it has found the jobs again.
    scene.start()
    scene.step()
    assert scene.verbs() == []
    scene.queue.remove("first")
    scene.step()
    assert scene.verbs() == ["submit 1"]
    scene.running()
    scene.step()
    assert scene.queue.jobs() == []


def waiting_for(scene: Scene, name: str, **plan: Any) -> Archive:
    """Another job, for which this one waits."""
    scene.archive.write_json("config/plan.json", plan)
    scene.state("QUEUED", attempt=1, queued_at=scene.clock.now)
    other = Archive(scene.archive.path.with_name(name))
    other.reserve()
    scene.start()
    return other


def test_a_job_waits_for_another_one_to_succeed(scene: Scene) -> None:
    plan = {"nnodes": 1, "gpus_per_node": 8}
    earlier = waiting_for(scene, "sft-1", **plan, depends_on="sft-1", wait_for_resources=60.0)
    for state in ("RUNNING", "RETRYING"):
        earlier.set_status(state)
        scene.step(after=90)
    waits = scene.archive.steward_heartbeat()
    assert waits and (waits.place, waits.notice, scene.verbs()) == (None, "waits for sft-1 to succeed", [])
    earlier.set_status("SUCCEEDED")
    # The head does not answer the check.
    for _step in range(2):
        scene.step(after=2)
    assert scene.verbs() == ["admit"]
    scene.runner.effects["admit"] = lambda: scene.archive.write_json("config/plan.json", plan)
    scene.step(after=steward.ADMIT_RETRY_INTERVAL_SECONDS)
    scene.step(after=2)
    assert scene.verbs() == ["admit", "admit", "submit 1"]


@pytest.mark.parametrize(
    ("plan", "state"), [({"depends_on": "sft-1"}, "FAILED"), ({"env_from": {"JUDGE_URL": "sft-1"}}, "STOPPED")]
)
def test_a_job_whose_dependency_did_not_succeed_fails(scene: Scene, plan: dict[str, Any], state: str) -> None:
    waiting_for(scene, "sft-1", nnodes=1, **plan).set_status(state)
    scene.step()
    status = scene.archive.read_status()
    assert status.failure and (status.state, status.failure.kind, scene.verbs()) == ("FAILED", "dependency", [])


def test_a_job_waits_for_a_server(scene: Scene) -> None:
    server = waiting_for(scene, "judge", env_from={"JUDGE_URL": "judge"}, wait_for_resources=60.0)
    for state, address in (("SUBMITTED", "http://10.0.0.7:80"), ("RUNNING", ""), ("RUNNING", "$(id)")):
        server.set_status(state, address=address)
        scene.step(after=90)
    waits = scene.archive.steward_heartbeat()
    assert waits and (waits.notice, scene.verbs()) == ("waits for judge to answer", [])
    server.set_status("RUNNING", address="http://10.0.0.7:80")
    scene.step()
    assert scene.verbs() == ["submit 1"]


def test_two_jobs_that_wait_for_the_same_place(scene: Scene) -> None:
    """Another steward has seen the same place free, and was first."""
    scene.state("QUEUED", attempt=1, queued_at=scene.clock.now)
    other = {"status": "RUNNING", "submission_id": "two", "metadata": Demand(1, 8, 24).to_metadata()}
    scene.meanwhile = lambda: scene.head.records.update(two=other)
    scene.step()
    assert scene.verbs() == []
    assert scene.archive.read_status().state == "QUEUED"
    scene.head.records = {}
    scene.meanwhile = lambda: None
    scene.step(after=2)
    assert scene.verbs() == ["submit 1"]


def test_an_attempt_without_its_own_queue_is_stopped(tmp_path: Path) -> None:
    scene = Scene(tmp_path, transfer_queue=True)
    scene.running()
    scene.head.controllers = [{"class_name": "TransferQueueController", "job_id": "01", "state": "ALIVE"}] * 2
    scene.step()
    assert "stop 1" in scene.verbs()
    cause = attempts.stop_cause(scene.archive)
    assert cause and cause.kind == "transfer_queue"


@pytest.mark.parametrize("is_own", [False, True])
def test_the_steps_of_an_earlier_attempt_do_not_count(tmp_path: Path, is_own: bool) -> None:
    """Before its first step, an attempt has no queue yet."""
    scene = Scene(tmp_path, transfer_queue=True)
    scene.running(attempt=2)
    at = scene.clock.now + (1 if is_own else -1)
    scene.archive.write_heartbeat("heartbeat.json", time=at, step=5, total_steps=8)
    scene.step(after=1)
    scene.step(after=CONTROLLER_GONE_SECONDS + 1)
    assert ("stop 2" in scene.verbs()) is is_own


def test_the_end_waits_until_ray_has_noticed_it(scene: Scene) -> None:
    scene.running()
    scene.state("SUCCEEDED")
    before = scene.clock.now
    assert scene.step()
    assert END_RECORD_GRACE_SECONDS <= scene.clock.now - before < END_RECORD_GRACE_SECONDS + 1
    assert scene.verbs() == ["end"]


def test_an_end_without_a_launcher_is_recorded(scene: Scene) -> None:
    scene.running()
    scene.archive.metrics_file(1).write_text('{"step": 3, "data": {}}\n{"step": 4, "data": {}}\n')
    scene.archive.write_json("config/plan.json", {})
    scene.step()
    scene.head.records["one"] = {"status": "FAILED", "message": "gone", "driver_node_id": "w9"}
    assert not scene.step(after=5)
    status = scene.archive.read_status()
    assert (status.state, status.failure and status.failure.kind) == ("FAILED", "node_lost")
    assert (status.steps, status.attempt_steps) == (4, 2)
    assert [(one.kind, one.ended_at) for one in status.attempts] == [("node_lost", scene.clock.now)]
    assert scene.step()


def test_an_end_that_ray_takes_back_is_none(scene: Scene) -> None:
    """The grace period begins anew."""
    scene.running()
    scene.head.records["one"]["status"] = "FAILED"
    scene.step()
    scene.head.records["one"]["status"] = "RUNNING"
    scene.step(after=END_RECORD_GRACE_SECONDS)
    scene.head.records["one"]["status"] = "FAILED"
    scene.step(after=1)
    assert scene.archive.read_status().state == "RUNNING"


def test_evidence_of_a_start_once_for_each_attempt(scene: Scene) -> None:
    scene.running()
    for _step in range(3):
        scene.step(after=1)
    assert scene.verbs() == ["evidence start"]
    scene.running(attempt=2)
    scene.step(after=1)
    assert scene.verbs() == ["evidence start"] * 2
    # A new steward, after which all jobs would collect it at once.
    scene.start()
    scene.step(after=1)
    assert "evidence start" not in scene.verbs()[2:]
    assert scene.steward.next_periodic < scene.clock.now + steward.EVIDENCE_INTERVAL_SECONDS - 1


def test_nothing_delays_the_next_attempt(scene: Scene) -> None:
    """Neither the end of an attempt nor its clean-up is followed by a pause."""
    scene.running()
    scene.step()
    scene.head.records["one"] = {"status": "FAILED", "message": "gone", "driver_node_id": "w9"}
    scene.clock.now += HEARTBEAT_FRESH_SECONDS
    before = scene.clock.now
    for _step in range(3):
        assert not scene.steward.try_step()
    assert scene.verbs()[-2:] == ["end", "submit 2"]
    assert scene.clock.now - before == steward.STEP_INTERVAL_SECONDS


def test_an_error_does_not_end_the_steward(scene: Scene) -> None:
    scene.running()

    def fail() -> None:
        if scene.runner.calls[-1][1] == "start":
            raise OSError(errno.ESTALE, "Stale file handle")

    scene.runner.effects["evidence"] = fail

    def end(now: float) -> None:
        if now >= began + 2 and scene.runner.effects:
            scene.head.records["one"]["status"] = "SUCCEEDED"
            scene.state("SUCCEEDED")
            scene.runner.effects.clear()

    began, scene.clock.then = scene.clock.now, end
    scene.steward.run()
    assert "Stale file handle" in (scene.archive.path / "logs" / "steward.log").read_text()
    assert scene.verbs()[0] == "evidence submit" and scene.verbs()[-1] == "end"
    assert scene.events() == ["RUNNING", "KEPT", "SUCCEEDED", "CLOSED"]


def test_a_success_that_its_launcher_could_not_record(scene: Scene) -> None:
    scene.running()
    scene.head.records["one"]["status"] = "SUCCEEDED"
    scene.step()
    scene.step(after=END_RECORD_GRACE_SECONDS)
    status = scene.archive.read_status()
    assert (status.state, status.reason, status.failure) == ("SUCCEEDED", "", None)
    assert [one.state for one in status.attempts] == ["SUCCEEDED"]
    assert scene.step()
