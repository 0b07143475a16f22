# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of a shared root: the latest ones, and the one with a given id."""

from __future__ import annotations

from pathlib import Path

from ..job.submission_id import SUBMISSION_ID
from ..launcher import attempts
from ..launcher.archive import Archive
from ..launcher.ray_api import RayApiError, RayHead
from ..text import printable
from .info import UNKNOWN, JobInfo, JobList, RayRecord
from .state import job_info, submitted_at

# How many jobs the answer to an unknown id lists.
SUGGESTED = 5


class UnknownJobError(Exception):
    """There is no job with the given id. The message lists those that there are."""


def find_job(jobs: Path, submission_id: str) -> Archive:
    """The archive of a job by an id that a user gave; raises UnknownJobError.

    The id becomes a path, so it is checked first: `../x` must not lead out of the directory.
    """
    if not SUBMISSION_ID.fullmatch(submission_id) or not (jobs / submission_id).is_dir():
        raise UnknownJobError(unknown_job(jobs, submission_id))
    return Archive(jobs / submission_id)


def unknown_job(jobs: Path, submission_id: str) -> str:
    """The message for an id without a job."""
    found = sorted(archives_in(jobs), key=submitted_at, reverse=True)
    latest = ", ".join(printable(archive.submission_id, lines=False) for archive in found[:SUGGESTED]) or "none"
    asked = printable(repr(submission_id))
    return f"There is no job {asked} in {jobs}. Pass -e submission_id=ID; the latest jobs are: {latest}."


def archives_in(jobs: Path) -> list[Archive]:
    return [Archive(path) for path in jobs.glob("[!.]*") if path.is_dir()]


def foreign_job(record: RayRecord) -> JobInfo:
    """A job without an archive, which was submitted to Ray directly. It may hold what ours wait for."""
    return JobInfo(
        submission_id=record.submission_id,
        state=record.status,
        ended=record.ended,
        reason=record.message,
        submitted_at=record.started_at,
        driver_node_ip=record.driver_node_ip,
    )


def latest_jobs(jobs: Path, head: RayHead | None, limit: int) -> JobList:
    """The latest jobs of a directory of archives and of the head, the newest first."""
    records: dict[str, RayRecord] = {}
    problem = ""
    if head:
        try:
            records = {record.submission_id: record for record in map(RayRecord.from_json, head.jobs())}
        except RayApiError as error:
            problem = str(error)
    archives = archives_in(jobs)
    ours = {archive.submission_id for archive in archives}
    foreign = [one for ray_id, one in records.items() if ray_id.partition(attempts.SEPARATOR)[0] not in ours]
    found: list[tuple[float, Archive | RayRecord]] = [(submitted_at(archive), archive) for archive in archives]
    found += [(record.started_at, record) for record in foreign]
    found.sort(key=lambda one: one[0], reverse=True)

    def row(one: Archive | RayRecord) -> JobInfo:
        if isinstance(one, RayRecord):
            return foreign_job(one)
        try:
            ray_id = attempts.ray_id(one.submission_id, attempts.current(one))
            return job_info(one, records.get(ray_id), bool(head) and not problem)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            # One archive with damaged files must not hide all other jobs.
            return JobInfo(one.submission_id, UNKNOWN, reason=f"its archive is damaged: {error}", archive=str(one.path))

    return JobList(tuple(row(one) for _at, one in found[:limit]), len(found), str(jobs), problem)
