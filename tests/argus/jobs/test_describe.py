from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from fake_ray import FakeClock

from argus.archive.archive import Archive
from argus.archive.status import Status
from argus.evidence import hardware
from argus.io.schema import parse
from argus.jobs import listing
from argus.jobs.describe import describe, merge_states
from argus.jobs.info import JobInfo
from argus.ray.api import RayHead
from argus.ray.records import JobRecord


def ray(status: str, message: str = "") -> JobRecord:
    return JobRecord.from_api({"submission_id": "grpo-1", "status": status, "message": message or None})


@pytest.mark.parametrize(
    ("status", "record", "expected"),
    [
        # Nothing is known.
        ({}, None, ("UNKNOWN", "")),
        # The head is down, or has lost the job.
        ({"state": "RUNNING"}, None, ("RUNNING", "")),
        # The archive decides.
        ({"state": "STOPPED", "reason": "signal 15"}, ray("FAILED", "exit 143"), ("STOPPED", "signal 15")),
        ({"state": "FAILED", "reason": "exit code 1"}, ray("RUNNING"), ("FAILED", "exit code 1")),
        # The launcher was killed before it could write: the steward decides whether another attempt follows.
        ({"state": "RUNNING"}, ray("FAILED", "node died"), ("RUNNING", "")),
        ({"state": "SUBMITTED", "reason": "it waits"}, ray("PENDING", "no resources"), ("PENDING", "it waits")),
        # It waits for its driver to start.
        ({"state": "SUBMITTED"}, ray("PENDING", "no resources"), ("PENDING", "no resources")),
        ({"state": "SUBMITTED"}, ray("RUNNING", "Job is currently running."), ("RUNNING", "")),
        # It waits for its first or its next attempt, which Ray does not know yet.
        ({"state": "QUEUED", "reason": "no room"}, None, ("QUEUED", "no room")),
        ({"state": "RETRYING", "reason": "a node was lost"}, ray("RUNNING"), ("RETRYING", "a node was lost")),
    ],
)
def test_the_state_of_a_job(status: dict[str, Any], record: JobRecord | None, expected: tuple[str, str]) -> None:
    assert merge_states(parse(Status, status), record) == expected


def test_a_job_without_a_head(archive: Archive) -> None:
    archive.set_status("RUNNING", started_at=10.5, workload="sft", driver={"host": "worker-0", "pid": 7})
    failure = {"kind": "gpu_oom", "reason": "CUDA out of memory", "lines": ["a", "b"], "todo": "less", "node": ""}
    first = {"attempt": 1, "state": "FAILED", "kind": "killed", "reason": "", "started_at": 1.0, "ended_at": 2.0}
    archive.set_status("FAILED", ended_at=20.5, reason="exit code 1", failure=failure, attempts=[first])
    archive.driver_log.write_text("a\nb\n")
    archive.write_json("config/job_spec.json", {"workload": "sft"})
    os.utime(archive.path / "config" / "job_spec.json", (9.5, 9.5))
    job = describe(archive, None, tail=1)
    assert (job.state, job.ended, job.reason, job.driver_host) == ("FAILED", True, "exit code 1", "worker-0")
    assert (job.submitted_at, job.started_at, job.ended_at) == (9.5, 10.5, 20.5)
    assert (job.log, job.log_position, job.unattended) == (("b",), "1:4", False)
    stored = json.loads(json.dumps(job.to_json()))
    assert stored["failure"] == failure
    # As an action plugin gets it, with a key that the verb has added.
    assert JobInfo.from_json({**stored, "jobspec": {}}) == job


def beat(archive: Archive, age: float, **more: Any) -> None:
    archive.write_json("heartbeat.json", {"time": time.time() - age, **more})


def test_a_running_job_with_its_heartbeat(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.set_status("RUNNING", started_at=10.5, ended_at=9.5, attempt=2, failure={"kind": "node_lost"})
    beat(archive, 5, step=4, total_steps=12, first_step=1, first_step_at=time.time() - 65)
    job = describe(archive, None, tail=0)
    assert (job.attempt, job.ended_at, job.failure, job.progress.total_steps) == (2, None, None, 12)
    assert (job.time_left, job.silent_for) == (pytest.approx(160, abs=1), pytest.approx(5, abs=1))
    # It needs 160 s more than its machines may have.
    for left, kinds in ((170, []), (150, ["time_limit"])):
        monkeypatch.setenv("ARGUS_VERL_STOP_AT", str(time.time() + left))
        assert [warning.kind for warning in describe(archive, None, tail=0).warnings] == kinds
    assert job.gpu_percent is None
    # A number that a job has put there is none of a GPU.
    for at, percents in enumerate(((60.0, 90.0, None), (1e308,), (-5.0,)), 1):
        usage = hardware.Usage(gpus=tuple(map(hardware.Gpu, percents)))
        hardware.append(archive, hardware.Measurement(float(at), {"gpu-1": usage}))
    assert describe(archive, None, tail=0).gpu_percent == 75
    archive.set_status("SUCCEEDED", ended_at=20.5)
    job = describe(archive, None, tail=0)
    assert (job.ended_at, job.time_left, job.silent_for, job.warnings) == (20.5, None, None, ())


class RestartedHead(RayHead):
    """A head that was restarted."""

    def job(self, submission_id: str) -> None:
        return None


@pytest.mark.parametrize("state", ["QUEUED", "SUBMITTED", "RUNNING"])
def test_a_job_that_a_restarted_head_has_lost_waits_for_its_steward(archive: Archive, state: str) -> None:
    """Only the steward knows whether another attempt follows."""
    archive.set_status(state, reason="as it was told last")
    # Neither its launcher nor its steward writes.
    beat(archive, 300)
    archive.write_json("steward.json", {"time": time.time() - 300})
    archive.write_json("status.json", {**archive.status_json(), "updated_at": "2026-01-01T00:00:00.000Z"})
    job = describe(archive, RestartedHead(""), tail=0)
    assert (job.state, job.ended, job.failure, job.unattended) == (state, False, None, True)
    assert job.reason == "as it was told last"
    assert "steward" in job.notice and "the head was restarted" in job.notice
    # Without an answer, it is not known what the head knows; and nothing listens on port 1.
    away = describe(archive, RayHead("http://127.0.0.1:1"), tail=0)
    assert "refused" in away.problem and away.head_away_for == pytest.approx(300, abs=2)
    assert "restarted" not in describe(archive, None, tail=0).notice
    archive.write_json("steward.json", {"time": time.time() - 5, "notice": "waits for GPUs"})
    job = describe(archive, RestartedHead(""), tail=0)
    assert (job.state, job.unattended, job.notice) == (state, False, "waits for GPUs")
    # The reason of a submission that was queued is old.
    assert bool(job.reason) == (state != "QUEUED")


def test_waiting_ends_with_the_job(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(1000.0)
    monkeypatch.setattr(listing, "time", clock)
    archive.set_status("RUNNING")
    clock.then = lambda now: archive.set_status("SUCCEEDED", ended_at=0.0) if now == 1002 else None
    job = listing.wait_and_describe(archive, None, 0, timeout=30)
    assert (job.state, job.ended, clock.now) == ("SUCCEEDED", True, 1002)
