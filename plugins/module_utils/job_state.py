# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED, RUNNING, Archive
from ansible_collections.argus.verl.plugins.module_utils.ray_api import RayApiError, RayHead

# The one number that people look at first, by workload.
KEY_METRICS = {"sft": "train/loss", "grpo": "critic/rewards/mean", "ppo": "critic/rewards/mean"}
TOTAL_STEPS = re.compile(rb"Total training steps: (\d+)")
# verl says the number of steps before the first one; the log may grow to gigabytes after that.
LOG_HEAD_BYTES = 4 << 20
POLL_SECONDS = 0.5
# The launcher gives up waiting for its evidence after 60 s.
CLOSING_SECONDS = 90
# Submitting takes Ray less than a second.
SUBMITTING_SECONDS = 60
# In place of the record of a job that the head does not know (any more): a head that is started again has lost all.
FORGOTTEN = {
    "status": "FAILED",
    "message": "the head does not know the job: it was started again, and its jobs are lost",
}


def total_steps(archive: Archive) -> int | None:
    try:
        with archive.driver_log.open("rb") as log:
            found = TOTAL_STEPS.search(log.read(LOG_HEAD_BYTES))
    except OSError:
        return None
    return int(found.group(1)) if found else None


def log_tail(archive: Archive, lines: int) -> list[str]:
    """The last lines of the driver's log; of a progress bar, what it showed last."""
    if not lines:
        return []
    try:
        with archive.driver_log.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - lines * 4096))
            text = log.read().decode(errors="replace")
    except OSError:
        return []
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return [line for line in shown if line.strip()][-lines:]


def progress(archive: Archive, workload: str) -> dict[str, Any]:
    """Steps done and to do, and the first and the last value of the workload's key metric."""
    name = KEY_METRICS.get(workload, "")
    step, values = 0, []
    for entry in archive.metrics():
        step = max(step, int(entry["step"]))
        if name in entry["data"]:
            values.append(float(entry["data"][name]))
    return {
        "step": step,
        "total_steps": total_steps(archive),
        "metric": name,
        "first": values[0] if values else None,
        "last": values[-1] if values else None,
    }


def merge_states(status: Mapping[str, Any], job: Mapping[str, Any] | None) -> tuple[str, str]:
    """The state and the reason, from the archive and from Ray's own record.

    The archive has the last word on how a job ended: it is written by the launcher. Ray has it when the
    launcher could not write any more, and while the job waits for its driver to be started.
    """
    state, reason = str(status.get("state") or "UNKNOWN"), str(status.get("reason") or "")
    if state in ENDED or job is None:
        return state, reason
    if job["status"] in ENDED:
        return str(job["status"]), reason or str(job.get("message") or "")
    return (state if state == RUNNING else str(job["status"])), reason or str(job.get("message") or "")


def is_complete(status: Mapping[str, Any], now: float) -> bool:
    """Whether the job has ended and its last evidence is in the archive, or will not come any more."""
    if status.get("state") not in ENDED:
        return False
    return "closed_at" in status or now - float(status.get("ended_at") or 0) > CLOSING_SECONDS


def is_overdue(status: Mapping[str, Any], now: float) -> bool:
    """Whether the head should have heard of the job: between its archive and its submission lie moments."""
    submitted = datetime.fromisoformat(status["updated_at"].replace("Z", "+00:00")) if "updated_at" in status else None
    return submitted is not None and (status["state"] == RUNNING or now - submitted.timestamp() > SUBMITTING_SECONDS)


def describe(archive: Archive, head: RayHead | None, tail: int) -> dict[str, Any]:
    """Everything that `ray_job_info` returns of one job."""
    status = archive.status()
    job: dict[str, Any] | None = None
    problem = ""
    if head:
        try:
            job = head.job(archive.submission_id)
            if job is None and is_overdue(status, time.time()):
                job = FORGOTTEN
        except RayApiError as error:
            problem = str(error)
    state, reason = merge_states(status, job)
    driver = job or {}
    return {
        "submission_id": archive.submission_id,
        "state": state,
        # Ray's own record ends with the launcher; without a head, the archive alone has to tell.
        "ended": state in ENDED and (is_complete(status, time.time()) or (job or {}).get("status") in ENDED),
        "reason": reason,
        "workload": status.get("workload", ""),
        "code_id": status.get("code_id", ""),
        "started_at": status.get("started_at"),
        "ended_at": status.get("ended_at"),
        "driver_host": (status.get("driver") or {}).get("host"),
        "driver_node_id": driver.get("driver_node_id"),
        "driver_node_ip": (driver.get("driver_info") or {}).get("node_ip_address"),
        "progress": progress(archive, status.get("workload", "")),
        "checkpoints": archive.checkpoints(),
        "archive": str(archive.path),
        "log": log_tail(archive, tail),
        "problem": problem,
    }


def wait_for_end(archive: Archive, head: RayHead | None, tail: int, timeout: float) -> dict[str, Any]:
    """Describe the job when it has ended, or after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        # Most of the time the archive alone tells; Ray is asked when the time is over.
        if is_complete(archive.status(), time.time()) or time.monotonic() >= deadline:
            return describe(archive, head, tail)
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))


def progress_line(info: Mapping[str, Any], now: float) -> str:
    """One line for people who follow: state, step of steps, the key metric, the time since the start."""
    parts = [str(info["submission_id"]), str(info["state"])]
    seen = info["progress"]
    if seen["step"] or seen["total_steps"]:
        parts.append(f"step {seen['step']}" + (f"/{seen['total_steps']}" if seen["total_steps"] else ""))
    if seen["last"] is not None:
        parts.append(f"{seen['metric']} {seen['last']:.3f}")
    if info["started_at"]:
        minutes, seconds = divmod(int((info["ended_at"] or now) - info["started_at"]), 60)
        parts.append(f"{minutes}:{seconds:02d}")
    return "  ".join(parts)
