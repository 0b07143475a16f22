from __future__ import annotations

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_ray import FakeClock

from argus.archive.archive import Archive, Heartbeat
from argus.archive.status import Status
from argus.evidence import hardware
from argus.io.schema import parse
from argus.jobs import state
from argus.jobs.info import JobInfo, Progress
from argus.jobs.progress import progress
from argus.jobs.state import (
    CLOSING_SECONDS,
    describe,
    merge_states,
    wait_for_end,
)
from argus.ray.api import JobRecord, RayHead


def ray(status: str, message: str = "") -> JobRecord:
    return JobRecord.from_api({"submission_id": "grpo-1", "status": status, "message": message or None})


@pytest.mark.parametrize(
    ("status", "record", "expected"),
    [
        # Nothing is known.
        ({}, None, ("UNKNOWN", "")),
        # The head is down, or has lost the job.
        ({"state": "RUNNING"}, None, ("RUNNING", "")),
        ({"state": "SUBMITTED"}, None, ("SUBMITTED", "")),
        # The archive decides.
        ({"state": "STOPPED", "reason": "signal 15"}, ray("FAILED", "exit 143"), ("STOPPED", "signal 15")),
        ({"state": "SUCCEEDED"}, ray("RUNNING"), ("SUCCEEDED", "")),
        ({"state": "FAILED", "reason": "exit code 1"}, ray("RUNNING"), ("FAILED", "exit code 1")),
        # The launcher was killed before it could write: the steward decides whether another attempt follows.
        ({"state": "RUNNING"}, ray("FAILED", "node died"), ("RUNNING", "")),
        ({"state": "SUBMITTED"}, ray("FAILED", "setup failed"), ("SUBMITTED", "")),
        ({"state": "RUNNING", "reason": "it stalls"}, ray("STOPPED"), ("RUNNING", "it stalls")),
        ({"state": "SUBMITTED", "reason": "it waits"}, ray("PENDING", "no resources"), ("PENDING", "it waits")),
        # It waits for its driver to start.
        ({"state": "SUBMITTED"}, ray("PENDING", "no resources"), ("PENDING", "no resources")),
        ({"state": "SUBMITTED"}, ray("RUNNING"), ("RUNNING", "")),
        ({"state": "RUNNING"}, ray("RUNNING", "Job is currently running."), ("RUNNING", "")),
        ({"state": "SUBMITTED"}, ray("RUNNING", "Job is currently running."), ("RUNNING", "")),
        # It waits for its first or its next attempt, which Ray does not know yet.
        ({"state": "QUEUED", "reason": "no room"}, None, ("QUEUED", "no room")),
        ({"state": "RETRYING", "reason": "a node was lost"}, ray("RUNNING"), ("RETRYING", "a node was lost")),
        # There is no archive.
        ({}, ray("RUNNING"), ("RUNNING", "")),
    ],
)
def test_the_state_of_a_job(status: dict[str, Any], record: JobRecord | None, expected: tuple[str, str]) -> None:
    assert merge_states(parse(Status, status), record) == expected


def test_a_job_without_a_head(archive: Archive) -> None:
    archive.set_status("SUBMITTED", workload="sft", code_id="verl-0.9.1")
    archive.set_status("RUNNING", started_at=10.5, driver={"host": "worker-0", "pid": 7})
    archive.set_status("FAILED", ended_at=20.5, reason="the trainer ended with exit code 1")
    archive.driver_log.write_text("a\nb\n")
    archive.write_json("config/job_spec.json", {"workload": "sft"})
    os.utime(archive.path / "config" / "job_spec.json", (9.5, 9.5))
    job = describe(archive, None, tail=1)
    assert (job.state, job.ended, job.reason) == ("FAILED", True, "the trainer ended with exit code 1")
    assert (job.workload, job.code_id, job.archive) == ("sft", "verl-0.9.1", str(archive.path))
    assert (job.submitted_at, job.started_at, job.ended_at) == (9.5, 10.5, 20.5)
    assert (job.driver_host, job.log, job.log_position) == ("worker-0", ("b",), "1:4")
    assert job.progress == progress(archive, Status(workload="sft"), Heartbeat())
    assert (job.silent_for, job.time_left, job.head_away_for, job.unattended) == (None, None, None, False)


