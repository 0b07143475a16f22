from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from argus.archive.archive import Archive, Heartbeat
from argus.archive.job_warnings import JobWarning
from argus.archive.status import Status
from argus.common.text import duration
from argus.io.schema import parse
from argus.jobs.info import JobInfo, Progress
from argus.jobs.progress import (
    METRICS_BYTES,
    TREND_POINTS,
    progress,
    progress_line,
    time_left,
    total_steps,
)
from argus.launcher import log


def rename(archive: Archive, number: int) -> None:
    """As the launcher does with a full part."""
    archive.driver_log.rename(archive.driver_log.with_name(f"driver.log.{number}"))
    archive.driver_log.touch()


def test_the_number_of_steps(archive: Archive) -> None:
    assert total_steps(archive, Heartbeat()) is None
    archive.driver_log.write_text("loading\n")
    assert total_steps(archive, Heartbeat(total_steps=None)) is None
    archive.driver_log.write_text("loading\n(TaskRunner pid=7) Total training steps: 120\nstep:1\n")
    assert total_steps(archive, Heartbeat()) == 120
    assert total_steps(archive, Heartbeat(total_steps=110)) == 110
    archive.driver_log.write_text("(TrainingWorker pid=7) Total steps: 8, num_warmup_steps: 0\n")
    assert total_steps(archive, Heartbeat()) == 8


@pytest.mark.parametrize(("of_data", "shown"), [(22, 22), (200, 120), (None, 120), (0, 0)])
def test_no_more_steps_than_the_data_is_enough_for(archive: Archive, of_data: int | None, shown: int) -> None:
    archive.write_json("config/plan.json", {"steps": of_data})
    assert total_steps(archive, Heartbeat()) is None
    archive.driver_log.write_text("Total training steps: 120\n")
    assert total_steps(archive, Heartbeat()) == shown


def test_a_job_that_only_validates_has_the_metric_of_its_validation(archive: Archive) -> None:
    name = "val-core/gsm8k/reward/mean@1"
    metrics(archive, (0, {"val-aux/num_turns/mean": 2.0, name: 0.25}))
    found = progress(archive, Status(workload="grpo"), Heartbeat())
    assert (found.metric, found.first, found.last, found.step) == (name, 0.25, 0.25, 0)


def test_the_number_of_steps_stands_at_the_beginning_of_the_log(archive: Archive) -> None:
    archive.driver_log.write_bytes(b"x" * log.HEAD_BYTES + b"\nTotal training steps: 9\n")
    assert total_steps(archive, Heartbeat()) is None
    archive.driver_log.write_text("Total training steps: 9\n")
    rename(archive, 1)
    assert total_steps(archive, Heartbeat()) == 9


def metrics(archive: Archive, *entries: tuple[int, dict[str, float]], attempt: int = 1) -> None:
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in entries]
    (archive.path / "logs" / f"metrics-{attempt}.jsonl").write_text("".join(lines))


def test_progress_before_the_first_step(archive: Archive) -> None:
    assert progress(archive, Status(workload="sft"), Heartbeat()) == Progress(metric="train/loss")
    assert progress(archive, Status(workload=""), Heartbeat()) == Progress()


def test_progress(archive: Archive) -> None:
    archive.driver_log.write_text("Total training steps: 12\n")
    metrics(archive, (1, {"critic/rewards/mean": 0.125, "x": 1}), (2, {"critic/rewards/mean": 0.25}), (3, {"x": 2}))
    expected = Progress(3, 12, "critic/rewards/mean", first=0.125, last=0.25, trend=(0.125, 0.25))
    assert (
        progress(archive, Status(workload="grpo"), Heartbeat())
        == progress(archive, Status(workload="ppo"), Heartbeat())
        == expected
    )
    assert progress(archive, Status(workload="sft"), Heartbeat()).last is None


def test_progress_of_a_second_attempt(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (2, {"train/loss": 5}), (3, {"train/loss": 4.5}))
    metrics(archive, (3, {"train/loss": 4.25}), attempt=2)
    assert progress(archive, Status(workload="sft"), Heartbeat()) == Progress(
        3, None, "train/loss", first=6.0, last=4.25, trend=(4.25,)
    )


def test_progress_of_ten_attempts(archive: Archive) -> None:
    """The tenth comes after the second."""
    for attempt in (1, 2, 10):
        metrics(archive, (attempt, {"train/loss": float(attempt)}), attempt=attempt)
    assert progress(archive, Status(workload="sft"), Heartbeat()) == Progress(
        10, None, "train/loss", first=1.0, last=10.0, trend=(10.0,)
    )


