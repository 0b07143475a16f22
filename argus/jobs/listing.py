# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of a shared root: the latest ones, and the one with a given id."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.text import printable
from ..jobspec.submission_id import SUBMISSION_ID
from ..launcher import attempts
from ..launcher.archive import Archive, archives
from ..launcher.ray_api import JobRecord, RayApiError, RayHead
from ..launcher.reading import UnreadableError
from ..launcher.status import ray_id, submission_id_of
from .defaults import on_machines
from .info import JobInfo, JobList
from .state import job_info, unreadable_job

# How many jobs the answer to an unknown id lists.
SUGGESTED = 5


class UnknownJobError(Exception):
    """There is no job with the given id. The message lists those that there are."""


def find_job(jobs: Path, submission_id: str) -> Archive:
    """The archive of a job by an id that a user gave; raises UnknownJobError.

    The id becomes a path, so it is checked first: `../x` must not lead out of the directory.
    """
    archive = Archive(jobs / submission_id)
    if not SUBMISSION_ID.fullmatch(submission_id) or not archive.exists():
        raise UnknownJobError(unknown_job(jobs, submission_id))
    return archive


def unknown_job(jobs: Path, submission_id: str) -> str:
    """The message for an id without a job."""
    found = sorted(archives(jobs), key=Archive.created_at, reverse=True)
    latest = ", ".join(archive.submission_id for archive in found[:SUGGESTED]) or "none"
    asked = printable(repr(submission_id))
    return f"There is no job {asked} in {on_machines(str(jobs.parent))}/{jobs.name}. The latest jobs are: {latest}."


def foreign_job(record: JobRecord) -> JobInfo:
    """A job without an archive, which was submitted to Ray directly. It may hold what ours wait for."""
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
        own = archive.read_status().tags
    except UnreadableError:
        return False
    return all(name in own and as_text(own[name]) == as_text(value) for name, value in tags.items())


def as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def latest_jobs(jobs: Path, head: RayHead | None, limit: int, tags: Mapping[str, Any] | None = None) -> JobList:
    """The latest jobs of a directory of archives and of the head, the newest first.

    tags: only jobs with these tags, which jobs that were submitted to Ray directly do not have.
    """
    records: dict[str, JobRecord] = {}
    problem = ""
    if head:
        try:
            records = {record.submission_id: record for record in map(JobRecord.from_api, head.jobs())}
        except RayApiError as error:
            problem = str(error)
    own = archives(jobs)
    ours = {archive.submission_id for archive in own}
    foreign = [one for name, one in records.items() if submission_id_of(name) not in ours]
    wanted = [archive for archive in own if not tags or has_tags(archive, tags)]
    found: list[tuple[float, Archive | JobRecord]] = [(archive.created_at(), archive) for archive in wanted]
    found += [(record.started_at, record) for record in foreign if not tags]
    found.sort(key=lambda one: one[0], reverse=True)

    def row(one: Archive | JobRecord) -> JobInfo:
        if isinstance(one, JobRecord):
            return foreign_job(one)
        try:
            identifier = ray_id(one.submission_id, attempts.current(one))
        except UnreadableError as error:
            return unreadable_job(one, error)
        try:
            return job_info(one, records.get(identifier), bool(head) and not problem)
        except Exception as error:
            # Whatever was overlooked must not hide all other jobs.
            return unreadable_job(one, UnreadableError(one.path, f"causes {type(error).__name__}: {error}"))

    return JobList(tuple(row(one) for _at, one in found[:limit]), len(found), str(jobs), problem, tags=tags or {})
