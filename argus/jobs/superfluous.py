# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which archives and checkpoints of jobs are not needed any more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..common.shared_root import JOBS
from ..common.text import size_text
from ..launcher import checkpoints
from ..launcher.archive import NAME, Archive, archives
from ..launcher.reading import UnreadableError
from ..launcher.status import Status
from .listing import has_tags

SUPERFLUOUS = "to be removed"
DAY_SECONDS = 86_400
# What a JobSpec names an earlier job by, beside its paths.
NAMED_BY = ("resume_from", "depends_on")
LISTED = 3


class What(StrEnum):
    """What of a job is removed: all checkpoints but the last complete one, all of them, or the archive."""

    OLD_CHECKPOINTS = "old_checkpoints"
    CHECKPOINTS = "checkpoints"
    ARCHIVES = "archives"


@dataclass(frozen=True)
class Rules:
    """keep: so many of the latest jobs stay. days: jobs that ended later stay. Either is enough; 0 disables a rule.

    states, tags: only such jobs; all if empty. at_least: only what frees so many bytes.
    """

    what: What = What.CHECKPOINTS
    keep: int = 0
    days: float = 0
    states: Sequence[str] = ()
    tags: Mapping[str, Any] = field(default_factory=dict)
    at_least: int = 0


@dataclass(frozen=True)
class Verdict:
    """What happens to a job. paths: what would be removed. size: its bytes, which are only counted then."""

    archive: Archive
    state: str
    text: str
    paths: tuple[Path, ...] = ()
    size: int = 0


def verdicts(jobs: Path, rules: Rules, now: float) -> list[Verdict]:
    """All jobs of a directory of archives, the latest first. Raises UnreadableError."""
    every = sorted(archives(jobs), key=Archive.created_at, reverse=True)
    users = named(every)
    return [
        verdict(archive, index, users.get(archive.submission_id, []), rules, now) for index, archive in enumerate(every)
    ]


def verdict(archive: Archive, index: int, users: Sequence[str], rules: Rules, now: float) -> Verdict:
    """index: its place among the latest. users: the ids of jobs that name it."""
    try:
        status = archive.read_status()
        reason = why_it_stays(archive, status, index, users, rules, now)
        paths = () if reason else tuple(removable(archive, status.workload, rules.what, bool(users)))
    except (UnreadableError, ValueError) as error:
        return Verdict(archive, "", f"cannot be read: {error}")
    size = sum(map(checkpoints.size, paths))
    if not reason and not paths:
        reason = (
            f"its last checkpoint is {used_by(users)}" if users and archive.checkpoints() else "no such checkpoints"
        )
    elif not reason and size < rules.at_least:
        reason = f"only {size_text(size)}"
    return Verdict(archive, str(status.state or ""), reason or SUPERFLUOUS, () if reason else paths, size)


def why_it_stays(archive: Archive, status: Status, index: int, users: Sequence[str], rules: Rules, now: float) -> str:
    """Whatever is removed of it, or "". Raises ValueError for a time that is none."""
    if not status.closed_at:
        return "has not ended"
    if not rules.keep and not rules.days:
        return "neither a number nor an age is set"
    if rules.states and status.state not in rules.states:
        return "has another state"
    if not has_tags(archive, rules.tags):
        return "has other tags"
    if index < rules.keep:
        return f"among the latest {rules.keep}"
    age = (now - datetime.fromisoformat(status.closed_at).timestamp()) / DAY_SECONDS
    if age < rules.days:
        return f"ended {age:.1f} days ago"
    return used_by(users) if users and rules.what == What.ARCHIVES else ""


def used_by(users: Sequence[str]) -> str:
    return f"used by {', '.join(users[:LISTED])}{' and others' if len(users) > LISTED else ''}"


def removable(archive: Archive, workload: str, what: What, is_used: bool) -> Iterator[Path]:
    """The directories to remove. Raises UnreadableError."""
    if what == What.ARCHIVES:
        yield archive.path
        return
    directory = archive.path / "checkpoints"
    # A link to those of another job is none of its own.
    steps = [] if directory.is_symlink() else checkpoints.steps_in(directory)
    last = None
    if what == What.OLD_CHECKPOINTS or is_used:
        complete = checkpoints.last_complete(directory, workload)
        # Without a complete one, the last is the one that may be mended.
        last = complete.step if complete else next(iter(steps), None)
    yield from (directory / f"global_step_{step}" for step in steps if step != last)


def named(every: Iterable[Archive]) -> dict[str, list[str]]:
    """By id, the jobs that build on it: that resume from it, wait for it, or have one of its files in their JobSpec."""
    found: dict[str, list[str]] = {}
    for archive in every:
        names: set[str] = set()
        # A job can write anything into its archive: it protects others, or itself.
        with suppress(UnreadableError, ValueError, RecursionError):
            spec = archive.read_jobspec()
            names |= {str(spec.get(key)) for key in NAMED_BY}
            names |= set(re.findall(rf"/{JOBS}/({NAME.pattern})", json.dumps(spec)))
        with suppress(UnreadableError):
            names.add(str(archive.read_status().lineage.get("resumed_from")))
        for name in names - {archive.submission_id}:
            found.setdefault(name, []).append(archive.submission_id)
    return found
