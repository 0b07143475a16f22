# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is staged under a shared root, who uses it, and what of it nobody needs any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import StagingError
from .files import files_below
from .lock import LOCK, is_held, progress_line, read_progress
from .manifest import manifest_of, problems
from .store import LEFTOVER, notes
from .users import used_by

PARENTS = ("common/models", "datasets", "common/code/verl")
# What was not staged; what is being staged or removed, or was when somebody was killed.
UNKNOWN, UNFINISHED = "unknown", "unfinished"
NO, QUICK, FULL = "no", "quick", "full"
# Of a manifest, what is the same for all kinds, and what some have.
DETAILS = ("source", "commit", "revision", "verl_version", "rows")


def everything(shared_root: Path, verify: str = NO) -> Iterator[dict[str, Any]]:
    """All that is staged, by kind and name; what has no manifest is named as a problem.

    verify: how the files are compared with their manifests.
    """
    used = used_by(shared_root)
    for parent in PARENTS:
        directory = shared_root / parent
        # A hidden name is a lock, or a build.
        names = sorted(path for path in directory.iterdir() if path.name[0] != ".") if directory.is_dir() else []
        for path in names:
            own = PurePosixPath(parent, path.name)
            jobs = {job for place, jobs in used.items() if place.is_relative_to(own) for job in jobs}
            yield describe(path, verify, sorted(jobs))
        yield from unfinished(directory)


def describe(path: Path, verify: str, jobs: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": path.name, "path": str(path), "used_by": list(jobs), "problems": []}
    try:
        manifest = manifest_of(path) or {}
        if verify != NO:
            found["problems"] = notes(problems(path, manifest, full=verify == FULL))
    except (StagingError, OSError) as error:
        return {**found, "kind": UNKNOWN, "problems": [str(error)], "bytes": None, "files": None, "staged_at": None}
    files = manifest.get("files", {})
    return {
        **found,
        "kind": str(manifest.get("kind")),
        "bytes": sum(entry["size"] for entry in files.values()),
        "files": len(files),
        "staged_at": manifest.get("staged_at"),
        **{name: manifest[name] for name in DETAILS if name in manifest},
    }


def unfinished(directory: Path) -> Iterator[dict[str, Any]]:
    """What is being staged or removed in a directory, and what killed ones have left there."""
    left: dict[str, list[Path]] = {}
    for path in sorted(directory.glob(".*")):
        match = LEFTOVER.fullmatch(path.name) or LOCK.fullmatch(path.name)
        if match:
            left.setdefault(match["name"], []).append(path)
    for name, paths in left.items():
        target = directory / name
        is_busy, said = is_held(target), read_progress(target)
        whose = f" by {said['host']}, process {said['pid']}" if said else ""
        yield {
            "name": name,
            "kind": UNFINISHED,
            "path": str(target),
            "used_by": [],
            "problems": [] if is_busy else [f"was left unfinished{whose}: {', '.join(path.name for path in paths)}"],
            "bytes": sum(size_below(path) for path in paths),
            "files": None,
            "staged_at": None,
            **({"source": progress_line(said)} if is_busy and said else {}),
        }


def size_below(path: Path) -> int:
    """Of a directory that somebody may be filling or removing."""
    size = 0
    with contextlib.suppress(OSError):
        for name in files_below(path) if path.is_dir() and not path.is_symlink() else ("",):
            size += (path / name).lstat().st_size
    return size


def superfluous(
    staged: Iterable[Mapping[str, Any]],
    now: datetime,
    keep: int,
    days: float,
    declared: Iterable[Mapping[str, Any]] = (),
) -> tuple[list[Mapping[str, Any]], dict[str, str]]:
    """The snapshots that can go, and why each of the others stays.

    keep: so many of the newest stay. days: what is younger stays. With both, what either keeps; 0 says nothing, and
    with both at 0 all stay. A snapshot that a job uses or that is declared stays anyway, and one without a date is not
    ours to judge.
    """
    snapshots = [each for each in staged if each["kind"] == "snapshot"]
    snapshots.sort(key=lambda each: str(each["staged_at"] or ""), reverse=True)
    wanted = declared_names(snapshots, declared)
    go, stay = [], {}
    for place, each in enumerate(snapshots):
        age = (now - datetime.fromisoformat(each["staged_at"])).total_seconds() / 86_400 if each["staged_at"] else None
        if each["used_by"]:
            stay[each["name"]] = f"used by {', '.join(each['used_by'])}"
        elif each["name"] in wanted:
            stay[each["name"]] = "declared in the inventory"
        elif not keep and not days:
            stay[each["name"]] = "nothing was said of how many stay"
        elif age is None:
            stay[each["name"]] = "its manifest has no date"
        elif place < keep:
            stay[each["name"]] = f"among the newest {keep}"
        elif age < days:
            stay[each["name"]] = f"{age:.1f} days old"
        else:
            go.append(each)
    return go, stay


def declared_names(newest_first: Sequence[Mapping[str, Any]], declared: Iterable[Mapping[str, Any]]) -> set[str]:
    """The snapshots that an inventory declares: by their code id, or the newest of that source."""
    names = set()
    for each in declared:
        if each.get("state", "present") == "present":
            of_source = (found["name"] for found in newest_first if found.get("source") == each.get("source"))
            names.add(str(each.get("code_id") or next(of_source, "")))
    return names
