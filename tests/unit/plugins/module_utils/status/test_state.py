from __future__ import annotations

import http.server
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import log
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import RayHead
from ansible_collections.argus.verl.plugins.module_utils.status.listing import recent, unknown_job
from ansible_collections.argus.verl.plugins.module_utils.status.logs import log_since, log_tail
from ansible_collections.argus.verl.plugins.module_utils.status.progress import (
    METRICS_BYTES,
    progress,
    progress_line,
    time_left,
    total_steps,
)
from ansible_collections.argus.verl.plugins.module_utils.status.state import describe, merge_states, wait_for_end
from ansible_collections.argus.verl.plugins.module_utils.text import duration


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
        ({"state": "RUNNING"}, ray("RUNNING", "Job is currently running."), ("RUNNING", "")),
        ({"state": "SUBMITTED"}, ray("RUNNING", "Job is currently running."), ("RUNNING", "")),
        # It waits for its first or its next attempt, of which Ray knows nothing.
        ({"state": "QUEUED", "reason": "no room"}, None, ("QUEUED", "no room")),
        ({"state": "RETRYING", "reason": "a node was lost"}, ray("RUNNING"), ("RETRYING", "a node was lost")),
        # No archive: somebody else's job.
        ({}, ray("RUNNING"), ("RUNNING", "")),
    ],
)
def test_the_state_of_a_job(status: dict[str, Any], job: dict[str, Any] | None, expected: tuple[str, str]) -> None:
    assert merge_states(status, job) == expected


# --- The log ----------------------------------------------------------------------------------------------------------


def test_the_tail_of_no_log(archive: Archive) -> None:
    assert log_tail(archive, 5) == ([], "1:0")
    archive.driver_log.write_text("")
    assert log_tail(archive, 5) == ([], "1:0")
    archive.driver_log.write_text("a\n")
    assert log_tail(archive, 0) == ([], "1:2")


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
    assert log_tail(archive, 2) == (lines, f"1:{len(text)}")


def test_the_tail_of_a_huge_log_is_not_all_of_it(archive: Archive) -> None:
    with archive.driver_log.open("wb") as log:
        log.truncate(1 << 30)
        log.seek(0, 2)
        log.write("\nfirst ü\n \x1b[36mlast\x1b[0m\n".encode())
    started = time.monotonic()
    assert log_tail(archive, 2)[0] == ["first ü", " \x1b[36mlast\x1b[0m"]
    assert time.monotonic() - started < 1


def test_a_log_that_is_no_text(archive: Archive) -> None:
    archive.driver_log.write_bytes(b"\xff\xfe\n")
    assert log_tail(archive, 1)[0] == ["\ufffd\ufffd"]


def rename(archive: Archive, number: int) -> None:
    """As the launcher does with a part that is full."""
    archive.driver_log.rename(archive.driver_log.with_name(f"driver.log.{number}"))
    archive.driver_log.touch()


def append(archive: Archive, text: str) -> None:
    with archive.driver_log.open("a") as log:
        log.write(text)


def test_the_tail_of_a_log_that_was_renamed_a_moment_ago(archive: Archive) -> None:
    append(archive, "a\nb\n")
    rename(archive, 1)
    assert log_tail(archive, 2) == (["a", "b"], "2:0")
    append(archive, "c\n")
    assert log_tail(archive, 2) == (["b", "c"], "2:2")


def test_reading_on_from_a_place(archive: Archive) -> None:
    assert log_since(archive, "") == ([], "")
    append(archive, "a\nb\nhalf")
    assert log_since(archive, "") == (["a", "b"], "1:4")
    assert log_since(archive, "1:2") == (["b"], "1:4")
    assert log_since(archive, "1:4") == ([], "1:4")
    append(archive, " a line\n")
    assert log_since(archive, "1:4") == (["half a line"], "1:16")


