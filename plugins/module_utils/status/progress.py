# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a job: its steps, its key metric and the time left."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..launcher import log
from ..launcher.archive import Archive
from ..launcher.status import ENDED, JobState
from ..text import duration, printable
from .info import Heartbeat, JobInfo, Progress

# The metric that people check first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# How much is read of the end of a metrics file: one step of PPO takes about 8 KiB.
METRICS_BYTES = 256 << 10


@dataclass(frozen=True)
class Step:
    """One line of a metrics file."""

    step: int
    metrics: Mapping[str, object]

    def value(self, metric: str) -> float | None:
        value = self.metrics.get(metric)
        return float(value) if isinstance(value, (int, float)) else None


def total_steps(archive: Archive, heartbeat: Heartbeat) -> int | None:
    if heartbeat.total_steps is not None:
        return heartbeat.total_steps
    try:
        return log.total_steps(archive)
    except OSError:
        return None


def steps(lines: Iterable[bytes]) -> Iterator[Step]:
    """Steps from the lines of a metrics file. Lines that are not a step are skipped.

    The first and the last line may be incomplete. And the code of a job can write anything into the file, which must
    not break the status of all jobs.
    """
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            entry = json.loads(line) if line.endswith(b"\n") else {}
            if isinstance(entry["data"], dict):
                yield Step(int(entry["step"]), entry["data"])


def last_steps(file: Path) -> list[Step]:
    with file.open("rb") as content:
        content.seek(max(0, content.seek(0, 2) - METRICS_BYTES))
        return list(steps(content))


def first_value(files: Sequence[Path], metric: str) -> float | None:
    for file in files:
        with file.open("rb") as lines:
            for step in steps(lines):
                value = step.value(metric)
                if value is not None:
                    return value
    return None


def progress(archive: Archive, workload: str, heartbeat: Heartbeat) -> Progress:
    """Steps done and to do, and the first and the last value of the workload's key metric.

    Reads only the ends of files: a long job has 100 MB of metrics, and its status is read every few seconds.
    """
    metric = KEY_METRICS.get(workload, "")
    files = sorted(archive.path.glob("logs/metrics-*.jsonl"), key=lambda file: int(file.stem.rpartition("-")[2]))
    done, last = 0, None
    for file in reversed(files):
        found = last_steps(file)
        done = done or (found[-1].step if found else 0)
        values = [value for value in (step.value(metric) for step in found) if value is not None]
        if values:
            last = values[-1]
            break
    return Progress(
        step=done,
        total_steps=total_steps(archive, heartbeat),
        metric=metric,
        first=first_value(files, metric) if last is not None else None,
        last=last,
    )


def time_left(heartbeat: Heartbeat, total: int | None) -> float | None:
    """Seconds until the last step is done, from the pace since the first step; None while the pace is unknown.

    Both times come from the launcher's clock, which may differ from the clock of this host.
    """
    beat = heartbeat
    if total is None or beat.time is None or beat.step is None or beat.first_step is None or beat.first_step_at is None:
        return None
    if beat.step <= beat.first_step:
        return None
    pace = (beat.time - beat.first_step_at) / (beat.step - beat.first_step)
    return max(0.0, pace * (total - beat.step))


def progress_line(job: JobInfo, now: float) -> str:
    """One line: state, steps, key metric, time since the start, time left."""
    attempt = f" attempt {job.attempt}" if job.attempt > 1 else ""
    parts = [job.submission_id, f"{job.state}{attempt}"]
    done = job.progress
    if done.step or done.total_steps:
        parts.append(f"step {done.step}" + (f"/{done.total_steps}" if done.total_steps else ""))
    if done.last is not None:
        parts.append(f"{done.metric} {done.last:.3f}")
    if job.started_at:
        parts.append(duration((job.ended_at or now) - job.started_at))
    if job.time_left is not None and job.state == JobState.RUNNING:
        parts.append(f"{duration(job.time_left)} left")
    if job.state not in (JobState.RUNNING, *ENDED) and job.reason:
        parts.append(job.reason)
    return printable("  ".join(parts), lines=False)
