# SPDX-License-Identifier: Apache-2.0
"""Finds the jobs of a shared root: the one with a given id, the latest ones, those with given tags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..archive.archive import SUBMISSION_ID, Archive, archives
from ..archive.status import ray_id, submission_id_of
from ..common.text import printable
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import JobRecord, RayApiError, RayHead
from .describe import describe_from_record, unreadable_job
from .info import JobInfo, JobList
from .services import root_on_machines

# A word that stands for the latest job where an id is expected.
LAST = "last"
# The minimum length of an abbreviated id.
MIN_ID_CHARS = 4
# The random end of an id that new_submission_id has generated.
RANDOM_ENDING = re.compile(r"[0-9a-f]{4}")
# The number of jobs that the error for an unknown id lists.
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
