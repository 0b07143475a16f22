# SPDX-License-Identifier: Apache-2.0
"""Decides which archives and checkpoints of jobs are not needed any more, for `argus gc --jobs`. Removes nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ..archive import checkpoints
from ..archive.archive import SUBMISSION_ID, Archive, archives
from ..archive.status import Status
from ..common.shared_root import JOBS_DIR
from ..io.reading import UnreadableError
from .listing import has_tags
from .registry import Registry

SUPERFLUOUS = "to be removed"
DAY_SECONDS = 86_400
# A key of a JobSpec that names an earlier job.
NAMED_JOB = re.compile(rf'"(?:resume_from|depends_on)": *"({SUBMISSION_ID.pattern})"')
ARCHIVE_PATH = re.compile(rf"/{JOBS_DIR}/(?P<job>{SUBMISSION_ID.pattern})(?:/checkpoints/global_step_[0-9]+)?")
SLASHES = re.compile(r"/(?:\.?/)+")
MAX_LISTED_USERS = 3
# The ids of the jobs that name a job in their JobSpecs, by the id of that job or by the path of one of its checkpoints
# below the directory of archives.
Uses = dict[str, list[str]]
# The key in Uses for the jobs whose files cannot be read: they may use any job.
ANY_JOB = ""


class RemovalScope(StrEnum):
    # All checkpoints but the last complete one.
    OLD_CHECKPOINTS = "old_checkpoints"
    CHECKPOINTS = "checkpoints"
    ARCHIVES = "archives"


class RemovalRules(BaseModel):
    """Which jobs stay: a job that meets `keep` or `keep_days`. With neither, nothing is removed."""

    scope: RemovalScope = RemovalScope.CHECKPOINTS
    keep: int = Field(0, ge=0)
    # Jobs that ended less than so many days ago stay; 0 for no such rule.
    keep_days: float = Field(0, ge=0, allow_inf_nan=False)
    tags: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Decision:
    archive: Archive
    # The place among the latest jobs, from 0.
    index: int
    state: str
    # SUPERFLUOUS, or why the job stays.
    text: str
    # The directories to remove, and their size in bytes.
    paths: tuple[Path, ...] = ()
    size: int = 0


def decide_all(jobs: Path, rules: RemovalRules, registry: Registry, now: float) -> list[Decision]:
    """The decisions about all jobs of a directory of archives, the latest first. Raises UnreadableError."""
    latest = sorted(archives(jobs), key=Archive.created_at, reverse=True)
    uses = job_uses(latest, registry)
    return [decide(archive, index, uses, rules, now) for index, archive in enumerate(latest)]


def decide(archive: Archive, index: int, uses: Uses, rules: RemovalRules, now: float) -> Decision:
    """The decision about one job. index: its place among the latest jobs, from 0."""
    try:
        status = archive.read_status()
        reason = reason_to_keep(archive, status, index, uses, rules, now)
        paths = () if reason else tuple(removable_paths(archive, status.workload, rules.scope, uses))
        size = sum(0 if path.is_symlink() else checkpoints.directory_bytes(path) for path in paths)
    except (UnreadableError, OSError, ValueError, RecursionError) as error:
        return Decision(archive, index, "", f"cannot be read: {error}")
    if not reason and not paths:
        users = uses.get(archive.submission_id, [])
        reason = (
            f"its last checkpoint is {used_by(users)}" if users and archive.checkpoints() else "no such checkpoints"
        )
    return Decision(archive, index, str(status.state or ""), reason or SUPERFLUOUS, () if reason else paths, size)


def reason_to_keep(archive: Archive, status: Status, index: int, uses: Uses, rules: RemovalRules, now: float) -> str:
    """The reason to keep a job, or "". Raises ValueError for a malformed time."""
    if not status.closed_at:
        return "has not ended"
    if not rules.keep and not rules.keep_days:
        return "neither a number nor an age is set"
    if not has_tags(archive, rules.tags):
        return "has other tags"
    if index < rules.keep:
        return f"among the latest {rules.keep}"
    age = (now - datetime.fromisoformat(status.closed_at).timestamp()) / DAY_SECONDS
    if age < rules.keep_days:
        return f"ended {age:.1f} days ago"
    if ANY_JOB in uses:
        return f"may be {used_by(uses[ANY_JOB])}, whose files cannot be read"
    is_needed = archive.submission_id in uses and rules.scope == RemovalScope.ARCHIVES
    return used_by(uses[archive.submission_id]) if is_needed else ""


def used_by(users: Sequence[str]) -> str:
    return f"used by {', '.join(users[:MAX_LISTED_USERS])}{' and others' if len(users) > MAX_LISTED_USERS else ''}"


def removable_paths(archive: Archive, workload: str, scope: RemovalScope, uses: Uses) -> Iterator[Path]:
    """The directories to remove. Raises UnreadableError."""
    if scope == RemovalScope.ARCHIVES:
        yield archive.path
        return
    directory = archive.path / "checkpoints"
    # A link may lead to the checkpoints of another job.
    steps = [] if directory.is_symlink() else checkpoints.steps_in(directory)
    last = None
    if scope == RemovalScope.OLD_CHECKPOINTS or archive.submission_id in uses:
        complete = checkpoints.last_complete(directory, workload)
        # Without a complete checkpoint, the last one stays: perhaps it can be repaired.
        last = complete.step if complete else next(iter(steps), None)
    names = {step: f"checkpoints/global_step_{step}" for step in steps if step != last}
    yield from (archive.path / name for name in names.values() if f"{archive.submission_id}/{name}" not in uses)


def job_uses(archives: Iterable[Archive], registry: Registry) -> Uses:
    """Find the jobs and checkpoints that each job names: in its JobSpec, overrides and defaults of the inventory."""
    uses: Uses = {}
    for archive in archives:
        names, is_closed = set(), False
        with suppress(UnreadableError):
            status = archive.read_status()
            names, is_closed = {str(status.lineage.get("resumed_from"))}, bool(status.closed_at)
        try:
            plan, job = archive.plan(), registry.read(archive.submission_id)
            parts = [plan.overrides if plan else (), *([job.jobspec, job.defaults] if job else ())]
            text = SLASHES.sub("/", archive.read_text("config/job_spec.json") + json.dumps(parts))
            names |= {match[1] for match in NAMED_JOB.finditer(text)}
            for match in ARCHIVE_PATH.finditer(text):
                names |= {match["job"], match[0].removeprefix(f"/{JOBS_DIR}/")}
        except (UnreadableError, OSError):
            # A job whose archive was just reserved may use any job; a job that is closed uses none.
            names |= set() if is_closed else {ANY_JOB}
        for name in names - {archive.submission_id}:
            uses.setdefault(name, []).append(archive.submission_id)
    return uses
