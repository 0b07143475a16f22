from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.job_state import (
    LOG_HEAD_BYTES,
    describe,
    log_tail,
    merge_states,
    progress,
    progress_line,
    total_steps,
    wait_for_end,
)
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.ray_api import RayHead


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "grpo-1")
    made.reserve()
    return made


def ray(status: str, message: str = "") -> dict[str, Any]:
    return {"submission_id": "grpo-1", "status": status, "message": message or None}


@pytest.mark.parametrize(
    ("status", "job", "expected"),
    [
        # Nothing is known at all.
        ({}, None, ("UNKNOWN", "")),
        # The head is down, or has forgotten the job.
        ({"state": "RUNNING"}, None, ("RUNNING", "")),
        ({"state": "SUBMITTED"}, None, ("SUBMITTED", "")),
        # The archive has the last word.
        ({"state": "STOPPED", "reason": "signal 15"}, ray("FAILED", "exit 143"), ("STOPPED", "signal 15")),
        ({"state": "SUCCEEDED"}, ray("RUNNING"), ("SUCCEEDED", "")),
        ({"state": "FAILED", "reason": "exit code 1"}, ray("RUNNING"), ("FAILED", "exit code 1")),
        # The launcher could not write any more.
        ({"state": "RUNNING"}, ray("FAILED", "node died"), ("FAILED", "node died")),
        ({"state": "SUBMITTED"}, ray("FAILED", "setup failed"), ("FAILED", "setup failed")),
        ({"state": "RUNNING"}, ray("STOPPED"), ("STOPPED", "")),
        # It waits for its driver.
        ({"state": "SUBMITTED"}, ray("PENDING", "no resources"), ("PENDING", "no resources")),
        ({"state": "SUBMITTED"}, ray("RUNNING"), ("RUNNING", "")),
        ({"state": "RUNNING"}, ray("RUNNING"), ("RUNNING", "")),
        # No archive: somebody else's job.
        ({}, ray("RUNNING"), ("RUNNING", "")),
    ],
)
def test_the_state_of_a_job(status: dict[str, Any], job: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    assert merge_states(status, job) == expected


# --- The log ----------------------------------------------------------------------------------------------------------


def test_the_tail_of_no_log(archive: Archive) -> None:
    assert log_tail(archive, 5) == []
    archive.driver_log.write_text("")
    assert log_tail(archive, 5) == []
    archive.driver_log.write_text("a\n")
    assert log_tail(archive, 0) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\nc\n", ["b", "c"]),
        ("a\nb\nc", ["b", "c"]),
        ("a", ["a"]),
        ("a\n\n\n\nb\n\n\n", ["a", "b"]),
        # A bar shows what it showed last, also when a step's line follows on the same line.
        ("x\n 10%|#\r 50%|##\r100%|###\nend\n", ["100%|###", "end"]),
        ("x\n 10%|#\r 50%|##\r", ["x", " 50%|##"]),
        ("x\n 50%|##\rstep:1 - train/loss:5.96\n", ["x", "step:1 - train/loss:5.96"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\r\n\r\nb\n", ["a", "b"]),
    ],
)
def test_the_tail_of_a_log(archive: Archive, text: str, lines: list[str]) -> None:
    archive.driver_log.write_bytes(text.encode())
    assert log_tail(archive, 2) == lines


def test_the_tail_of_a_huge_log_is_not_all_of_it(archive: Archive) -> None:
    with archive.driver_log.open("wb") as log:
        log.truncate(1 << 30)
        log.seek(0, 2)
        log.write("\nfirst ü\n \x1b[36mlast\x1b[0m\n".encode())
    started = time.monotonic()
    assert log_tail(archive, 2) == ["first ü", " \x1b[36mlast\x1b[0m"]
    assert time.monotonic() - started < 1


def test_a_log_that_is_no_text(archive: Archive) -> None:
    archive.driver_log.write_bytes(b"\xff\xfe\n")
    assert log_tail(archive, 1) == ["\ufffd\ufffd"]


def test_the_number_of_steps(archive: Archive) -> None:
    assert total_steps(archive) is None
    archive.driver_log.write_text("loading\n")
    assert total_steps(archive) is None
    archive.driver_log.write_text("loading\n(TaskRunner pid=7) Total training steps: 120\nstep:1\n")
    assert total_steps(archive) == 120


def test_the_number_of_steps_is_looked_for_at_the_beginning(archive: Archive) -> None:
    archive.driver_log.write_bytes(b"x" * LOG_HEAD_BYTES + b"\nTotal training steps: 9\n")
    assert total_steps(archive) is None


# --- Progress ---------------------------------------------------------------------------------------------------------


def metrics(archive: Archive, *entries: tuple[int, dict[str, float]], attempt: int = 1) -> None:
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in entries]
    (archive.path / "logs" / f"metrics-{attempt}.jsonl").write_text("".join(lines))


def test_progress_before_the_first_step(archive: Archive) -> None:
    nothing = {"step": 0, "total_steps": None, "first": None, "last": None}
    assert progress(archive, "sft") == {**nothing, "metric": "train/loss"}
    assert progress(archive, "") == {**nothing, "metric": ""}


def test_progress(archive: Archive) -> None:
    archive.driver_log.write_text("Total training steps: 12\n")
    metrics(archive, (1, {"critic/rewards/mean": 0.125, "x": 1}), (2, {"critic/rewards/mean": 0.25}), (3, {"x": 2}))
    expected = {"step": 3, "total_steps": 12, "metric": "critic/rewards/mean", "first": 0.125, "last": 0.25}
    assert progress(archive, "grpo") == progress(archive, "ppo") == expected
    assert progress(archive, "sft")["last"] is None


