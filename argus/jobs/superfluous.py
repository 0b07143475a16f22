# SPDX-License-Identifier: Apache-2.0
"""Which archives and checkpoints of jobs are not needed any more."""

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
from ..common.shared_root import JOBS
from ..io.reading import UnreadableError
from .listing import has_tags
from .registry import Registry

SUPERFLUOUS = "to be removed"
DAY_SECONDS = 86_400
# What a JobSpec names an earlier job by, and a path in its archive.
NAMED_BY = re.compile(rf'"(?:resume_from|depends_on)": *"({SUBMISSION_ID.pattern})"')
PATH = re.compile(rf"/{JOBS}/(?P<job>{SUBMISSION_ID.pattern})(?:/checkpoints/global_step_[0-9]+)?")
SLASHES = re.compile(r"/(?:\.?/)+")
LISTED = 3
# The jobs that name a job, by its id, or one of its checkpoints, by the path below the archives.
Uses = dict[str, list[str]]
# In place of an id: what jobs use is not known.
ANY = ""


class What(StrEnum):
    """What of a job is removed: all checkpoints but the last complete one, all of them, or the archive."""

    OLD_CHECKPOINTS = "old_checkpoints"
    CHECKPOINTS = "checkpoints"
    ARCHIVES = "archives"


class Rules(BaseModel):
    """keep: so many of the latest jobs stay. keep_days: jobs that ended later stay. Either is enough; 0 disables one.

    tags: only such jobs; all if empty.
    """

    what: What = What.CHECKPOINTS
    keep: int = Field(0, ge=0)
    keep_days: float = Field(0, ge=0, allow_inf_nan=False)
    tags: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Verdict:
    """What happens to a job. paths: what would be removed. size: its bytes, which are only counted then.

    index: its place among the latest jobs.
    """

    archive: Archive
    index: int
    state: str
    text: str
    paths: tuple[Path, ...] = ()
    size: int = 0


def verdicts(jobs: Path, rules: Rules, registry: Registry, now: float) -> list[Verdict]:
    """All jobs of a directory of archives, the latest first. Raises UnreadableError."""
    every = sorted(archives(jobs), key=Archive.created_at, reverse=True)
    uses = used(every, registry)
    return [verdict(archive, index, uses, rules, now) for index, archive in enumerate(every)]


def verdict(archive: Archive, index: int, uses: Uses, rules: Rules, now: float) -> Verdict:
    try:
        status = archive.read_status()
        reason = why_it_stays(archive, status, index, uses, rules, now)
        paths = () if reason else tuple(removable(archive, status.workload, rules.what, uses))
        size = sum(0 if path.is_symlink() else checkpoints.size(path) for path in paths)
    except (UnreadableError, OSError, ValueError, RecursionError) as error:
        return Verdict(archive, index, "", f"cannot be read: {error}")
    if not reason and not paths:
        users = uses.get(archive.submission_id, [])
        reason = (
            f"its last checkpoint is {used_by(users)}" if users and archive.checkpoints() else "no such checkpoints"
        )
    return Verdict(archive, index, str(status.state or ""), reason or SUPERFLUOUS, () if reason else paths, size)


def why_it_stays(archive: Archive, status: Status, index: int, uses: Uses, rules: Rules, now: float) -> str:
    """Whatever is removed of it, or "". Raises ValueError for a time that is none."""
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
    if ANY in uses:
        return f"may be {used_by(uses[ANY])}, whose files cannot be read"
    is_needed = archive.submission_id in uses and rules.what == What.ARCHIVES
    return used_by(uses[archive.submission_id]) if is_needed else ""


def used_by(users: Sequence[str]) -> str:
    return f"used by {', '.join(users[:LISTED])}{' and others' if len(users) > LISTED else ''}"


def removable(archive: Archive, workload: str, what: What, uses: Uses) -> Iterator[Path]:
    """The directories to remove. Raises UnreadableError."""
    if what == What.ARCHIVES:
        yield archive.path
        return
    directory = archive.path / "checkpoints"
    # A link to those of another job is none of its own.
    steps = [] if directory.is_symlink() else checkpoints.steps_in(directory)
    last = None
    if what == What.OLD_CHECKPOINTS or archive.submission_id in uses:
        complete = checkpoints.last_complete(directory, workload)
        # Without a complete one, the last is the one that may be mended.
        last = complete.step if complete else next(iter(steps), None)
    names = {step: f"checkpoints/global_step_{step}" for step in steps if step != last}
    yield from (archive.path / name for name in names.values() if f"{archive.submission_id}/{name}" not in uses)


def used(every: Iterable[Archive], registry: Registry) -> Uses:
    """What jobs name of others in their JobSpecs, overrides and the defaults of their inventories."""
    found: Uses = {}
    for archive in every:
        names, is_closed = set(), False
        with suppress(UnreadableError):
            status = archive.read_status()
            names, is_closed = {str(status.lineage.get("resumed_from"))}, bool(status.closed_at)
        try:
            plan, job = archive.plan(), registry.read(archive.submission_id)
            parts = [plan.overrides if plan else (), *([job.jobspec, job.defaults] if job else ())]
            text = SLASHES.sub("/", archive.read_text("config/job_spec.json") + json.dumps(parts))
            names |= {match[1] for match in NAMED_BY.finditer(text)}
            for match in PATH.finditer(text):
                names |= {match["job"], match[0].removeprefix(f"/{JOBS}/")}
        except (UnreadableError, OSError):
            # One that was just reserved may need anything, and one that has ended nothing.
            names |= set() if is_closed else {ANY}
        for name in names - {archive.submission_id}:
            found.setdefault(name, []).append(archive.submission_id)
    return found
