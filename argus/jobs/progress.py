# SPDX-License-Identifier: Apache-2.0
"""Computes the progress of a job from its heartbeat and its metrics: steps, key metric, throughput, time left."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..archive import metrics
from ..archive.archive import Archive, Heartbeat
from ..archive.status import Status
from ..io.reading import open_file
from ..jobspec.verl_releases import EVAL
from ..launcher import log_scan
from .info import Progress

# The metric that people check first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# The names of verl's metrics of a validation (trainer/ppo/metric_utils.py:process_validation_metrics) begin with it.
VAL_PREFIX = "val-core/"
MAX_VALIDATION_METRICS = 24
# verl's throughput for PPO and GRPO: tokens of prompts and responses per second and GPU.
THROUGHPUT_METRIC = "perf/throughput"
# verl's seconds for each part of a step of PPO and GRPO, in this order, and for the whole step
# (trainer/ppo/v1/trainer_base.py).
TIMING_PREFIX = "timing_s/"
TIMED_PARTS = (
    *("gen", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"),
    *("save_checkpoint", "update_weights", "testing", "step"),
)
# The tokens of a step of SFT, for which verl measures no throughput.
STEP_TOKENS = "train/global_tokens"
# How much is read from the end of a metrics file; one step of PPO takes about 8 KiB.
MAX_TAIL_BYTES = 256 << 10
# How much is read from the beginnings of all metrics files to find the first value.
MAX_HEAD_BYTES = 4 << 20
# The maximum number of values in a trend of the key metric: every n-th value, counted from the last one.
MAX_TREND_POINTS = 60
# The number of metrics files, one for each attempt, that are read to find the last value.
MAX_SEARCHED_FILES = 16
# An older heartbeat gives no time left. The launcher writes every 2 s; the clocks of two machines may differ by 5 s.
MAX_BEAT_AGE_SECONDS = 10


def total_steps(archive: Archive, heartbeat: Heartbeat) -> int | None:
    """The number of steps of the job, from the heartbeat or else from the log; None if unknown."""
    return log_scan.expected_steps(archive) if heartbeat.total_steps is None else heartbeat.total_steps


def first_value(files: Sequence[Path], metric: str) -> float | None:
    """The first value of a metric; None if the first MAX_HEAD_BYTES of the files lack it."""
    bytes_left = MAX_HEAD_BYTES
    for path in files:
        with open_file(path) as file:
            for step in metrics.read_steps(file, bytes_left):
                value = step.value(metric)
                if value is not None:
                    return value
            bytes_left -= file.tell()
        if bytes_left <= 0:
            break
    return None


def values_of(steps: Sequence[metrics.Step], metric: str) -> list[float]:
    """The values of a metric in the steps that have it."""
    return [value for value in (step.value(metric) for step in steps) if value is not None]


def read_progress(archive: Archive, status: Status, heartbeat: Heartbeat) -> Progress:
    """Read the steps of a job, and its key metric or one of a validation. Raises UnreadableError or FileNotFoundError.

    Reads little more than the ends of files: a long job has 100 MB of metrics, and is read every few seconds.
    """
    metric = KEY_METRICS.get(status.workload, "")
    files = metrics.files(archive.path)
    last_step, last_value, steps, key_values = 0, None, [], list[float]()
    for file in reversed(files[-MAX_SEARCHED_FILES:]):
        steps = metrics.last_steps(file, MAX_TAIL_BYTES)
        last_step = last_step or (steps[-1].number if steps else 0)
        key_values = values_of(steps, metric)
        if key_values:
            last_value = key_values[-1]
            break
    val_metric = next((name for step in steps for name in step.metrics if name.startswith(VAL_PREFIX)), "")
    if val_metric and not key_values:
        # Before its first step, and while it only validates, a job has nothing but metrics of validations.
        metric, key_values = val_metric, values_of(steps, val_metric)
        last_value = next(iter(key_values[-1:]), None)
    return Progress(
        # A job that resumes begins with the step of its checkpoint.
        step=last_step or status.resumed_from_step or 0,
        total_steps=total_steps(archive, heartbeat),
        metric=metric,
        first=first_value(files, metric) if last_value is not None else None,
        last=last_value,
        trend=tuple(key_values[::-1][:: -(-len(key_values) // MAX_TREND_POINTS) or 1][::-1]),
        tokens_per_second=tokens_per_second(steps, heartbeat),
        tokens_per_second_per_gpu=next(iter(values_of(steps, THROUGHPUT_METRIC)[-1:]), None),
        validation=validation_metrics(steps) if status.workload == EVAL else {},
        seconds={part: spent[0] for part in TIMED_PARTS if (spent := values_of(steps[-1:], f"{TIMING_PREFIX}{part}"))},
    )


def validation_metrics(steps: Sequence[metrics.Step]) -> dict[str, float]:
    names = [name for name in (steps[-1].metrics if steps else ()) if name.startswith(VAL_PREFIX)]
    return {name: value for name in names[:MAX_VALIDATION_METRICS] if (value := steps[-1].value(name)) is not None}


def tokens_per_second(steps: Sequence[metrics.Step], heartbeat: Heartbeat) -> float | None:
    """The throughput of all GPUs together: the tokens of the last steps by the pace; None if either is unknown."""
    tokens, seconds = values_of(steps, STEP_TOKENS), seconds_per_step(heartbeat)
    return sum(tokens) / len(tokens) / seconds if tokens and seconds else None


def seconds_per_step(heartbeat: Heartbeat) -> float | None:
    """The pace of the current attempt: seconds for each step after the first one; None while it is unknown."""
    beat = heartbeat
    if beat.time is None or beat.step is None or beat.first_step is None or beat.first_step_at is None:
        return None
    if beat.step <= beat.first_step:
        return None
    return (beat.time - beat.first_step_at) / (beat.step - beat.first_step)


def time_left(heartbeat: Heartbeat, total: int | None, now: float) -> float | None:
    """Seconds until all `total` steps are done, from the pace.

    None while the pace is unknown, or if the launcher has stopped writing heartbeats: its node may be gone.
    """
    seconds = seconds_per_step(heartbeat)
    if total is None or heartbeat.step is None or seconds is None or now - (heartbeat.time or 0) > MAX_BEAT_AGE_SECONDS:
        return None
    return max(0.0, seconds * (total - heartbeat.step))