def test_the_last_line_without_an_end_counts_when_nothing_follows(archive: Archive) -> None:
    append(archive, "a\n 50%|##\r 60%|##")
    assert log_since(archive, "1:0", final=True) == (["a", " 60%|##"], "1:17")
    assert log_since(archive, "1:17", final=True) == ([], "1:17")


def test_a_place_stays_right_over_renaming(archive: Archive) -> None:
    append(archive, "a\nb, begun")
    lines, place = log_since(archive, "")
    rename(archive, 1)
    append(archive, " and ended\nc\n")
    assert (lines, place) == (["a"], "1:2")
    assert log_since(archive, place) == (["b, begun and ended", "c"], "2:13")
    rename(archive, 2)
    rename(archive, 3)
    append(archive, "d\n")
    assert log_since(archive, "2:13") == (["d"], "4:2")
    # What is too old is removed, but for the first part.
    (archive.path / "logs" / "driver.log.2").unlink()
    assert log_since(archive, "2:11") == (["d"], "4:2")
    assert log_since(archive, "") == (["a", "b, begund"], "4:2")


def test_much_at_once_comes_in_pieces(archive: Archive) -> None:
    append(archive, "first\nsecond\n")
    rename(archive, 1)
    append(archive, "third\n" + "x" * 40 + "\nlast\n")
    place, pieces = "", []
    while True:
        lines, after = log_since(archive, place, size=16)
        if after == place:
            break
        pieces.append(lines)
        place = after
    assert pieces == [["first", "second"], ["third"], ["x" * 16], ["x" * 16], ["x" * 8, "last"]]


def test_no_place(archive: Archive) -> None:
    append(archive, "a\n")
    with pytest.raises(ValueError, match="invalid literal"):
        log_since(archive, "here")


def test_the_number_of_steps(archive: Archive) -> None:
    assert total_steps(archive, {}) is None
    archive.driver_log.write_text("loading\n")
    assert total_steps(archive, {"total_steps": None}) is None
    archive.driver_log.write_text("loading\n(TaskRunner pid=7) Total training steps: 120\nstep:1\n")
    assert total_steps(archive, {}) == 120
    assert total_steps(archive, {"total_steps": 110}) == 110
    archive.driver_log.write_text("(TrainingWorker pid=7) Total steps: 8, num_warmup_steps: 0\n")
    assert total_steps(archive, {}) == 8


def test_the_number_of_steps_is_looked_for_at_the_beginning(archive: Archive) -> None:
    archive.driver_log.write_bytes(b"x" * log.HEAD_BYTES + b"\nTotal training steps: 9\n")
    assert total_steps(archive, {}) is None
    archive.driver_log.write_text("Total training steps: 9\n")
    rename(archive, 1)
    assert total_steps(archive, {}) == 9


# --- Progress ---------------------------------------------------------------------------------------------------------


def metrics(archive: Archive, *entries: tuple[int, dict[str, float]], attempt: int = 1) -> None:
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in entries]
    (archive.path / "logs" / f"metrics-{attempt}.jsonl").write_text("".join(lines))


def test_progress_before_the_first_step(archive: Archive) -> None:
    nothing = {"step": 0, "total_steps": None, "first": None, "last": None}
    assert progress(archive, "sft", {}) == {**nothing, "metric": "train/loss"}
    assert progress(archive, "", {}) == {**nothing, "metric": ""}


def test_progress(archive: Archive) -> None:
    archive.driver_log.write_text("Total training steps: 12\n")
    metrics(archive, (1, {"critic/rewards/mean": 0.125, "x": 1}), (2, {"critic/rewards/mean": 0.25}), (3, {"x": 2}))
    expected = {"step": 3, "total_steps": 12, "metric": "critic/rewards/mean", "first": 0.125, "last": 0.25}
    assert progress(archive, "grpo", {}) == progress(archive, "ppo", {}) == expected
    assert progress(archive, "sft", {})["last"] is None


