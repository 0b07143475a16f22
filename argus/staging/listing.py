# SPDX-License-Identifier: Apache-2.0
"""Lists what is staged under a shared root and which jobs use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..archive import checkpoints
from ..common.findings import ERROR, WARNING, Finding
from ..common.shared_root import CODE_DIR, DATASETS_DIR, MODELS_DIR
from ..common.text import size_text
from .lock import LOCK, is_held, read_progress
from .manifest import Facts, notes, problems, read_manifest
from .options import StagingError, Verify, join_items
from .store import LEFTOVER, used_by
from .upload import INBOX

PARENTS = (MODELS_DIR, DATASETS_DIR, CODE_DIR)
# Kinds of entries without a manifest: not staged, or being staged or removed, perhaps by a process that was killed.
UNKNOWN, UNFINISHED = "unknown", "unfinished"
# Facts of a manifest that are returned if it has them.
DETAILS = ("source", "commit", "revision", "verl_version", "rows")


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

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        details = values.pop("details")
        return {**values, **details}


def list_staged(shared_root: Path, verify: str = Verify.NO) -> Iterator[Entry]:
    """Everything under the shared root, by kind and name; a missing manifest is reported as a problem."""
    used = used_by(shared_root)
    for parent in PARENTS:
        directory = shared_root / parent
        try:
            # Hidden names are locks and builds.
            paths = sorted(path for path in directory.iterdir() if path.name[0] != ".")
        except FileNotFoundError:
            continue
        except OSError as error:
            yield Entry(UNKNOWN, directory.name, str(directory), problems=[str(error)])
            continue
        for path in paths:
            staged_path = PurePosixPath(parent, path.name)
            jobs = {job for place, jobs in used.items() if place.is_relative_to(staged_path) for job in jobs}
            yield describe(path, verify, sorted(jobs))
        yield from unfinished_entries(directory)


def describe(path: Path, verify: str, jobs: Sequence[str]) -> Entry:
    file_problems: list[str] = []
    try:
        manifest = read_manifest(path)
        if manifest is None:
            raise StagingError(path, "was removed meanwhile.", "Nothing needs to be done.")
        if verify != Verify.NO:
            file_problems = notes(problems(path, manifest, full=verify == Verify.FULL))
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
        problems=file_problems,
        details=manifest.select(DETAILS),
    )


def unfinished_entries(directory: Path) -> Iterator[Entry]:
    """The items that are being staged or removed in a directory, and leftovers of killed processes."""
    left: dict[str, list[Path]] = {}
    for path in sorted(directory.glob(".*")):
        match = LEFTOVER.fullmatch(path.name) or LOCK.fullmatch(path.name) or INBOX.fullmatch(path.name)
        if match:
            left.setdefault(match["name"], []).append(path)
    for name, paths in left.items():
        target = directory / name
        is_busy, progress = is_held(target), read_progress(target)
        by = f" by {progress.host}, process {progress.pid}" if progress else ""
        problem = f"was left unfinished{by}: {join_items(path.name for path in paths)}"
        yield Entry(
            UNFINISHED,
            name,
            str(target),
            bytes=sum(map(checkpoints.directory_bytes, paths)),
            problems=[] if is_busy else [problem],
            details={"source": progress.line()} if is_busy and progress else {},
        )


def row(entry: Entry) -> list[str | None]:
    """Kind, name, size, time, source, and jobs that use it, as people read them."""
    return [
        entry.kind,
        entry.name,
        None if entry.bytes is None else size_text(entry.bytes),
        entry.staged_at,
        " ".join(str(entry.details[part]) for part in ("source", "commit") if entry.details.get(part)) or None,
        ", ".join(entry.used_by) or None,
    ]


def row_findings(entry: Entry) -> list[Finding]:
    """The problems of an entry. A directory without a manifest is a warning: a user may have put it there."""
    where, remedy, severity = entry.path, "stage.yml -e staging_repair=true restores it; move added files away", ERROR
    if entry.kind == UNKNOWN:
        where, severity = entry.name, WARNING
        remedy = "nothing, if you have put it there; without a manifest it cannot be verified"
    elif entry.kind == UNFINISHED:
        severity, remedy = WARNING, "stage it again, which continues it or removes the leftovers; or remove it"
    return [Finding(where, problem, remedy, severity) for problem in entry.problems]
