# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists what is staged under a shared root and which jobs use it, and selects superfluous snapshots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from ..common.shared_root import DATASETS, MODELS, SNAPSHOTS
from .dataset.upload import INBOX
from .errors import StagingError, listed
from .files import files_below
from .lock import LOCK, is_held, read_progress
from .manifest import Facts, notes, problems, read_manifest
from .options import Verify, check_parent
from .snapshots import KIND as SNAPSHOT
from .store import LEFTOVER
from .users import used_by

PARENTS = (MODELS, DATASETS, SNAPSHOTS)
# Kinds of entries without a manifest: not staged, or being staged or removed, perhaps by a process that was killed.
UNKNOWN, UNFINISHED = "unknown", "unfinished"
# Facts of a manifest that are returned if it has them.
DETAILS = ("source", "commit", "revision", "verl_version", "rows")
DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Entry:
    """One thing under the shared root. details: the facts of DETAILS that it has."""

    kind: str
    name: str
    path: str
    bytes: int | None = None
    files: int | None = None
    staged_at: str | None = None
    used_by: Sequence[str] = ()
    problems: Sequence[str] = ()
    details: Facts = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Entry:
        """From what as_dict returned; missing keys have their defaults."""
        own = {name: value[name] for name in cls.__dataclass_fields__ if name in value}
        return cls(**own, details={name: value[name] for name in DETAILS if name in value})

    def as_dict(self) -> dict[str, Any]:
        own = asdict(self)
        del own["details"]
        return {**own, "used_by": list(self.used_by), "problems": list(self.problems), **self.details}


def list_staged(shared_root: Path, verify: str = Verify.NO) -> Iterator[Entry]:
    """Everything under the shared root, by kind and name; a missing manifest is reported as a problem."""
    used = used_by(shared_root)
    for parent in PARENTS:
        directory = shared_root / parent
        try:
            check_parent(shared_root, directory)
            # Hidden names are locks and builds.
            paths = sorted(path for path in directory.iterdir() if path.name[0] != ".")
        except FileNotFoundError:
            continue
        except (StagingError, OSError) as error:
            yield Entry(UNKNOWN, directory.name, str(directory), problems=[str(error)])
            continue
        for path in paths:
            own = PurePosixPath(parent, path.name)
            jobs = {job for place, jobs in used.items() if place.is_relative_to(own) for job in jobs}
            yield describe(path, verify, sorted(jobs))
        yield from unfinished(directory)


def describe(path: Path, verify: str, jobs: Sequence[str]) -> Entry:
    found: list[str] = []
    try:
        manifest = read_manifest(path)
        if manifest is None:
            raise StagingError(path, "was removed meanwhile.", "Nothing needs to be done.")
        if verify != Verify.NO:
            found = notes(problems(path, manifest, full=verify == Verify.FULL))
    except (StagingError, OSError) as error:
        return Entry(UNKNOWN, path.name, str(path), used_by=jobs, problems=[str(error)])
    return Entry(
        kind=manifest.kind,
        name=path.name,
        path=str(path),
        bytes=manifest.bytes,
        files=len(manifest.files),
        staged_at=manifest.staged_at,
        used_by=jobs,
        problems=found,
        details=manifest.select(DETAILS),
    )


def unfinished(directory: Path) -> Iterator[Entry]:
    """What is being staged or removed in a directory, and what killed processes have left there."""
    left: dict[str, list[Path]] = {}
    for path in sorted(directory.glob(".*")):
        match = LEFTOVER.fullmatch(path.name) or LOCK.fullmatch(path.name) or INBOX.fullmatch(path.name)
        if match:
            left.setdefault(match["name"], []).append(path)
    for name, paths in left.items():
        target = directory / name
        is_busy, progress = is_held(target), read_progress(target)
        by = f" by {progress.host}, process {progress.pid}" if progress else ""
        problem = f"was left unfinished{by}: {listed(path.name for path in paths)}"
        yield Entry(
            UNFINISHED,
            name,
            str(target),
            bytes=sum(map(size_below, paths)),
            problems=[] if is_busy else [problem],
            details={"source": progress.line()} if is_busy and progress else {},
        )


def size_below(path: Path) -> int:
    """The size of a directory that another process may be filling or removing."""
    size = 0
    with contextlib.suppress(OSError):
        for name in files_below(path) if path.is_dir() and not path.is_symlink() else ("",):
            size += (path / name).lstat().st_size
    return size


@dataclass(frozen=True)
class DeclaredSnapshot:
    """An entry of staging_snapshots."""

    source: str | None = None
    code_id: str | None = None
    state: str = "present"

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DeclaredSnapshot:
        return cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})


@dataclass(frozen=True)
class Superfluous:
    """snapshots: those that can be removed. reasons: why each of the others stays, by name."""

    snapshots: Sequence[Entry]
    reasons: dict[str, str]


def superfluous(
    staged: Iterable[Entry], now: datetime, keep: int, days: float, declared: Iterable[DeclaredSnapshot] = ()
) -> Superfluous:
    """Selects the snapshots that can be removed.

    keep: so many of the newest stay. days: younger ones stay. A snapshot stays if either applies; 0 disables the rule,
    and with both at 0 all stay. A snapshot that a job uses or that is declared always stays, and so does one without a
    date.
    """
    snapshots = [each for each in staged if each.kind == SNAPSHOT]
    snapshots.sort(key=lambda each: each.staged_at or "", reverse=True)
    wanted = declared_names(snapshots, declared)
    remove, reasons = [], {}
    for index, each in enumerate(snapshots):
        reason = _reason_to_keep(each, index, now, keep, days, wanted)
        if reason:
            reasons[each.name] = reason
        else:
            remove.append(each)
    return Superfluous(remove, reasons)


def _reason_to_keep(entry: Entry, index: int, now: datetime, keep: int, days: float, wanted: set[str]) -> str:
    """Why the snapshot at this place among the newest stays; empty if it can be removed."""
    if entry.used_by:
        return f"used by {', '.join(entry.used_by)}"
    if entry.name in wanted:
        return "declared in the inventory"
    if not keep and not days:
        return "neither a number nor an age is set"
    if not entry.staged_at:
        return "its manifest has no date"
    if index < keep:
        return f"among the newest {keep}"
    age = (now - datetime.fromisoformat(entry.staged_at)).total_seconds() / DAY_SECONDS
    return f"{age:.1f} days old" if age < days else ""


def declared_names(newest_first: Sequence[Entry], declared: Iterable[DeclaredSnapshot]) -> set[str]:
    """The snapshots that an inventory declares: by code id, or the newest one of a source."""
    names = set()
    for each in declared:
        if each.state == "present":
            of_source = (found.name for found in newest_first if found.details.get("source") == each.source)
            names.add(each.code_id or next(of_source, ""))
    return names