def beat(archive: Archive, age: float, **more: Any) -> None:
    archive.write_json("heartbeat.json", {"time": time.time() - age, **more})


def test_a_running_job_with_its_heartbeat(archive: Archive) -> None:
    archive.set_status("RUNNING", started_at=10.5, ended_at=9.5, attempt=2, failure={"kind": "node_lost"})
    beat(archive, 5, step=4, total_steps=12, first_step=1, first_step_at=time.time() - 65)
    job = describe(archive, None, tail=0)
    assert (job.attempt, job.ended_at, job.failure) == (2, None, None)
    assert job.time_left == pytest.approx(160, abs=1)
    assert job.silent_for == pytest.approx(5, abs=1)
    assert job.progress.total_steps == 12
    assert job.gpu_percent is None
    for at, percents in enumerate(((1.0, 2.0), (60.0, 90.0, None)), 1):
        usage = hardware.Usage(gpus=tuple(map(hardware.Gpu, percents)))
        hardware.append(archive, hardware.Measurement(float(at), {"gpu-1": usage}))
    assert describe(archive, None, tail=0).gpu_percent == pytest.approx(38.25)
    for at, percent in enumerate((1e308, 1e308, -5.0), 3):
        hardware.append(
            archive, hardware.Measurement(float(at), {"gpu-1": hardware.Usage(gpus=(hardware.Gpu(percent),))})
        )
    # A number that a job has put there is none of a GPU.
    assert describe(archive, None, tail=0).gpu_percent == 75
    archive.set_status("SUCCEEDED", ended_at=20.5)
    job = describe(archive, None, tail=0)
    assert (job.ended_at, job.time_left, job.silent_for) == (20.5, None, None)


