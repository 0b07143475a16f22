# SPDX-License-Identifier: Apache-2.0
"""Computes the progress of a job: its steps, its key metric and the time left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..archive import metrics
from ..archive.archive import Archive, Heartbeat
from ..archive.job_warnings import JobWarning
from ..archive.status import ENDED, JobState, Status
from ..common.text import duration, printable
from ..io.reading import open_file
from ..jobspec.verl_releases import EVAL
from ..launcher import log_scan
from .info import JobInfo, Progress

# The metric that people check first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# trainer/ppo/metric_utils.py:process_validation_metrics: the first is that of the first data source.
VAL_PREFIX, MAX_VALIDATIONS = "val-core/", 24
# verl measures it for PPO and GRPO: tokens per second and GPU, prompts and responses.
THROUGHPUT_METRIC = "perf/throughput"
# trainer/ppo/v1/trainer_base.py: what verl measures of a step of PPO and GRPO, in this order, and the whole of it.
TIMING_PREFIX, TIMED_PARTS = (
    "timing_s/",
    (
        *("gen", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"),
        *("save_checkpoint", "update_weights", "testing", "step"),
    ),
)
# For SFT, it only counts the tokens of a step.
STEP_TOKENS = "train/global_tokens"
# The size read of the end of a metrics file; one step of PPO takes about 8 KiB.
MAX_TAIL_BYTES = 256 << 10
# The maximum number of values in a trend of the key metric.
MAX_TREND_POINTS = 60
# The size read to find the first value, and the number of files read to find the last.
MAX_HEAD_BYTES = 4 << 20
MAX_FILES = 16
# The launcher writes its heartbeat every 2 s; the clocks of two machines may differ by 5 s.
MAX_AGE_SECONDS = 10


def total_steps(archive: Archive, heartbeat: Heartbeat) -> int | None:
    return log_scan.expected_steps(archive) if heartbeat.total_steps is None else heartbeat.total_steps


def first_value(files: Sequence[Path], metric: str) -> float | None:
    left = MAX_HEAD_BYTES
    for path in files:
        with open_file(path) as file:
            for step in metrics.read_steps(file, left):
                value = step.value(metric)
                if value is not None:
                    return value
            left -= file.tell()
        if left <= 0:
            break
    return None


def values(steps: Sequence[metrics.Step], metric: str) -> list[float]:
    return [value for value in (step.value(metric) for step in steps) if value is not None]


def progress(archive: Archive, status: Status, heartbeat: Heartbeat) -> Progress:
    """Steps done and to do, and the first and the last value of the workload's key metric.

    Reads only the ends of files: a long job has 100 MB of metrics, and its status is read every few seconds. Raises
    UnreadableError or FileNotFoundError.
    """
    metric = KEY_METRICS.get(status.workload, "")
    files = metrics.files(archive.path)
    done, last, steps, points = 0, None, [], list[float]()
    for file in reversed(files[-MAX_FILES:]):
        steps = metrics.last_steps(file, MAX_TAIL_BYTES)
        done = done or (steps[-1].number if steps else 0)
        points = values(steps, metric)
        if points:
            last = points[-1]
            break
    if not points and (name := next((key for step in steps for key in step.metrics if key.startswith(VAL_PREFIX)), "")):
        # Before the first step, and of a job that only validates.
        metric, points = name, values(steps, name)
        last = next(iter(points[-1:]), None)
    return Progress(
        # A job that resumes begins with the step of its checkpoint.
        step=done or status.resumed_from_step or 0,
        total_steps=total_steps(archive, heartbeat),
        metric=metric,
        first=first_value(files, metric) if last is not None else None,
        last=last,
        trend=tuple(points[::-1][:: -(-len(points) // MAX_TREND_POINTS) or 1][::-1]),
        tokens_per_second=tokens_per_second(steps, heartbeat),
        tokens_per_second_per_gpu=next(iter(values(steps, THROUGHPUT_METRIC)[-1:]), None),
        validation=validation(steps) if status.workload == EVAL else {},
        seconds={part: spent[0] for part in TIMED_PARTS if (spent := values(steps[-1:], f"{TIMING_PREFIX}{part}"))},
    )


def validation(steps: Sequence[metrics.Step]) -> dict[str, float]:
    names = [name for name in (steps[-1].metrics if steps else ()) if name.startswith(VAL_PREFIX)]
    return {name: value for name in names[:MAX_VALIDATIONS] if (value := steps[-1].value(name)) is not None}


def tokens_per_second(steps: Sequence[metrics.Step], heartbeat: Heartbeat) -> float | None:
    """The throughput of all GPUs from the tokens of the last steps and the pace; None if either is unknown."""
    tokens, seconds = values(steps, STEP_TOKENS), seconds_per_step(heartbeat)
    return sum(tokens) / len(tokens) / seconds if tokens and seconds else None


def seconds_per_step(heartbeat: Heartbeat) -> float | None:
    """Seconds for each step since the first one; None while it is unknown."""
    beat = heartbeat
    if beat.time is None or beat.step is None or beat.first_step is None or beat.first_step_at is None:
        return None
    if beat.step <= beat.first_step:
        return None
    return (beat.time - beat.first_step_at) / (beat.step - beat.first_step)


def time_left(heartbeat: Heartbeat, total: int | None, now: float) -> float | None:
    """Seconds until the last step is done, from the pace since the first step.

    None while the pace is unknown, or when the launcher has stopped to write: its node may be gone.
    """
    seconds = seconds_per_step(heartbeat)
    if total is None or heartbeat.step is None or seconds is None or now - (heartbeat.time or 0) > MAX_AGE_SECONDS:
        return None
    return max(0.0, seconds * (total - heartbeat.step))


def warning_count(warnings: Sequence[JobWarning]) -> str:
    return f"{len(warnings)} warning{'s'[: len(warnings) != 1]}"


def progress_line(job: JobInfo, now: float) -> str:
    """One line: state, steps, key metric, time since the start, time left."""
    attempt = f" attempt {job.attempt}" if job.attempt > 1 else ""
    parts = [job.submission_id, f"{job.state}{attempt}"]
    done = job.progress
    if done.step or done.total_steps:
        parts.append(f"step {done.step}" + (f"/{done.total_steps}" if done.total_steps else ""))
    if job.phase:
        parts.append(job.phase)
    if done.last is not None:
        parts.append(f"{done.metric} {done.last:.3f}")
    if job.started_at:
        parts.append(duration((job.ended_at or now) - job.started_at))
    if job.time_left is not None and job.state == JobState.RUNNING:
        parts.append(f"{duration(job.time_left)} left")
    if job.warnings:
        parts.append(warning_count(job.warnings))
    if job.state not in (JobState.RUNNING, *ENDED) and job.reason:
        parts.append(job.reason)
    if job.notice:
        parts.append(job.notice)
    if job.head_away_for is not None:
        parts.append(f"the head has been away for {duration(job.head_away_for)}{'; the job goes on' * job.goes_on}")
    return printable("  ".join(parts), lines=False)
