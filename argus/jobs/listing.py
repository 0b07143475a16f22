# SPDX-License-Identifier: Apache-2.0
"""Finds the jobs of a shared root, by id or tags, and builds the answers of `argus status` and `argus logs`."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..archive.archive import SUBMISSION_ID, Archive, archives
from ..archive.status import ENDED, ray_id, submission_id_of
from ..common.shared_root import JOBS_DIR, archive_path
from ..common.text import printable
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import RayApiError, RayHead
from ..ray.records import JobRecord
from .describe import describe, describe_from_record, is_complete, unreadable_job, with_checkpoints
from .info import JobInfo, JobList
from .logs import Selection, log_since, select_lines
from .registry import Registry
from .services import root_on_machines

LAST = "last"
MIN_ID_CHARS = 4
# The random end of an id that new_submission_id has generated.
RANDOM_ENDING = re.compile(r"[0-9a-f]{4}")
MAX_SUGGESTED_IDS = 5


class UnknownJobError(Exception):
    """There is no job with the given id. The message lists those that there are."""


def find_job(jobs: Path, submission_id: str, harms: bool = False) -> Archive:
    """The archive of a job by an id from a user: a whole id, the end of one, or `last`. Raises UnknownJobError.

    The id becomes a path, so it is checked first: `../x` must not lead out of the directory.
    jobs: the directory of all archives.
    harms: whether the caller stops or changes the job. Then only the random end of a generated id abbreviates it:
        `last` may be the job of another user, and a mistyped id may be the end of another id.
    """
    archive = Archive(jobs / submission_id)
    if not SUBMISSION_ID.fullmatch(submission_id):
        raise UnknownJobError(unknown_job_text(jobs, submission_id))
    if archive.exists():
        return archive
    if submission_id == LAST and not harms:
        matched = sorted(archives(jobs), key=Archive.created_at)[-1:]
    else:
        is_end = RANDOM_ENDING.fullmatch(submission_id) if harms else len(submission_id) >= MIN_ID_CHARS
        end = f"-{submission_id}" if harms else submission_id
        matched = [archive for archive in archives(jobs) if is_end and archive.submission_id.endswith(end)]
    if len(matched) > 1:
        names = ", ".join(sorted(archive.submission_id for archive in matched)[:MAX_SUGGESTED_IDS])
        raise UnknownJobError(f"{submission_id!r} is the end of several ids: {names}.")
    if not matched:
        raise UnknownJobError(unknown_job_text(jobs, submission_id))
    return matched[0]


def unknown_job_text(jobs: Path, submission_id: str) -> str:
    latest_archives = sorted(archives(jobs), key=Archive.created_at, reverse=True)
    latest = ", ".join(archive.submission_id for archive in latest_archives[:MAX_SUGGESTED_IDS]) or "none"
    shown_id = printable(repr(submission_id))
    directory = f"{root_on_machines(str(jobs.parent))}/{jobs.name}"
    return f"There is no job {shown_id} in {directory}. The latest jobs are: {latest}."


def foreign_job(record: JobRecord) -> JobInfo:
    """Describe a job without an archive, which was submitted to Ray directly. It may hold what other jobs wait for."""
    return JobInfo(
        submission_id=record.submission_id,
        state=record.status,
        ended=record.ended,
        reason=record.message,
        submitted_at=record.started_at,
        driver_node_ip=record.driver_node_ip or None,
    )


def has_tags(archive: Archive, tags: Mapping[str, Any]) -> bool:
    """Whether a job has all of these tags. Values are compared as text: those of a command line have no type."""
    try:
        job_tags = archive.read_status().tags
    except UnreadableError:
        return False
    return all(name in job_tags and tag_text(job_tags[name]) == tag_text(value) for name, value in tags.items())


def tag_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def latest_jobs(jobs: Path, head: RayHead | None, limit: int, tags: Mapping[str, Any] | None = None) -> JobList:
    """The latest jobs of a directory of archives and of the head, the newest first.

    head: None lists archives alone. limit: the maximum number of jobs.
    tags: list only jobs with these tags. A job that was submitted to Ray directly has none.
    """
    records: dict[str, JobRecord] = {}
    problem = ""
    if head:
        try:
            records = {record.submission_id: record for record in map(JobRecord.from_api, head.jobs())}
        except RayApiError as error:
            problem = str(error)
    all_archives = archives(jobs)
    archive_ids = {archive.submission_id for archive in all_archives}
    foreign = [record for name, record in records.items() if submission_id_of(name) not in archive_ids]
    tagged = [archive for archive in all_archives if not tags or has_tags(archive, tags)]
    entries: list[tuple[float, Archive | JobRecord]] = [(archive.created_at(), archive) for archive in tagged]
    entries += [(record.started_at, record) for record in foreign if not tags]
    entries.sort(key=lambda entry: entry[0], reverse=True)

    def entry_info(entry: Archive | JobRecord) -> JobInfo:
        if isinstance(entry, JobRecord):
            return foreign_job(entry)
        try:
            identifier = ray_id(entry.submission_id, attempts.current_attempt(entry))
        except UnreadableError as error:
            return unreadable_job(entry, error)
        try:
            return describe_from_record(entry, records.get(identifier), bool(head) and not problem, problem=problem)
        except Exception as error:
            # An unexpected error of one job must not hide all other jobs.
            return unreadable_job(entry, UnreadableError(entry.path, f"causes {type(error).__name__}: {error}"))

    latest = tuple(entry_info(entry) for _time, entry in entries[:limit])
    return JobList(latest, len(entries), str(jobs), problem, tags=tags or {})


# The answers of `argus status` and `argus logs`.

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
    return {"time": time.time(), "slow": head.slow_seconds if head else 0.0}


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
