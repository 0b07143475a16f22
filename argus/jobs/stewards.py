# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stewards for jobs that have none, for example after their head was restarted, and jobs of an earlier head."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..common.findings import WARNING, Finding
from ..common.shared_root import JOBS
from ..launcher import steward
from ..launcher.archive import Archive
from ..launcher.ray_api import allow_host
from ..launcher.reading import UnreadableError
from .listing import find_job
from .registry import Registered, Registry


def resume(
    root: Path, registry: Registry, adopt: Sequence[str], start: Callable[[Archive], None], check: bool = False
) -> tuple[bool, list[str], list[Finding]]:
    """Start missing stewards. Returns whether anything was changed, the ids of their jobs, and problems of others.

    adopt: jobs to register although this cluster has not submitted them. Their JobSpecs are taken from their archives,
    which jobs can write. Raises UnknownJobError and UnreadableError.
    """
    known = set(registry.ids())
    new = adopted(root / JOBS, [job for job in adopt if job not in known])
    archives, problems = without_steward(root / JOBS, sorted({*known, *(job.submission_id for job in new)}))
    if not check:
        for job in new:
            registry.write(job)
        for archive in archives:
            allow_host(address_of(registry, archive.submission_id))
            start(archive)
    findings = [
        Finding(job, f"{job} gets no steward: {problem}", "see docs/archive.md", WARNING)
        for job, problem in problems.items()
    ]
    return bool(new or archives), [archive.submission_id for archive in archives], findings


def without_steward(jobs: Path, submitted: Sequence[str]) -> tuple[list[Archive], dict[str, str]]:
    """The submitted jobs whose archives are not closed and whose steward is gone; and why others cannot get one."""
    found, problems = [], {}
    for submission_id in submitted:
        archive = Archive(jobs / submission_id)
        try:
            if archive.needs_steward():
                with steward.lock_of(archive) as free:
                    found += [archive] * free
        except (OSError, UnreadableError) as error:
            # A job can put anything into its archive. The other jobs need their stewards nevertheless.
            problems[submission_id] = str(error)
    return found, problems


def adopted(jobs: Path, submission_ids: Sequence[str]) -> list[Registered]:
    """Jobs as their archives describe them. Raises UnknownJobError."""
    archives = [find_job(jobs, submission_id) for submission_id in submission_ids]
    root = str(jobs.parent)
    return [Registered(one.submission_id, time.time(), one.read_jobspec(), root) for one in archives]


def address_of(registry: Registry, submission_id: str) -> str:
    """The address of the inventory at the submission of a job; empty if its entry cannot be read."""
    try:
        job = registry.read(submission_id)
    except UnreadableError:
        return ""
    return job.address if job else ""
