from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from argus.archive.archive import Archive, Heartbeat
from argus.archive.job_warnings import JobWarning
from argus.archive.status import Status
from argus.jobs.info import JobInfo, Progress
from argus.jobs.progress import read_progress, time_left, total_steps
from argus.jobs.report import progress_line


def test_the_number_of_steps(archive: Archive) -> None:
    assert total_steps(archive, Heartbeat()) is None
    archive.driver_log.write_text("loading\n(TaskRunner pid=7) Total training steps: 120\nstep:1\n")
    assert [total_steps(archive, Heartbeat(total_steps=steps)) for steps in (None, 110)] == [120, 110]
    # No more than the data is enough for.
    archive.write_json("config/plan.json", {"steps": 22})
    assert total_steps(archive, Heartbeat()) == 22
    archive.driver_log.write_text("(TrainingWorker pid=7) Total steps: 8, num_warmup_steps: 0\n")
    assert total_steps(archive, Heartbeat()) == 8


def metrics(archive: Archive, *entries: tuple[int, dict[str, float]], attempt: int = 1) -> None:
    lines = [json.dumps({"step": step, "data": data}) + "\n" for step, data in entries]
    (archive.path / "logs" / f"metrics-{attempt}.jsonl").write_text("".join(lines))


REWARD, VALIDATED = "critic/rewards/mean", "val-core/gsm8k/reward/mean@1"
PACE = Heartbeat(time=160.0, step=4, first_step=1, first_step_at=100.0)


@pytest.mark.parametrize(
    ("workload", "attempts", "expected"),
    [
        ("sft", {}, {"metric": "train/loss"}),
        (
            "ppo",
            {1: ((1, {REWARD: 0.125, "x": 1}), (2, {REWARD: 0.25}), (3, {"x": 2}))},
            {"step": 3, "metric": REWARD, "first": 0.125, "last": 0.25, "trend": (0.125, 0.25)},
        ),
        # A job that only validates.
        (
            "grpo",
            {1: ((0, {"val-aux/num_turns/mean": 2.0, VALIDATED: 0.25}),)},
            {"metric": VALIDATED, "step": 0, "last": 0.25},
        ),
        ("eval", {1: ((60, {"val-aux/x": 2.0, VALIDATED: 0.25}),)}, {"last": 0.25, "validation": {VALIDATED: 0.25}}),
        # The tenth attempt comes after the second.
        (
            "sft",
            {number: ((number, {"train/loss": float(number)}),) for number in (1, 2, 10)},
            {"step": 10, "first": 1.0, "last": 10.0, "trend": (10.0,)},
        ),
        # The first line of an attempt is a validation of the step that it resumed from.
        (
            "sft",
            {1: ((1, {"train/loss": 6}), (12, {"train/loss": 5})), 2: ((10, {"val/loss": 7}),)},
            {"step": 10, "first": 6.0, "last": 5.0},
        ),
        # 900 tokens a step on average, and 20 seconds for each.
        (
            "sft",
            {1: [(step, {"train/loss": 5.0, "train/global_tokens": 700 + step * 100}) for step in (1, 2, 3)]},
            {"tokens_per_second": 45.0, "tokens_per_second_per_gpu": None, "seconds": {}},
        ),
        (
            "grpo",
            {1: ((1, {"timing_s/gen": 9.0}), (2, {"perf/throughput": 1800.25, "timing_s/gen": 2, "timing_s/own": 1}))},
            {"tokens_per_second": None, "tokens_per_second_per_gpu": 1800.25, "seconds": {"gen": 2.0}},
        ),
    ],
)
def test_progress(archive: Archive, workload: str, attempts: dict[int, Any], expected: dict[str, Any]) -> None:
    for number, entries in attempts.items():
        metrics(archive, *entries, attempt=number)
    done = read_progress(archive, Status(workload=workload), PACE)
    assert {name: getattr(done, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "total", "left"),
    [
        ({}, 12, 160.0),
        ({"step": 0, "first_step": None, "first_step_at": None}, 12, None),
        # One step is not enough for a pace.
        ({"step": 1}, 12, None),
        # An attempt that resumed from step 10.
        ({"time": 110.0, "step": 12, "first_step": 11}, 20, 80.0),
        ({"step": 13}, 12, 0.0),
        ({}, None, None),
    ],
)
def test_the_time_left(changes: dict[str, Any], total: int | None, left: float | None) -> None:
    beat = replace(PACE, **changes)
    assert time_left(beat, total, beat.time + 9) == left
    # Its launcher writes no more.
    assert time_left(beat, total, beat.time + 11) is None


def info(**changes: Any) -> JobInfo:
    done = Progress(3, 12, "train/loss", first=6.0, last=4.25)
    return JobInfo(**{"submission_id": "sft-1", "state": "RUNNING", "started_at": 1000.0, "progress": done} | changes)


NO_STEP = Progress(metric="train/loss")


@pytest.mark.parametrize(
    ("job", "line"),
    [
        (info(progress=NO_STEP, started_at=None, state="PENDING"), "sft-1  PENDING"),
        (info(time_left=95.0), "sft-1  RUNNING  step 3/12  train/loss 4.250  1:05  1:35 left"),
        (info(attempt=2), "sft-1  RUNNING attempt 2  step 3/12  train/loss 4.250  1:05"),
        (
            info(progress=NO_STEP, started_at=None, state="QUEUED", reason="needs 2 workers, 1 is free"),
            "sft-1  QUEUED  needs 2 workers, 1 is free",
        ),
        (info(warnings=(JobWarning("loss_nan", "a"),) * 2, progress=NO_STEP), "sft-1  RUNNING  1:05  2 warnings"),
        (info(progress=replace(NO_STEP, step=2, last=0.0)), "sft-1  RUNNING  step 2  train/loss 0.000  1:05"),
    ],
)
def test_a_progress_line(job: JobInfo, line: str) -> None:
    assert progress_line(job, now=1065.7) == line