def test_progress_of_a_second_attempt(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (2, {"train/loss": 5}), (3, {"train/loss": 4.5}))
    metrics(archive, (3, {"train/loss": 4.25}), attempt=2)
    assert progress(archive, "sft", {}) == {
        "step": 3,
        "total_steps": None,
        "metric": "train/loss",
        "first": 6.0,
        "last": 4.25,
    }


def test_progress_of_an_attempt_that_has_just_begun(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (12, {"train/loss": 5}))
    # Its first line is a validation of the step that it goes on from.
    metrics(archive, (10, {"val/loss": 7}), attempt=2)
    seen = progress(archive, "sft", {})
    assert (seen["step"], seen["first"], seen["last"]) == (10, 6.0, 5.0)


def test_progress_of_a_long_job_reads_ends_only(archive: Archive) -> None:
    padding = {f"metric/{number}": 1.0 for number in range(400)}
    steps = 200
    metrics(archive, *((step, {"train/loss": float(step), **padding}) for step in range(1, steps + 1)))
    assert (archive.path / "logs" / "metrics-1.jsonl").stat().st_size > 4 * METRICS_BYTES
    with (archive.path / "logs" / "metrics-1.jsonl").open("a") as file:
        file.write('{"step": 201, "da')
    seen = progress(archive, "sft", {})
    assert (seen["step"], seen["first"], seen["last"]) == (200, 1.0, 200.0)


@pytest.mark.parametrize(
    ("heartbeat", "total", "left"),
    [
        ({}, 12, None),
        ({"time": 160.0, "step": 0, "first_step": None, "first_step_at": None}, 12, None),
        # No pace is known after one step.
        ({"time": 160.0, "step": 1, "first_step": 1, "first_step_at": 100.0}, 12, None),
        ({"time": 160.0, "step": 4, "first_step": 1, "first_step_at": 100.0}, 12, 160.0),
        # Of an attempt that went on from step 10.
        ({"time": 110.0, "step": 12, "first_step": 11, "first_step_at": 100.0}, 20, 80.0),
        ({"time": 160.0, "step": 12, "first_step": 1, "first_step_at": 100.0}, 12, 0.0),
        ({"time": 160.0, "step": 13, "first_step": 1, "first_step_at": 100.0}, 12, 0.0),
        ({"time": 160.0, "step": 4, "first_step": 1, "first_step_at": 100.0}, None, None),
    ],
)
def test_the_time_that_is_left(heartbeat: dict[str, Any], total: int | None, left: float | None) -> None:
    assert time_left(heartbeat, total) == left


