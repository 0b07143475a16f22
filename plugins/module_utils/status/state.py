# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..launcher import attempts
from ..launcher.archive import (
    ENDED,
    ENDING,
    FAILED,
    QUEUED,
    RETRYING,
    RUNNING,
    Archive,
)
from ..launcher.ray_api import RayApiError, RayHead
from .logs import log_since, log_tail
from .progress import progress, time_left

POLL_SECONDS = 0.5
# The keeper gives up waiting for the last evidence after 120 s.
CLOSING_SECONDS = 150
# Submitting takes Ray less than a second.
SUBMITTING_SECONDS = 60
# A launcher gives a sign of life every 2 s.
ALIVE_SECONDS = 30
# An attempt of it has begun.
LIVING = (RUNNING, ENDING, RETRYING)
# In place of the record of a job that the head does not know (any more): a head that is started again has lost all.
FORGOTTEN = {
    "status": "FAILED",
    "message": "the head does not know the job: it was started again, and its jobs are lost",
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
    if state in LIVING or job["status"] == RUNNING:
        # "Job is currently running."
        return (state if state in LIVING else RUNNING), reason
    return str(job["status"]), reason or str(job.get("message") or "")


def is_complete(status: Mapping[str, Any], now: float) -> bool:
    """Whether the job has ended and its last evidence is in the archive, or will not come any more."""
    if status.get("state") not in ENDED:
        return False
    return "closed_at" in status or now - float(status.get("ended_at") or 0) > CLOSING_SECONDS


def is_overdue(status: Mapping[str, Any], heartbeat: Mapping[str, Any], now: float) -> bool:
    """Whether the head should know the job: between its archive and its submission lie moments."""
    if "updated_at" not in status or status["state"] == QUEUED:
        return False
    if status["state"] in LIVING:
        # Who shares the shared root with another cluster sees its jobs too, of which this head knows nothing.
        return now - float(heartbeat.get("time") or 0) > ALIVE_SECONDS
    submitted = datetime.fromisoformat(status["updated_at"].replace("Z", "+00:00"))
    return now - submitted.timestamp() > SUBMITTING_SECONDS


def submitted_at(archive: Archive) -> float:
    """When the archive was made. Of all its files the JobSpec is written once, and first."""
    for file in (archive.path / "config" / "job_spec.json", archive.path):
        if file.exists():
            return file.stat().st_mtime
    return 0.0


def describe(archive: Archive, head: RayHead | None, tail: int, position: str | None = None) -> dict[str, Any]:
    """Everything that `ray_job_info` returns of one job.

    position: where the log is read on from, in place of its last `tail` lines, see log_since.
    """
    job, problem = None, ""
    if head:
        try:
            job = head.job(attempts.ray_id(archive.submission_id, attempts.current(archive)))
        except RayApiError as error:
            problem = str(error)
    return merged(archive, job, bool(head) and not problem, tail, position) | {"problem": problem}


def merged(
    archive: Archive, job: Mapping[str, Any] | None, answered: bool, tail: int = 0, position: str | None = None
) -> dict[str, Any]:
    """The archive and Ray's own record of a job, if there is one; answered: whether a head was asked for it."""
    status, now = archive.status(), time.time()
    heartbeat = archive.read_json("heartbeat.json") or {}
    driver = job or {}
    if job and job["status"] in ENDED and archive.is_kept():
        # Its keeper sees the same, and decides whether that is the job's end or another attempt follows.
        job = None
    elif not archive.is_kept() and answered and job is None and is_overdue(status, heartbeat, now):
        job = FORGOTTEN
    state, reason = merge_states(status, job)
    # Ray's own record ends with the launcher; without a head, the archive alone has to tell.
    ended = state in ENDED and (is_complete(status, now) or (job or {}).get("status") in ENDED)
    log, after = log_tail(archive, tail) if position is None else log_since(archive, position, final=state in ENDED)
    living = state == RUNNING and "time" in heartbeat
    done = progress(archive, status.get("workload", ""), heartbeat)
    return {
        "submission_id": archive.submission_id,
        "state": state,
        "ended": ended,
        "reason": reason,
        "failure": failure_of(status, state, reason, job is FORGOTTEN),
        "workload": status.get("workload", ""),
        "code_id": status.get("code_id", ""),
        "tags": status.get("tags") or {},
        "lineage": status.get("lineage") or {},
        "attempt": attempts.current(archive),
        "attempts": status.get("attempts") or [],
        "submitted_at": submitted_at(archive),
        "started_at": status.get("started_at"),
        # An attempt's end is not the job's.
        "ended_at": status.get("ended_at") if state in ENDED else None,
        "silent_for": max(0.0, now - float(heartbeat["time"])) if living else None,
        "time_left": time_left(heartbeat, done["total_steps"]) if state == RUNNING else None,
        "driver_host": (status.get("driver") or {}).get("host"),
        "driver_node_id": driver.get("driver_node_id"),
        "driver_node_ip": (driver.get("driver_info") or {}).get("node_ip_address"),
        "progress": done,
        "checkpoints": archive.checkpoints(),
        "archive": str(archive.path),
        "log": log,
        "log_position": after,
        "problem": "",
    }


def failure_of(status: Mapping[str, Any], state: str, reason: str, forgotten: bool) -> dict[str, Any] | None:
    """What the archive says of a failure, or what can be said of a job whose launcher could not write how it ended."""
    if state == status.get("state"):
        # That of an attempt before this one is history.
        return status.get("failure") if state in (*ENDED, RETRYING) else None
    if state != FAILED:
        return None
    if forgotten:
        kind, todo = "node_lost", "Submit it again; it can go on from its last checkpoint."
    elif status.get("state") in LIVING:
        kind, todo = "killed", "Look who killed its launcher, or whether its node went; the archive has all it wrote."
    else:
        kind, todo = "unknown", "Its launcher was never started: read the reason, which is Ray's."
    return {"kind": kind, "reason": reason, "lines": [], "todo": todo}


def wait_for_end(
    archive: Archive, head: RayHead | None, tail: int, timeout: float, position: str | None = None
) -> dict[str, Any]:
    """Describe the job when it has ended, or after `timeout` seconds; or when its log has more after a position."""
    deadline = time.monotonic() + timeout
    while True:
        # Most of the time the archive alone tells; Ray is asked when the time is over.
        if is_complete(archive.status(), time.time()) or time.monotonic() >= deadline:
            break
        # The log is at its end before the evidence is.
        if position is not None and (archive.status().get("state") in ENDED or log_since(archive, position)[0]):
            break
        time.sleep(min(POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    return describe(archive, head, tail, position)
