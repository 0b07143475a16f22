# SPDX-License-Identifier: Apache-2.0
"""Lists the items under a shared root, with the jobs that use them and the problems of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..archive import checkpoints
from ..common.findings import ERROR, WARNING, Finding
from ..common.shared_root import CODE_DIR, DATASETS_DIR, MODELS_DIR
from ..common.text import size_text
from .lock import LOCK_NAME, is_held, read_progress
from .manifest import Facts, file_problems, problem_lines, read_manifest
from .options import StagingError, Verify, join_items
from .store import LEFTOVER_NAME
from .upload import INBOX_NAME
from .usage import jobs_by_path

ITEM_DIRECTORIES = (MODELS_DIR, DATASETS_DIR, CODE_DIR)
# Kinds of entries without a manifest: not staged, or being staged or removed, perhaps by a process that was killed.
UNKNOWN, UNFINISHED = "unknown", "unfinished"
# The facts of a manifest that an entry has.
LISTED_FACTS = ("source", "commit", "revision", "verl_version", "rows")


@dataclass(frozen=True)
class Entry:
    """One item under the shared root, or something that is none."""

    kind: str  # as in the manifest, or UNKNOWN or UNFINISHED
    name: str
    path: str
    # None if there is no manifest. `files` is the number of files.
    bytes: int | None = None
    files: int | None = None
    staged_at: str | None = None
    used_by: Sequence[str] = ()  # the submission ids of jobs that have not ended
    problems: Sequence[str] = ()
    details: Facts = field(default_factory=dict)  # those of LISTED_FACTS that the manifest has

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        details = values.pop("details")
        return {**values, **details}


def list_staged(shared_root: Path, verify: str = Verify.NO) -> Iterator[Entry]:
    """All entries under the shared root, by directory and name. What cannot be read is an entry with a problem."""
    jobs_of_paths = jobs_by_path(shared_root)
    for parent in ITEM_DIRECTORIES:
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
            jobs = {job for used, jobs in jobs_of_paths.items() if used.is_relative_to(staged_path) for job in jobs}
            yield entry_of(path, verify, sorted(jobs))
        yield from unfinished_entries(directory)


def entry_of(path: Path, verify: str, jobs: Sequence[str]) -> Entry:
    """The entry of what is at a path. verify: a value of Verify."""
    problems: list[str] = []
    try:
        manifest = read_manifest(path)
        if manifest is None:
            raise StagingError(path, "was removed meanwhile.", "Nothing needs to be done.")
        if verify != Verify.NO:
            problems = problem_lines(file_problems(path, manifest, full=verify == Verify.FULL))
    except (StagingError, OSError) as error:
        return Entry(UNKNOWN, path.name, str(path), used_by=jobs, problems=[str(error)])
    return Entry(
        kind=manifest.kind,
        name=path.name,
        path=str(path),
        bytes=manifest.total_bytes,
        files=len(manifest.files),
        staged_at=manifest.staged_at,
        used_by=jobs,
        problems=problems,
        details=manifest.select(LISTED_FACTS),
    )


def unfinished_entries(directory: Path) -> Iterator[Entry]:
    """An entry for each item that is being staged or removed in a directory, or was when its process was killed."""
    hidden: dict[str, list[Path]] = {}
    for path in sorted(directory.glob(".*")):
        match = LEFTOVER_NAME.fullmatch(path.name) or LOCK_NAME.fullmatch(path.name) or INBOX_NAME.fullmatch(path.name)
        if match:
            hidden.setdefault(match["name"], []).append(path)
    for name, paths in hidden.items():
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


def table_row(entry: Entry) -> list[str | None]:
    """Kind, name, size, time, source and jobs of an entry, as people read them."""
    return [
        entry.kind,
        entry.name,
        None if entry.bytes is None else size_text(entry.bytes),
        entry.staged_at,
        " ".join(str(entry.details[part]) for part in ("source", "commit") if entry.details.get(part)) or None,
        ", ".join(entry.used_by) or None,
    ]


def entry_findings(entry: Entry) -> list[Finding]:
    """The problems of an entry. A directory without a manifest is a warning: a user may have put it there."""
    where, remedy, severity = entry.path, "stage.yml -e staging_repair=true restores it; move added files away", ERROR
    if entry.kind == UNKNOWN:
        where, severity = entry.name, WARNING
        remedy = "nothing, if you have put it there; without a manifest it cannot be verified"
    elif entry.kind == UNFINISHED:
        severity, remedy = WARNING, "stage it again, which continues it or removes the leftovers; or remove it"
    return [Finding(where, problem, remedy, severity) for problem in entry.problems]