def test_a_job_whose_pace_does_not_fit_the_time_of_its_machines(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.set_status("RUNNING", started_at=10.5)
    beat(archive, 0, step=4, total_steps=12, first_step=1, first_step_at=time.time() - 60)
    # It needs 160 s more.
    for left, kinds in ((170, []), (150, ["time_limit"])):
        monkeypatch.setenv("ARGUS_VERL_STOP_AT", str(time.time() + left))
        assert [warning.kind for warning in describe(archive, None, tail=0).warnings] == kinds
    archive.set_status("SUCCEEDED", ended_at=20.5)
    assert describe(archive, None, tail=0).warnings == ()


def test_a_head_that_does_not_answer_is_a_problem_but_not_an_error(archive: Archive) -> None:
    archive.set_status("RUNNING")
    # Nothing listens on port 1.
    job = describe(archive, RayHead("http://127.0.0.1:1"), tail=0)
    assert (job.state, job.ended, job.log) == ("RUNNING", False, ())
    assert "Connection refused" in job.problem
    assert job.head_away_for is None
    archive.write_json("steward.json", {"time": time.time() - 40})
    assert describe(archive, RayHead("http://127.0.0.1:1"), tail=0).head_away_for == pytest.approx(40, abs=1)


class RestartedHead(http.server.BaseHTTPRequestHandler):
    """A head that was restarted."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def restarted_head() -> Iterator[RayHead]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), RestartedHead) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield RayHead(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def long_silent(archive: Archive, state: str, launcher: float = 300.0) -> None:
    """A job whose steward, and whose launcher since so many seconds, write no more."""
    archive.set_status(state, reason="as it was told last")
    beat(archive, launcher)
    archive.write_json("steward.json", {"time": time.time() - 300})
    archive.write_json("status.json", {**archive.status_json(), "updated_at": "2026-01-01T00:00:00.000Z"})


@pytest.mark.parametrize("state", ["QUEUED", "SUBMITTED", "RUNNING", "ENDING", "RETRYING"])
def test_a_job_that_a_restarted_head_has_lost_waits_for_its_steward(
    archive: Archive, restarted_head: RayHead, state: str
) -> None:
    """Only the steward knows whether another attempt follows."""
    long_silent(archive, state)
    job = describe(archive, restarted_head, tail=0)
    assert (job.state, job.ended, job.failure, job.unattended) == (state, False, None, True)
    assert job.reason == "as it was told last"
    assert "steward" in job.notice and "the head was restarted" in job.notice
    # Without an answer, it is not known what the head knows.
    assert "restarted" not in describe(archive, None, tail=0).notice
    archive.write_json("steward.json", {"time": time.time() - 5, "notice": "waits for GPUs"})
    job = describe(archive, restarted_head, tail=0)
    assert (job.state, job.unattended, job.notice) == (state, False, "waits for GPUs")
    # The reason of a submission that was queued is old.
    assert bool(job.reason) == (state != "QUEUED")


# --- Waiting ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock(1000.0)
    monkeypatch.setattr(state, "time", clock)
    return clock


def test_waiting_ends_with_the_job(archive: Archive, clock: FakeClock) -> None:
    archive.set_status("RUNNING")
    clock.then = lambda now: archive.set_status("SUCCEEDED", ended_at=0.0) if now == 1002 else None
    job = wait_for_end(archive, None, 0, timeout=30)
    assert (job.state, job.ended, clock.now) == ("SUCCEEDED", True, 1002)


def test_waiting_ends_when_the_log_grows(archive: Archive, clock: FakeClock) -> None:
    archive.set_status("RUNNING")
    archive.driver_log.write_text("a\n")
    clock.then = lambda now: archive.driver_log.write_text("a\nb\n") if now == 1002 else None
    job = wait_for_end(archive, None, 0, timeout=30, position="1:2")
    assert (job.state, job.log, job.log_position, clock.now) == ("RUNNING", ("b",), "1:4", 1002)


def test_a_job_without_its_final_evidence_ends_at_last(archive: Archive, clock: FakeClock) -> None:
    archive.set_status("FAILED", ended_at=1000.0)
    assert not describe(archive, None, tail=0).ended
    clock.now += CLOSING_SECONDS + 1
    assert describe(archive, None, tail=0).ended


# --- Ray's record and the archive -------------------------------------------------------------------------------------


def test_a_job_survives_json(archive: Archive) -> None:
    failure = {"kind": "gpu_oom", "reason": "CUDA out of memory", "lines": ["a", "b"], "todo": "less", "node": ""}
    first = {"attempt": 1, "state": "FAILED", "kind": "killed", "reason": "", "started_at": 1.0, "ended_at": 2.0}
    archive.set_status("FAILED", failure=failure, attempts=[first], tags={"team": "a"}, attempt=2)
    archive.driver_log.write_text("a\nb\n")
    job = describe(archive, None, tail=5)
    stored = json.loads(json.dumps(job.to_json()))
    assert JobInfo.from_json(stored) == job
    assert stored["failure"] == failure
    assert stored["attempts"] == [{**first, "resumed_from": None, "phases": {}}]
    assert stored["log"] == ["a", "b"]
    # As an action plugin gets it, with a key that the module has added.
    assert JobInfo.from_json({**stored, "jobspec": {}}) == job


def saved(archive: Archive, *steps: int) -> None:
    """Checkpoints of GRPO. Of others, which it no longer keeps or is writing, verl has other files."""
    directory = archive.path / "checkpoints"
    for step in (*range(2, steps[0], 2), *steps, steps[-1] + 2):
        (directory / f"global_step_{step}").mkdir()
        (directory / f"global_step_{step}" / "data.pt").touch()
    for step in steps:
        (directory / f"global_step_{step}" / "actor").mkdir()
        (directory / f"global_step_{step}" / "actor" / "config.json").touch()
    (directory / "latest_checkpointed_iteration.txt").write_text(str(steps[-1]))


def asked(archive: Archive, timeout: float = 0.0) -> JobInfo:
    return wait_for_end(archive, None, 1, timeout)


@pytest.mark.parametrize("state_of_job", ["RUNNING", "RETRYING", "STOPPED", "FAILED", "SUCCEEDED"])
def test_only_complete_checkpoints_are_listed(archive: Archive, state_of_job: str) -> None:
    saved(archive, 8, 10)
    archive.set_status(state_of_job, workload="grpo", ended_at=0.0)
    job = asked(archive)
    assert job.checkpoints == (8, 10)
    assert job.resumable == (10 if state_of_job in ("STOPPED", "FAILED") else None)


@pytest.mark.parametrize(("workload", "shown"), [("grpo", "loading weights"), ("command", "")])
def test_a_command_has_no_phase_of_a_trainer(workload: str, shown: str) -> None:
    """It may be a server that loads a model."""
    beat = Heartbeat(phase="loading weights")
    assert state.phase(beat, Status(workload=workload, attempt=1), Progress()) == shown