def test_progress_of_a_second_attempt(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (2, {"train/loss": 5}), (3, {"train/loss": 4.5}))
    metrics(archive, (3, {"train/loss": 4.25}), attempt=2)
    assert progress(archive, "sft") == {
        "step": 3,
        "total_steps": None,
        "metric": "train/loss",
        "first": 6.0,
        "last": 4.25,
    }


def info(**changes: Any) -> dict[str, Any]:
    seen = {"step": 3, "total_steps": 12, "metric": "train/loss", "first": 6.0, "last": 4.25}
    return {
        "submission_id": "sft-1",
        "state": "RUNNING",
        "started_at": 1000.0,
        "ended_at": None,
        "progress": seen,
    } | changes


NOT_YET = {"step": 0, "total_steps": None, "metric": "train/loss", "first": None, "last": None}


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (info(), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05"),
        (info(state="SUCCEEDED", ended_at=1009.9), "sft-1  SUCCEEDED  step 3/12  train/loss 4.250  0:09"),
        (info(progress=NOT_YET, started_at=None, state="PENDING"), "sft-1  PENDING"),
        (info(progress=NOT_YET), "sft-1  RUNNING  1:05"),
        (info(progress={**NOT_YET, "total_steps": 12}), "sft-1  RUNNING  step 0/12  1:05"),
        (info(progress={**NOT_YET, "step": 2}), "sft-1  RUNNING  step 2  1:05"),
        (info(progress={**NOT_YET, "step": 2, "last": 0.0}), "sft-1  RUNNING  step 2  train/loss 0.000  1:05"),
    ],
)
def test_one_line_of_progress(job: dict[str, Any], line: str) -> None:
    assert progress_line(job, now=1065.7) == line


# --- All of it --------------------------------------------------------------------------------------------------------


def test_a_job_of_which_only_the_archive_is_left(archive: Archive) -> None:
    archive.set_status("SUBMITTED", workload="sft", code_id="verl-0.9.1")
    archive.set_status("RUNNING", started_at=10.5, driver={"host": "worker-0", "pid": 7})
    archive.set_status("FAILED", ended_at=20.5, reason="the trainer ended with exit code 1")
    archive.driver_log.write_text("a\nb\n")
    (archive.path / "checkpoints" / "global_step_10").mkdir()
    assert describe(archive, None, tail=1) == {
        "submission_id": "grpo-1",
        "state": "FAILED",
        "ended": True,
        "reason": "the trainer ended with exit code 1",
        "workload": "sft",
        "code_id": "verl-0.9.1",
        "started_at": 10.5,
        "ended_at": 20.5,
        "driver_host": "worker-0",
        "driver_node_id": None,
        "driver_node_ip": None,
        "progress": progress(archive, "sft"),
        "checkpoints": [10],
        "archive": str(archive.path),
        "log": ["b"],
        "problem": "",
    }


def test_a_head_that_does_not_answer_is_a_problem_and_no_error(archive: Archive) -> None:
    archive.set_status("RUNNING")
    # Port 1 is nobody's.
    job = describe(archive, RayHead("http://127.0.0.1:1"), tail=0)
    assert (job["state"], job["ended"], job["log"]) == ("RUNNING", False, [])
    assert "Connection refused" in job["problem"]


class KnowsNoJob(http.server.BaseHTTPRequestHandler):
    """A head that was started anew."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def forgetful() -> Iterator[RayHead]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), KnowsNoJob) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield RayHead(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


def test_a_job_that_the_head_has_forgotten_has_failed(archive: Archive, forgetful: RayHead) -> None:
    archive.set_status("RUNNING")
    job = describe(archive, forgetful, tail=0)
    assert (job["state"], job["ended"]) == ("FAILED", True)
    assert "its jobs are lost" in job["reason"]


def test_a_job_that_is_being_submitted_has_not(archive: Archive, forgetful: RayHead) -> None:
    archive.set_status("SUBMITTED")
    assert describe(archive, forgetful, tail=0)["state"] == "SUBMITTED"
    long_ago = {**archive.status(), "updated_at": "2026-01-01T00:00:00.000Z"}
    archive.write_json("status.json", long_ago)
    assert describe(archive, forgetful, tail=0)["state"] == "FAILED"


def test_the_end_that_the_archive_tells_stands(archive: Archive, forgetful: RayHead) -> None:
    archive.set_status("SUCCEEDED")
    assert describe(archive, forgetful, tail=0)["state"] == "SUCCEEDED"


def test_waiting_ends_when_the_job_does(archive: Archive) -> None:
    archive.set_status("RUNNING")
    timer = threading.Timer(0.3, archive.set_status, ("SUCCEEDED",))
    timer.start()
    started = time.monotonic()
    job = wait_for_end(archive, None, 0, timeout=30)
    timer.join()
    assert (job["state"], job["ended"]) == ("SUCCEEDED", True)
    assert 0.3 <= time.monotonic() - started < 3


def test_waiting_ends_when_its_time_is_over(archive: Archive) -> None:
    archive.set_status("RUNNING")
    started = time.monotonic()
    assert wait_for_end(archive, None, 0, timeout=0.2)["state"] == "RUNNING"
    assert 0.2 <= time.monotonic() - started < 2


def test_an_ended_job_is_not_waited_for(archive: Archive) -> None:
    archive.set_status("STOPPED")
    started = time.monotonic()
    assert wait_for_end(archive, None, 0, timeout=30)["state"] == "STOPPED"
    assert time.monotonic() - started < 0.4
