# SPDX-License-Identifier: Apache-2.0
"""Which snapshots of verl are not needed any more, for stage_gc.yml and `argus gc`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from .listing import Entry
from .snapshots import KIND

DAY_SECONDS = 86_400
# The verdict on a snapshot that is not needed; all other verdicts say why it stays.
SUPERFLUOUS = "to be removed"


def snapshot_verdicts(
    staged: Iterable[Entry], keep: int, days: float, declared: Sequence[Mapping[str, object]]
) -> list[tuple[Entry, str]]:
    """All snapshots, the newest first, each with why it stays, or SUPERFLUOUS.

    A snapshot stays if a job uses it, if it has no date, or by one of the parameters:
    keep: it is among so many of the newest. days: it is younger. 0 disables such a rule; with both at 0, all stay.
    declared: it is one of these items of staging_snapshots in the inventory, and would be staged again.
    """
    snapshots = [entry for entry in staged if entry.kind == KIND]
    snapshots.sort(key=lambda entry: (entry.staged_at or "", mtime_ns(Path(entry.path))), reverse=True)
    names = set(declared_names(snapshots, declared))
    return [(entry, snapshot_verdict(entry, index, keep, days, names)) for index, entry in enumerate(snapshots)]


def mtime_ns(directory: Path) -> int:
    """The modification time, which orders snapshots that were staged within one second; 0 if the directory is gone."""
    try:
        return directory.lstat().st_mtime_ns
    except FileNotFoundError:
        return 0


def snapshot_verdict(entry: Entry, index: int, keep: int, days: float, declared: set[str]) -> str:
    """Why a snapshot stays, or SUPERFLUOUS. index: its place among all snapshots, 0 for the newest."""
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
    """The code id of each snapshot in the inventory; for one that has only a source, the newest one of this source."""
    for item in declared:
        if item.get("state", "present") == "present":
            of_source = (entry.name for entry in newest_first if entry.details.get("source") == item.get("source"))
            yield str(item.get("code_id") or next(of_source, ""))
