# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..launcher import attempts
from ..launcher.archive import (
    ENDED,
    Archive,
)
from ..launcher.ray_api import RayApiError, RayHead
from .state import merged, submitted_at


def without_archive(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job that Ray knows and we do not: somebody's own, who may hold what ours wait for."""
    return {
        "submission_id": job["submission_id"],
        "state": job["status"],
        "ended": job["status"] in ENDED,
        "reason": job.get("message") or "",
        "failure": None,
        "workload": "",
        "attempt": 1,
        "submitted_at": (job.get("start_time") or 0) / 1000,
        "driver_host": None,
        "driver_node_ip": (job.get("driver_info") or {}).get("node_ip_address"),
        "progress": {"step": 0, "total_steps": None},
        "time_left": None,
        "silent_for": None,
        "archive": "",
    }


def archives_in(jobs: Path) -> list[Archive]:
    return [Archive(path) for path in jobs.glob("[!.]*") if path.is_dir()]


def recent(jobs: Path, head: RayHead | None, limit: int) -> dict[str, Any]:
    """The last jobs below a directory of archives and of the head, the newest first; and how many there are in all."""
    known: dict[str, dict[str, Any]] = {}
    problem = ""
    if head:
        try:
            known = {job["submission_id"]: job for job in head.jobs()}
        except RayApiError as error:
            problem = str(error)
    archives = archives_in(jobs)
    ours = {archive.submission_id for archive in archives}
    foreign = [job for ray_id, job in known.items() if ray_id.partition(attempts.SEPARATOR)[0] not in ours]
    found: list[tuple[float, Archive | dict[str, Any]]] = [(submitted_at(archive), archive) for archive in archives]
    found += [((job.get("start_time") or 0) / 1000, job) for job in foreign]
    found.sort(key=lambda one: one[0], reverse=True)

    def row(one: Archive | dict[str, Any]) -> dict[str, Any]:
        if isinstance(one, dict):
            return without_archive(one)
        ray_id = attempts.ray_id(one.submission_id, attempts.current(one))
        return merged(one, known.get(ray_id), bool(head) and not problem)

    return {
        "jobs": [row(one) for _at, one in found[:limit]],
        "total": len(found),
        "directory": str(jobs),
        "problem": problem,
    }


def unknown_job(jobs: Path, submission_id: str) -> str:
    """Why there is no such job, with those that there are."""
    found = sorted(archives_in(jobs), key=submitted_at, reverse=True)
    last = ", ".join(archive.submission_id for archive in found[:5]) or "none"
    return f"There is no job {submission_id!r} in {jobs}. Say -e submission_id=ID; the last are: {last}."
