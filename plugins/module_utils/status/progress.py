# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..launcher import log
from ..launcher.archive import (
    ENDED,
    RUNNING,
    Archive,
)
from ..text import duration

# The one number that people look at first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
# The end of a metrics file: a step of PPO is about 8 KiB.
METRICS_BYTES = 256 << 10


def total_steps(archive: Archive, heartbeat: Mapping[str, Any]) -> int | None:
    if heartbeat.get("total_steps") is not None:
        return int(heartbeat["total_steps"])
    try:
        return log.total_steps(archive)
    except OSError:
        return None


def entries(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Steps from the lines of a metrics file, of which the last one may be half written."""
    for line in lines:
        if line.endswith(b"\n"):
            yield json.loads(line)


def last_entries(file: Path) -> list[dict[str, Any]]:
    with file.open("rb") as content:
        begin = max(0, content.seek(0, 2) - METRICS_BYTES)
        content.seek(begin)
        # What is read from the middle begins with a part of a line.
        return list(entries(content.readlines()[bool(begin) :]))


def first_value(files: Sequence[Path], metric: str) -> float | None:
    for file in files:
        with file.open("rb") as lines:
            for entry in entries(lines):
                if metric in entry["data"]:
                    return float(entry["data"][metric])
    return None


def progress(archive: Archive, workload: str, heartbeat: Mapping[str, Any]) -> dict[str, Any]:
    """Steps done and to do, and the first and the last value of the workload's key metric.

    Reads ends of files only: a long job has a hundred megabytes of metrics, and is looked at every few seconds.
    """
    metric = KEY_METRICS.get(workload, "")
    files = sorted(archive.path.glob("logs/metrics-*.jsonl"), key=lambda file: int(file.stem.rpartition("-")[2]))
    step, last = 0, None
    for file in reversed(files):
        found = last_entries(file)
        step = step or (int(found[-1]["step"]) if found else 0)
        values = [float(entry["data"][metric]) for entry in found if metric in entry["data"]]
        if values:
            last = values[-1]
            break
    return {
        "step": step,
        "total_steps": total_steps(archive, heartbeat),
        "metric": metric,
        "first": first_value(files, metric) if last is not None else None,
        "last": last,
    }


def time_left(heartbeat: Mapping[str, Any], total: int | None) -> float | None:
    """Seconds until the last of all steps, from the pace since the first one; None as long as there is none.

    Both times are of the launcher's clock, which may differ from ours.
    """
    step, first, first_at = heartbeat.get("step"), heartbeat.get("first_step"), heartbeat.get("first_step_at")
    if total is None or step is None or first is None or first_at is None or step <= first:
        return None
    pace = (float(heartbeat["time"]) - float(first_at)) / (int(step) - int(first))
    return max(0.0, pace * (total - int(step)))


def progress_line(info: Mapping[str, Any], now: float) -> str:
    """One line for people who follow: state, step of steps, the key metric, the time since the start, the time left."""
    attempt = f" attempt {info['attempt']}" if info.get("attempt", 1) > 1 else ""
    parts = [str(info["submission_id"]), f"{info['state']}{attempt}"]
    seen = info["progress"]
    if seen["step"] or seen["total_steps"]:
        parts.append(f"step {seen['step']}" + (f"/{seen['total_steps']}" if seen["total_steps"] else ""))
    if seen["last"] is not None:
        parts.append(f"{seen['metric']} {seen['last']:.3f}")
    if info["started_at"]:
        parts.append(duration((info["ended_at"] or now) - info["started_at"]))
    if info.get("time_left") is not None and info["state"] == RUNNING:
        parts.append(f"{duration(info['time_left'])} left")
    if info["state"] not in (RUNNING, *ENDED) and info.get("reason"):
        parts.append(str(info["reason"]))
    return "  ".join(parts)
