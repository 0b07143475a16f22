# SPDX-License-Identifier: Apache-2.0
"""Builds the answers of `argus status` and `argus logs`: one job, after a wait if need be, or the latest jobs."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..archive.archive import Archive
from ..archive.status import ENDED
from ..common.shared_root import JOBS_DIR, archive_path
from ..io.reading import UnreadableError
from ..ray.api import RayHead
from .describe import describe, is_complete, with_checkpoints
from .info import JobInfo
from .listing import find_job, latest_jobs
from .log_selection import Selection, select_lines
from .logs import log_since
from .registry import Registry
from .services import root_on_machines

POLL_INTERVAL_SECONDS = 0.5
# Below these limits, the shared root counts as full: a status and a heartbeat need a few KiB.
MIN_FREE_BYTES, MIN_FREE_INODES = 1 << 20, 16
ALL_LINES = Selection()


def job_status(
    root: Path,
    head: RayHead | None,
    submission_id: str,
    tail: int,
    log_position: str | None,
    wait_timeout: float,
    selection: Selection = ALL_LINES,
) -> dict[str, Any]:
    """One job as JSON, with its JobSpec, and with the reason if the head could not be asked.

    root: the shared root. head: None reads the archive alone.
    tail: how many lines of the end of the log. log_position: the lines after a position instead.
    wait_timeout: how many seconds to wait for the end of the job, or for lines after log_position.
    selection: which lines of the log to choose: the last `tail` of its last 8 MiB, or all of those after log_position.

    Raises UnknownJobError, UnreadableError, PositionError and OperationError.
    """
    archive = find_job(root / JOBS_DIR, submission_id)
    read_tail = tail if selection == ALL_LINES else None
    job = with_machine_path(wait_and_describe(archive, head, read_tail, wait_timeout, log_position), root)
    job = replace(job, root_problem=root_problem(root))
    if selection != ALL_LINES:
        job = replace(job, log=tuple(select_lines(archive, job, selection, tail, log_position)))
    return {
        **answer_time(head),
        "job": {**job.to_json(), "jobspec": archive.read_jobspec()},
        "problem": job.problem,
        "registered": job.submission_id in Registry().ids(),
    }


def jobs_status(root: Path, head: RayHead | None, limit: int, tags: Mapping[str, Any]) -> dict[str, Any]:
    """The latest jobs that have all of these tags, at most `limit`, as JSON. Raises UnreadableError."""
    listed = latest_jobs(root / JOBS_DIR, head, limit, tags)
    jobs = tuple(with_machine_path(job, root) for job in listed.jobs)
    directory = f"{root_on_machines(str(root))}/{JOBS_DIR}"
    return {
        **answer_time(head),
        **replace(listed, jobs=jobs, directory=directory, root_problem=root_problem(root)).to_json(),
    }


def wait_and_describe(
    archive: Archive, head: RayHead | None, tail: int | None, timeout: float, position: str | None = None
) -> JobInfo:
    """Describe the job once it has ended, after `timeout` seconds, or once its log has more lines after `position`."""
    deadline = time.monotonic() + timeout
    while True:
        # To wait, the archive is enough. Ray is asked once, at the end.
        try:
            is_over = is_complete(archive.read_status(), time.time()) or has_more_log(archive, position)
        except UnreadableError:
            is_over = True
        if is_over or time.monotonic() >= deadline:
            job = describe(archive, head, tail, position)
            return with_checkpoints(archive, job) if job.state in ENDED or not timeout else job
        time.sleep(min(POLL_INTERVAL_SECONDS, max(0.0, deadline - time.monotonic())))


def has_more_log(archive: Archive, position: str | None) -> bool:
    """Whether the log has lines after a position, or gets none any more, which is before the evidence is complete."""
    if position is None:
        return False
    return archive.read_status().state in ENDED or bool(log_since(archive, position).lines)


def with_machine_path(job: JobInfo, root: Path) -> JobInfo:
    return replace(job, archive=archive_path(root_on_machines(str(root)), job.submission_id)) if job.archive else job


def answer_time(head: RayHead | None) -> dict[str, Any]:
    """The time of this host, and the seconds that a slow head needed; to be called after the head has answered."""
    return {"time": time.time(), "slow": head.slow if head else 0.0}


def root_problem(root: Path) -> str:
    """Why nothing can be written to a shared root, as this host sees it, or ""."""
    try:
        status = os.statvfs(root)
    except OSError as error:
        return f"The shared root cannot be examined: {root}: {error.strerror}"
    free = status.f_bavail * status.f_frsize
    if status.f_flag & os.ST_RDONLY:
        return f"The shared root is mounted read-only: {root}"
    # Some file systems report neither blocks nor files.
    if status.f_blocks and free < MIN_FREE_BYTES:
        return f"The shared root is full: {root} has {free >> 10} KiB free"
    if status.f_files and status.f_favail < MIN_FREE_INODES:
        return f"The shared root is full: {root} has {status.f_favail} inodes free"
    return ""