def test_progress_of_an_attempt_that_has_just_started(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (12, {"train/loss": 5}))
    # Its first line is a validation of the step that it resumed from.
    metrics(archive, (10, {"val/loss": 7}), attempt=2)
    done = progress(archive, Status(workload="sft"), Heartbeat())
    assert (done.step, done.first, done.last) == (10, 6.0, 5.0)


def test_progress_of_an_attempt_without_a_step(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 6}), (12, {"train/loss": 5}))
    metrics(archive, attempt=2)
    assert progress(archive, Status(workload="sft"), Heartbeat()).step == 12


def test_progress_of_a_long_job_reads_ends_only(archive: Archive) -> None:
    padding = {f"metric/{number}": 1.0 for number in range(400)}
    steps = 200
    metrics(archive, *((step, {"train/loss": float(step), **padding}) for step in range(1, steps + 1)))
    assert (archive.path / "logs" / "metrics-1.jsonl").stat().st_size > 4 * METRICS_BYTES
    with (archive.path / "logs" / "metrics-1.jsonl").open("a") as file:
        file.write('{"step": 201, "da')
    done = progress(archive, Status(workload="sft"), Heartbeat())
    assert (done.step, done.first, done.last) == (200, 1.0, 200.0)
    assert done.trend[-1] == 200.0
    assert 30 < len(done.trend) <= TREND_POINTS
    assert len({after - before for before, after in pairwise(done.trend)}) == 1


def test_lines_that_are_not_a_step_are_skipped(archive: Archive) -> None:
    lines = ["[]", "{}", "no json", '{"step": "x", "data": {}}', '{"step": 9, "data": {"train/loss": "low"}}']
    lines += ['{"step": 2, "data": {"train/loss": 5, "val/text": "abc"}}', '{"step": 3, "data": 7}', ""]
    archive.metrics_file(1).write_text("\n".join(lines))
    assert progress(archive, Status(workload="sft"), Heartbeat()) == Progress(
        2, None, "train/loss", first=5.0, last=5.0, trend=(5.0,)
    )


PACE = Heartbeat(time=160.0, step=4, first_step=1, first_step_at=100.0)


def test_the_throughput_that_verl_measures(archive: Archive) -> None:
    metrics(archive, (1, {"critic/rewards/mean": 0.1, "perf/throughput": 900.5}), (2, {"perf/throughput": 1800.25}))
    done = progress(archive, Status(workload="grpo"), PACE)
    assert (done.tokens_per_second_per_gpu, done.tokens_per_second) == (1800.25, None)


def test_the_seconds_of_the_last_step(archive: Archive) -> None:
    first = {"timing_s/gen": 9.0, "timing_s/testing": 3.0}
    last = {"timing_s/step": 4.5, "timing_s/gen": 2.5, "timing_s/update_weights": 0.125, "timing_s/own": 1.0}
    metrics(archive, (1, {"critic/rewards/mean": 0.1, **first}), (2, {"critic/rewards/mean": 0.2, **last}))
    seconds = progress(archive, Status(workload="grpo"), PACE).seconds
    assert list(seconds.items()) == [("gen", 2.5), ("update_weights", 0.125), ("step", 4.5)]
    metrics(archive, (1, {"train/loss": 5.0}))
    assert progress(archive, Status(workload="sft"), PACE).seconds == {}


def test_the_throughput_from_the_tokens_of_steps(archive: Archive) -> None:
    metrics(archive, *((step, {"train/loss": 5.0, "train/global_tokens": 700 + step * 100}) for step in (1, 2, 3)))
    # 900 tokens a step on average, and 20 seconds for each.
    assert progress(archive, Status(workload="sft"), PACE).tokens_per_second == 45.0
    assert progress(archive, Status(workload="sft"), PACE).tokens_per_second_per_gpu is None
    assert progress(archive, Status(workload="sft"), Heartbeat()).tokens_per_second is None


def test_two_steps_at_the_same_time_have_no_throughput(archive: Archive) -> None:
    metrics(archive, (1, {"train/loss": 5.0, "train/global_tokens": 700}))
    beat = Heartbeat(time=100.0, step=4, first_step=1, first_step_at=100.0)
    assert progress(archive, Status(workload="sft"), beat).tokens_per_second is None