@pytest.mark.parametrize(("seconds", "text"), [(-3, "0:00"), (65.9, "1:05"), (3599, "59:59"), (7265, "2:01:05")])
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


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
        (info(time_left=95.0), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05  1:35 left"),
        (info(attempt=2), "sft-1  RUNNING attempt 2  step 3/12  train/loss 4.250  1:05"),
        (
            info(progress=NOT_YET, started_at=None, state="QUEUED", reason="needs 2 workers, 1 is free"),
            "sft-1  QUEUED  needs 2 workers, 1 is free",
        ),
        (info(reason="stopped", state="STOPPED"), "sft-1  STOPPED  step 3/12  train/loss 4.250  1:05"),
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
    archive.write_json("config/job_spec.json", {"workload": "sft"})
    os.utime(archive.path / "config" / "job_spec.json", (9.5, 9.5))
    assert describe(archive, None, tail=1) == {
        "submission_id": "grpo-1",
        "state": "FAILED",
        "ended": True,
        "reason": "the trainer ended with exit code 1",
        "failure": None,
        "workload": "sft",
        "code_id": "verl-0.9.1",
        "tags": {},
        "lineage": {},
        "attempt": 1,
        "attempts": [],
        "submitted_at": 9.5,
        "started_at": 10.5,
        "ended_at": 20.5,
        "silent_for": None,
        "time_left": None,
        "driver_host": "worker-0",
        "driver_node_id": None,
        "driver_node_ip": None,
        "progress": progress(archive, "sft", {}),
        "checkpoints": [10],
        "archive": str(archive.path),
        "log": ["b"],
        "log_position": "1:4",
        "problem": "",
    }


def beat(archive: Archive, age: float, **more: Any) -> None:
    archive.write_json("heartbeat.json", {"time": time.time() - age, **more})


def test_a_running_job_with_its_sign_of_life(archive: Archive) -> None:
    archive.set_status("RUNNING", started_at=10.5, ended_at=9.5, attempt=2, failure={"kind": "node_lost"})
    beat(archive, 5, step=4, total_steps=12, first_step=1, first_step_at=time.time() - 65)
    job = describe(archive, None, tail=0)
    assert (job["attempt"], job["ended_at"], job["failure"]) == (2, None, None)
    assert job["time_left"] == pytest.approx(160, abs=1)
    assert job["silent_for"] == pytest.approx(5, abs=1)
    assert job["progress"]["total_steps"] == 12
    archive.set_status("SUCCEEDED", ended_at=20.5)
    job = describe(archive, None, tail=0)
    assert (job["ended_at"], job["time_left"], job["silent_for"]) == (20.5, None, None)


def test_why_a_job_failed(archive: Archive) -> None:
    failure = {"kind": "gpu_oom", "reason": "CUDA out of memory", "lines": ["torch.OutOfMemoryError"], "todo": "less"}
    archive.set_status("RETRYING", failure=failure)
    assert describe(archive, None, tail=0)["failure"] == failure
    archive.set_status("FAILED")
    assert describe(archive, None, tail=0)["failure"] == failure


def test_the_log_from_a_place(archive: Archive) -> None:
    archive.set_status("RUNNING")
    archive.driver_log.write_text("a\nb\nhalf")
    job = describe(archive, None, tail=5, position="1:2")
    assert (job["log"], job["log_position"]) == (["b"], "1:4")
    archive.set_status("SUCCEEDED")
    assert describe(archive, None, tail=5, position="1:4")["log"] == ["half"]


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
    assert job["failure"]["kind"] == "node_lost"
    assert job["failure"]["reason"] == job["reason"]


def test_a_job_of_another_cluster_has_not(archive: Archive, forgetful: RayHead) -> None:
    """Two clusters may share their shared root; the job lives, whatever this head knows of it."""
    archive.set_status("RUNNING")
    beat(archive, 5)
    assert describe(archive, forgetful, tail=0)["state"] == "RUNNING"
    beat(archive, 300)
    assert describe(archive, forgetful, tail=0)["state"] == "FAILED"


@pytest.mark.parametrize("state", ["RUNNING", "RETRYING", "SUBMITTED"])
def test_a_job_that_is_kept_is_what_its_keeper_says(archive: Archive, forgetful: RayHead, state: str) -> None:
    archive.set_status(state)
    archive.write_json("keeper.json", {"time": time.time() - 5})
    job = describe(archive, forgetful, tail=0)
    assert (job["state"], job["ended"]) == (state, False)


def test_a_job_that_waits_in_the_queue_is_not_lost(archive: Archive, forgetful: RayHead) -> None:
    archive.set_status("QUEUED")
    archive.write_json("status.json", {**archive.status(), "updated_at": "2026-01-01T00:00:00.000Z"})
    assert describe(archive, forgetful, tail=0)["state"] == "QUEUED"


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


def test_waiting_ends_when_the_log_grows(archive: Archive) -> None:
    archive.set_status("RUNNING")
    archive.driver_log.write_text("a\n")
    timer = threading.Timer(0.3, append, (archive, "b\n"))
    timer.start()
    started = time.monotonic()
    job = wait_for_end(archive, None, 0, timeout=30, position="1:2")
    timer.join()
    assert (job["state"], job["log"], job["log_position"]) == ("RUNNING", ["b"], "1:4")
    assert time.monotonic() - started < 5


def test_the_end_of_the_log_is_not_waited_for_until_the_evidence_is_there(archive: Archive) -> None:
    archive.set_status("FAILED", ended_at=time.time())
    started = time.monotonic()
    job = wait_for_end(archive, None, 0, timeout=30, position="1:0")
    assert (job["state"], job["ended"]) == ("FAILED", False)
    assert time.monotonic() - started < 5


# --- The last jobs ----------------------------------------------------------------------------------------------------


class Lists(http.server.BaseHTTPRequestHandler):
    """A head with three jobs: one of ours in its second attempt, one that waits, and somebody's own."""

    jobs = (
        {"submission_id": "grpo-2", "status": "FAILED"},
        {"submission_id": "grpo-2~2", "status": "RUNNING", "driver_info": {"node_ip_address": "10.0.0.2"}},
        {"submission_id": "sft-3", "status": "PENDING", "message": "no resources"},
        {"submission_id": "raysubmit_1", "status": "RUNNING", "start_time": 2500},
        {"submission_id": None, "type": "DRIVER", "status": "RUNNING"},
    )

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.jobs).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def listing() -> Iterator[RayHead]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lists) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield RayHead(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Archives that were made in the first, second and third second of the epoch."""
    for second, (name, status) in enumerate(
        {
            "grpo-1": {"state": "SUCCEEDED", "workload": "grpo"},
            "grpo-2": {"state": "RUNNING", "attempt": 2},
            "sft-3": {"state": "SUBMITTED"},
        }.items(),
        1,
    ):
        made = Archive(tmp_path / "jobs" / name)
        made.reserve()
        made.set_status(**status)
        made.write_json("config/job_spec.json", {})
        os.utime(made.path / "config" / "job_spec.json", (second, second))
    (tmp_path / "jobs" / ".half").mkdir()
    (tmp_path / "jobs" / "notes.txt").touch()
    return tmp_path / "jobs"


def seen(listed: dict[str, Any]) -> list[tuple[str, str]]:
    return [(job["submission_id"], job["state"]) for job in listed["jobs"]]


def test_the_last_jobs_from_their_archives(jobs: Path) -> None:
    listed = recent(jobs, None, 2)
    assert seen(listed) == [("sft-3", "SUBMITTED"), ("grpo-2", "RUNNING")]
    assert (listed["total"], listed["problem"], listed["directory"]) == (3, "", str(jobs))


def test_the_last_jobs_with_what_the_head_says(jobs: Path, listing: RayHead) -> None:
    listed = recent(jobs, listing, 20)
    assert seen(listed) == [
        ("sft-3", "PENDING"),
        ("raysubmit_1", "RUNNING"),
        ("grpo-2", "RUNNING"),
        ("grpo-1", "SUCCEEDED"),
    ]
    assert listed["jobs"][0]["reason"] == "no resources"
    assert listed["jobs"][1]["archive"] == ""
    assert listed["jobs"][2]["driver_node_ip"] == "10.0.0.2"
    assert listed["total"] == 4


def test_the_last_jobs_when_the_head_does_not_answer(jobs: Path) -> None:
    listed = recent(jobs, RayHead("http://127.0.0.1:1"), 20)
    assert len(listed["jobs"]) == 3
    assert "Connection refused" in listed["problem"]


def test_no_jobs_at_all(tmp_path: Path) -> None:
    assert recent(tmp_path / "jobs", None, 20)["jobs"] == []


def test_an_unknown_job_is_answered_with_those_that_there_are(jobs: Path) -> None:
    expected = f"There is no job 'x' in {jobs}. Say -e submission_id=ID; the last are: sft-3, grpo-2, grpo-1."
    assert unknown_job(jobs, "x") == expected
    assert unknown_job(jobs / "none", "x").endswith("the last are: none.")
