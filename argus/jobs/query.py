# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer to `status`: one job, or the latest ones."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common.shared_root import JOBS, archive_path
from ..launcher.ray_api import RayHead
from .defaults import on_machines
from .info import JobInfo
from .listing import find_job, latest_jobs
from .registry import Registry
from .root import root_problem
from .state import wait_for_end


def job_status(
    root: Path, head: RayHead | None, submission_id: str, tail: int, log_position: str | None, wait_timeout: float
) -> dict[str, Any]:
    """One job, with its JobSpec, and why the head could not be asked.

    root: the shared root. head: asked for what is not in the archive; None reads the archive alone.
    tail: how many lines of the end of the log; log_position: those after a position instead.
    wait_timeout: how many seconds to wait for the job's end, or for lines after log_position.

    Raises UnknownJobError, UnreadableError and PositionError.
    """
    archive = find_job(root / JOBS, submission_id)
    job = as_people_see_it(wait_for_end(archive, head, tail, wait_timeout, log_position), root)
    job = replace(job, root_problem=root_problem(root))
    return {
        **moment(head),
        "job": {**job.to_json(), "jobspec": archive.read_jobspec()},
        "problem": job.problem,
        "registered": job.submission_id in Registry().ids(),
    }


def jobs_status(root: Path, head: RayHead | None, limit: int, tags: Mapping[str, Any]) -> dict[str, Any]:
    """The latest jobs, at most `limit`, those with all of these tags. Raises UnreadableError."""
    listed = latest_jobs(root / JOBS, head, limit, tags)
    jobs = tuple(as_people_see_it(job, root) for job in listed.jobs)
    directory = f"{on_machines(str(root))}/{JOBS}"
    return {
        **moment(head),
        **replace(listed, jobs=jobs, directory=directory, root_problem=root_problem(root)).to_json(),
    }


def as_people_see_it(job: JobInfo, root: Path) -> JobInfo:
    """The job with the path of its archive on the machines."""
    return replace(job, archive=archive_path(on_machines(str(root)), job.submission_id)) if job.archive else job


def moment(head: RayHead | None) -> dict[str, Any]:
    """The time of this host, and the seconds that a slow head needed; read after the head has answered."""
    return {"time": time.time(), "slow": head.slow if head else 0.0}
