# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a job: its steps, its key metric and the time left."""

from __future__ import annotations

from collections.abc import Sequence

from ..launcher import log, metrics, reading
from ..launcher.archive import Archive
from ..launcher.status import ENDED, JobState
from ..text import duration, printable
from .info import Heartbeat, JobInfo, Progress

# The metric that people check first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# How much is read of the end of a metrics file: one step of PPO takes about 8 KiB.
METRICS_BYTES = 256 << 10
# How much is read to find the first value, and how many files to find the last.
FIRST_BYTES = 4 << 20
MOST_FILES = 16


def total_steps(archive: Archive, heartbeat: Heartbeat) -> int | None:
    return log.total_steps(archive) if heartbeat.total_steps is None else heartbeat.total_steps


def first_value(archive: Archive, files: Sequence[str], metric: str) -> float | None:
    left = FIRST_BYTES
    for name in files:
        with reading.open_file(archive.jobs, name) as file:
            for step in metrics.steps(file, left):
                value = step.value(metric)
                if value is not None:
                    return value
            left -= file.tell()
        if left <= 0:
            break
    return None


def progress(archive: Archive, workload: str, heartbeat: Heartbeat) -> Progress:
    """Steps done and to do, and the first and the last value of the workload's key metric.

    Reads only the ends of files: a long job has 100 MB of metrics, and its status is read every few seconds. Raises
    UnreadableError or FileNotFoundError.
    """
    metric = KEY_METRICS.get(workload, "")
    files = metrics.files(archive.jobs, archive.submission_id)
    done, last = 0, None
    for file in reversed(files[-MOST_FILES:]):
        found = metrics.last_steps(archive.jobs, file, METRICS_BYTES)
        done = done or (found[-1].step if found else 0)
        values = [value for value in (step.value(metric) for step in found) if value is not None]
        if values:
            last = values[-1]
            break
    return Progress(
        step=done,
        total_steps=total_steps(archive, heartbeat),
        metric=metric,
        first=first_value(archive, files, metric) if last is not None else None,
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
    if job.notice:
        parts.append(job.notice)
    return printable("  ".join(parts), lines=False)
