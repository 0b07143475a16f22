# SPDX-License-Identifier: GPL-3.0-or-later
"""Which snapshots of verl are not needed any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from .listing import Entry
from .snapshots import KIND

DAY_SECONDS = 86_400
SUPERFLUOUS = "to be removed"


def verdicts(
    staged: Iterable[Entry], keep: int, days: float, declared: Sequence[Mapping[str, object]]
) -> list[tuple[Entry, str]]:
    """All snapshots, the newest first, each with why it stays, or SUPERFLUOUS.

    keep: so many of the newest stay. days: younger ones stay. Either is enough; 0 disables a rule, and with both at 0
    all stay. declared: those of the inventory stay, in the form of staging_snapshots; they would be staged again. Also
    those stay that a job uses, and those without a date.
    """
    snapshots = [entry for entry in staged if entry.kind == KIND]
    snapshots.sort(key=lambda entry: (entry.staged_at or "", changed_at(Path(entry.path))), reverse=True)
    names = set(declared_names(snapshots, declared))
    return [(entry, verdict(entry, index, keep, days, names)) for index, entry in enumerate(snapshots)]


def changed_at(directory: Path) -> int:
    """In nanoseconds: several snapshots are staged within one second, and one may be based on another."""
    try:
        return directory.lstat().st_mtime_ns
    except FileNotFoundError:
        return 0


def verdict(entry: Entry, index: int, keep: int, days: float, declared: set[str]) -> str:
    """What happens to the snapshot at this place among the newest."""
    if entry.used_by:
        return f"used by {', '.join(entry.used_by)}"
    if entry.name in declared:
        return "declared in the inventory"
    if not keep and not days:
        return "neither a number nor an age is set"
    if not entry.staged_at:
        return "its manifest has no date"
    if index < keep:
        return f"among the newest {keep}"
    age = (datetime.now(UTC) - datetime.fromisoformat(entry.staged_at)).total_seconds() / DAY_SECONDS
    return f"{age:.1f} days old" if age < days else SUPERFLUOUS


def declared_names(newest_first: Sequence[Entry], declared: Iterable[Mapping[str, object]]) -> Iterable[str]:
    """The snapshots that an inventory declares: by code id, or the newest one of a source."""
    for item in declared:
        if item.get("state", "present") == "present":
            of_source = (entry.name for entry in newest_first if entry.details.get("source") == item.get("source"))
            yield str(item.get("code_id") or next(of_source, ""))
