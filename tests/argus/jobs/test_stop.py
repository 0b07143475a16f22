from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_ray import FakeClock, FakeRay

from argus.archive.archive import Archive
from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.services import Effect, OperationError, Services
from argus.jobs.stop import STOP_TIMEOUT_SECONDS, stop

ADDRESS = "http://127.0.0.1:8299"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "private" / "jobs" / "sft-1")
    made.reserve()
    made.write_json("config/plan.json", {"address": ADDRESS, "workload": "sft", "retries": 3})
    return made


@pytest.fixture
def ray(archive: Archive) -> FakeRay:
    """A head on which a stopped job ends as the launcher or the steward would end it."""
    return FakeRay(on_stop=lambda _identifier: archive.set_status("STOPPED"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def services(archive: Archive, ray: FakeRay, clock: FakeClock) -> Services:
    registry = Registry(archive.path.parents[2] / "registry")
    registry.path.mkdir()
    registry.write(RegisteredJob("sft-1", 1.0, {}, str(archive.path.parents[1])))
    return ray.services(registry, clock, ADDRESS)


def stopped(archive: Archive, services: Services, check_mode: bool = False) -> Effect:
    return stop(str(archive.path.parent.parent), archive.submission_id, services, check_mode)


@pytest.mark.parametrize(
    ("attempt", "identifier", "status", "call"),
    [
        (1, "sft-1", "RUNNING", "stop_job"),
        (2, "sft-1~2", "RUNNING", "stop_job"),
        # For it, Ray's stop_job returns True and does nothing.
        (1, "sft-1", "PENDING", "cancel_pending"),
    ],
)
def test_an_active_job(
    archive: Archive, ray: FakeRay, services: Services, attempt: int, identifier: str, status: str, call: str
) -> None:
    archive.set_status("RUNNING", attempt=attempt)
    archive.write_heartbeat("steward.json", time=time.time())
    ray.statuses |= {"sft-1": "FAILED", identifier: status}
    result = stopped(archive, services)
    assert ray.changes == [(call, identifier)]
    assert archive.stop_requested()
    assert (result.result["state"], result.result["checkpoint"]) == ("STOPPED", None)
    assert result.result["diff"] == {"before": "RUNNING\n", "after": "STOPPED\n"}


@pytest.mark.parametrize("state", ["QUEUED", "ENDING"])
def test_a_job_without_an_attempt_is_ended_by_its_steward(
    archive: Archive, ray: FakeRay, clock: FakeClock, services: Services, state: str
) -> None:
    archive.set_status(state, ended_at=0.0)
    archive.write_heartbeat("steward.json", time=time.time())
    ray.statuses["sft-1"] = "FAILED"
    clock.then = lambda now: now > 3 and archive.stop_requested() and archive.set_status("STOPPED")
    result = stopped(archive, services)
    assert (result.result["diff"]["before"].strip(), result.result["state"]) == (state, "STOPPED")
    assert ray.changes == []


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING"])
def test_a_job_of_no_steward_that_ray_does_not_know(
    archive: Archive, ray: FakeRay, services: Services, state: str
) -> None:
    """Another head has submitted it, which is gone."""
    services.registry.remove("sft-1")
    archive.set_status(state, ended_at=0.0)
    assert stopped(archive, services).result["state"] == "STOPPED"
    # Nothing else would close its archive, and remove its secrets.
    assert archive.read_status().closed_at
    assert ray.changes == []


def test_a_head_that_does_not_answer(archive: Archive, ray: FakeRay, services: Services) -> None:
    archive.set_status("RUNNING")
    archive.write_heartbeat("steward.json", time=time.time())
    ray.answers = False
    with pytest.raises(OperationError, match="could not be stopped: "):
        stopped(archive, services)
    # The steward, if there is one, stops the job nevertheless.
    assert archive.stop_requested()
    assert archive.read_status().state == "RUNNING"


def test_a_job_that_does_not_end(archive: Archive, ray: FakeRay, clock: FakeClock, services: Services) -> None:
    archive.set_status("RUNNING")
    archive.write_heartbeat("steward.json", time=time.time())
    ray.statuses["sft-1"] = "RUNNING"
    ray.on_stop = lambda _identifier: None
    with pytest.raises(OperationError, match="still running"):
        stopped(archive, services)
    assert STOP_TIMEOUT_SECONDS <= clock.now < STOP_TIMEOUT_SECONDS + 1


def test_a_job_that_has_damaged_its_archive_is_stopped(archive: Archive, ray: FakeRay, services: Services) -> None:
    archive.set_status("RUNNING")
    (archive.path / "status.json").write_text("[" * 100_000)
    (archive.path / "config" / "plan.json").write_text("1")
    ray.statuses.update({"sft-1~2": "RUNNING", "sft-10": "RUNNING"})
    ray.on_stop = lambda _identifier: None
    result = stopped(archive, services)
    assert (result.changed, result.result["state"]) == (True, "STOPPED")
    assert [call for call in ray.calls if call[0] == "stop_job"] == [("stop_job", "sft-1~2")]
    assert "its status was lost" in archive.read_status().reason
    assert result.result["diff"]["before"] == "unknown\n"


def test_the_checkpoint_to_resume_from_is_named(archive: Archive, services: Services) -> None:
    archive.set_status("STOPPED", workload="sft")
    directory = archive.path / "checkpoints" / "global_step_7"
    directory.mkdir()
    (archive.path / "checkpoints" / "latest_checkpointed_iteration.txt").write_text("7")
    assert stopped(archive, services).result["checkpoint"] is None
    (directory / "config.json").write_text("{}")
    assert stopped(archive, services).result["checkpoint"] == 7
    archive.set_status("SUCCEEDED", workload="sft")
    assert stopped(archive, services).result["checkpoint"] is None