@pytest.mark.parametrize(
    ("heartbeat", "total", "left"),
    [
        ({}, 12, None),
        ({"time": 160.0, "step": 0, "first_step": None, "first_step_at": None}, 12, None),
        # One step is not enough for a pace.
        ({"time": 160.0, "step": 1, "first_step": 1, "first_step_at": 100.0}, 12, None),
        ({"time": 160.0, "step": 4, "first_step": 1, "first_step_at": 100.0}, 12, 160.0),
        # An attempt that resumed from step 10.
        ({"time": 110.0, "step": 12, "first_step": 11, "first_step_at": 100.0}, 20, 80.0),
        ({"time": 160.0, "step": 12, "first_step": 1, "first_step_at": 100.0}, 12, 0.0),
        ({"time": 160.0, "step": 13, "first_step": 1, "first_step_at": 100.0}, 12, 0.0),
        ({"time": 160.0, "step": 4, "first_step": 1, "first_step_at": 100.0}, None, None),
    ],
)
def test_the_time_left(heartbeat: dict[str, Any], total: int | None, left: float | None) -> None:
    at = heartbeat.get("time", 0)
    assert time_left(parse(Heartbeat, heartbeat), total, at + 9) == left
    # Its launcher writes no more.
    assert time_left(parse(Heartbeat, heartbeat), total, at + 11) is None


@pytest.mark.parametrize(("seconds", "text"), [(-3, "0:00"), (65.9, "1:05"), (3599, "59:59"), (7265, "2:01:05")])
def test_a_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def info(**changes: Any) -> JobInfo:
    done = Progress(3, 12, "train/loss", first=6.0, last=4.25)
    return JobInfo(**{"submission_id": "sft-1", "state": "RUNNING", "started_at": 1000.0, "progress": done} | changes)


NO_STEP = Progress(metric="train/loss")


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (info(), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05"),
        (info(state="SUCCEEDED", ended_at=1009.9), "sft-1  SUCCEEDED  step 3/12  train/loss 4.250  0:09"),
        (info(progress=NO_STEP, started_at=None, state="PENDING"), "sft-1  PENDING"),
        (info(reason="Job is currently running."), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05"),
        (info(time_left=95.0), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05  1:35 left"),
        (info(attempt=2), "sft-1  RUNNING attempt 2  step 3/12  train/loss 4.250  1:05"),
        (
            info(progress=NO_STEP, started_at=None, state="QUEUED", reason="needs 2 workers, 1 is free"),
            "sft-1  QUEUED  needs 2 workers, 1 is free",
        ),
        (info(time_left=95.0, state="RETRYING"), "sft-1  RETRYING  step 3/12  train/loss 4.250  1:05"),
        (info(reason="stopped", state="STOPPED"), "sft-1  STOPPED  step 3/12  train/loss 4.250  1:05"),
        (info(progress=NO_STEP), "sft-1  RUNNING  1:05"),
        (info(progress=replace(NO_STEP, total_steps=12)), "sft-1  RUNNING  step 0/12  1:05"),
        (info(progress=replace(NO_STEP, step=2)), "sft-1  RUNNING  step 2  1:05"),
        (info(progress=replace(NO_STEP, step=2, last=0.0)), "sft-1  RUNNING  step 2  train/loss 0.000  1:05"),
    ],
)
def test_a_progress_line(job: JobInfo, line: str) -> None:
    assert progress_line(job, now=1065.7) == line


WARNED = JobInfo(
    "grpo-1",
    "RUNNING",
    warnings=(JobWarning("reward_raises", "it raised for 3 of 4 samples"), JobWarning("loss_nan", "a\x1b[2Jb")),
)


def test_a_job_that_resumes_begins_with_the_step_of_its_checkpoint(archive: Archive) -> None:
    archive.driver_log.write_text("Total training steps: 10\n")
    status = Status(workload="sft", resumed_from_step=5)
    assert progress(archive, status, Heartbeat()) == Progress(5, 10, "train/loss")
    metrics(archive, (6, {"train/loss": 2.0}))
    assert progress(archive, status, Heartbeat()).step == 6


def test_the_line_has_the_phase_and_the_number_of_warnings() -> None:
    assert progress_line(replace(WARNED, phase="loading weights"), 0) == "grpo-1  RUNNING  loading weights  2 warnings"
    assert progress_line(replace(WARNED, warnings=WARNED.warnings[:1]), 0) == "grpo-1  RUNNING  1 warning"
