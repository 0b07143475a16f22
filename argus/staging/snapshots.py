# SPDX-License-Identifier: Apache-2.0
"""Code under the shared root: immutable snapshots of verl, their garbage collection, and the users' own files."""

from __future__ import annotations

import compileall
import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel, Field

from ..common.shared_root import CODE_DIR, USER_CODE_DIR
from ..common.text import printable
from . import source_tree
from .files import file_sha256, write_file
from .items import Snapshot, UserCode
from .listing import Entry
from .lock import Progress
from .manifest import MANIFEST, Manifest, StageResult, Status, file_problems, read_manifest
from .options import (
    NAME_WITH_CAPITALS,
    StageOptions,
    StagingError,
    as_staging_errors,
    changed_source_error,
    check_name,
    check_shared_root,
    join_items,
)
from .source_tree import (
    CONTENT_PREFIX,
    PATCH,
    CodeSource,
    Content,
    Opener,
    content_identity,
    is_plain_path,
    openers_of,
    read_verl_version,
    tree_files,
    unknown_source_error,
)
from .store import BuildRequest, BuildResult, remove, stage
from .upload import FilesNeededError, UploadFile

# Snapshots: immutable copies of a verl source tree under the shared root, optionally with overlays of a user.

KIND = "snapshot"
# A module with the code id, by which a job tells which snapshot it has imported.
MARKER_FILE = "mvp_marker.py"
# The files of staging itself in a snapshot, beside the packages.
RESERVED_FILES = (MARKER_FILE, MANIFEST, PATCH)
# A directory whose files are copied over a snapshot, and its relative path there.
Overlay = tuple[CodeSource, str]
# The facts of a source, which also hold for a snapshot that adds overlays to it.
SOURCE_FACTS = ("commit", "uncommitted", "untracked", "requirements")


def snapshot_source(directory: Path, name: str) -> CodeSource:
    """Another snapshot as a source, to which overlays are added. directory: of all snapshots. name: the code id."""
    path = directory / name
    # A snapshot cannot have a name that is not allowed.
    manifest = read_manifest(path) if NAME_WITH_CAPITALS.fullmatch(name) else None
    if manifest is None:
        problem = f"is neither a release, a repository, a directory nor a snapshot in {directory}."
        raise unknown_source_error(name, problem)
    # The identity of the source; a job may have removed it from the manifest.
    content = manifest.facts.get("content_sha256")
    if manifest.kind != KIND or not isinstance(content, str):
        raise StagingError(path, "has no manifest of a snapshot.", "Give the code_id of a snapshot.")
    read = partial(read_snapshot, path.resolve(), manifest)
    return CodeSource(name, f"{CONTENT_PREFIX}{content}", read, name, manifest.total_bytes)


def read_snapshot(path: Path, manifest: Manifest) -> Content:
    """The files of a snapshot. Raises StagingError if they no longer fit the manifest."""
    # All content is read: a job may have changed files, and the manifest.
    if problems := file_problems(path, manifest, full=True):
        remedy = "Restore it as it was staged first."
        raise StagingError(path, f"no longer fits its manifest: {join_items(problems)}.", remedy)
    names = [name for name in manifest.files if name not in (MARKER_FILE, MANIFEST)]
    return Content(openers_of(path, names), manifest.select(SOURCE_FACTS))


class SourceSpec(BaseModel):
    """The source or an overlay of a snapshot, as the controller describes it in the request."""

    place: Literal["controller", "shared_root", "snapshot"]
    label: str  # the source in the manifest; of a snapshot, its code id
    path: str = ""  # relative to the shared root, for a directory there
    # The others are only for files of the controller: see CodeSource, and the facts for the manifest.
    identity: str = ""
    code_id: str = ""
    size: int = 0
    facts: dict[str, Any] = Field(default_factory=dict)

    def content(self, received: Path | None) -> Content:
        """The files. Raises FilesNeededError without `received`, the directory in which they have arrived."""
        if received is None:
            raise FilesNeededError(self.label)
        path = received.resolve()
        return Content(openers_of(path, tree_files(path)), self.facts)


def overlay_destination(overlay: CodeSource, to: str) -> str:
    """The relative path in a snapshot to which an overlay is copied. Raises StagingError if that is not allowed."""
    path = "/".join(PurePosixPath(to).parts)
    if not is_plain_path(path) or path.partition("/")[0] in RESERVED_FILES:
        remedy = "Give a relative path below the snapshot, such as recipe/mine or my_package."
        raise StagingError(f'overlay "{overlay.label}"', f'cannot be put at "{printable(to)}".', remedy)
    return path


@dataclass(frozen=True)
class SnapshotTree:
    """The directory of a snapshot while it is being filled."""

    directory: Path
    hashes: dict[str, str] = field(default_factory=dict)  # the SHA-256 of the files so far, by relative path

    def add(self, source: CodeSource, to: str = "") -> Mapping[str, object]:
        """Writes the files of a source, below the relative path `to`, and returns the facts of the source."""
        content = source.content()
        hashes = {name: self.write(f"{to}/{name}" if to else name, opener) for name, opener in content.files.items()}
        # A release or a repository is identified by its name; others by the content, without the patch.
        identified = {name: sha256 for name, sha256 in hashes.items() if to or name != PATCH}
        if source.identity.startswith(CONTENT_PREFIX) and content_identity(identified) != source.identity:
            raise changed_source_error(source.label)
        return content.facts

    def write(self, name: str, opener: Opener) -> str:
        # An overlay may replace the file.
        (self.directory / name).unlink(missing_ok=True)
        with opener() as file:
            self.hashes[name] = write_file(self.directory / name, file)
        return self.hashes[name]

    def content_sha256(self) -> str:
        hashes = {name: sha256 for name, sha256 in self.hashes.items() if name not in RESERVED_FILES}
        return content_identity(hashes).removeprefix(CONTENT_PREFIX)


def build_request(
    shared_root: Path, source: CodeSource, code_id: str = "", overlays: Sequence[Overlay] = ()
) -> BuildRequest:
    """A snapshot under the shared root. code_id: empty for the one of the source, with a hash if there are overlays."""
    contents = (f"{to}: {overlay.identity.removeprefix(CONTENT_PREFIX)}" for overlay, to in overlays)
    identity = " + ".join((source.identity, *contents))
    default = source.code_id
    if overlays:
        default += f"-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    code_id = check_name("code_id", code_id or default, NAME_WITH_CAPITALS)
    target = snapshots_directory(shared_root) / code_id

    def build(directory: Path, _progress: Progress) -> BuildResult:
        tree = SnapshotTree(directory)
        facts = tree.add(source)
        for overlay, to in overlays:
            tree.add(overlay, to)
        content = tree.content_sha256()
        tree.write(MARKER_FILE, partial(io.BytesIO, f'MARKER = "{code_id}"\n'.encode()))
        # Jobs write no bytecode: without this, each of their processes would compile the same files. Files for other
        # versions of Python do not compile, which is no error.
        compileall.compile_dir(directory, ddir=str(target), quiet=2)
        facts = {
            "code_id": code_id,
            "source": source.label,
            "identity": identity,
            "overlays": [{"path": overlay.label, "to": to} for overlay, to in overlays],
            "content_sha256": content,
            "verl_version": read_verl_version(directory.resolve()),
            **facts,
        }
        return BuildResult(facts, tree.hashes)

    def mismatch(manifest: Manifest) -> str:
        if manifest.facts.get("identity") == identity:
            return ""
        version = manifest.facts.get("verl_version")
        return f"contains {manifest.source} (verl {version}), which differs from the present content of {source.label}."

    size = sum(part.size for part in (source, *(overlay for overlay, _to in overlays)))
    return BuildRequest(KIND, code_id, target, build, mismatch, read_only=True, size=lambda: size)


def snapshots_directory(shared_root: Path) -> Path:
    return check_shared_root(shared_root) / CODE_DIR


def code_source_of(shared_root: Path, parts: Sequence[SourceSpec], number: int, received: Path | None) -> CodeSource:
    """The part of a snapshot with this number: 0 is the source, and the others are overlays.

    received: the directory in which files of the controller have arrived, those of each part in one by its number.
    """
    part = parts[number]
    if part.place == "controller":
        content = partial(part.content, received and received / str(number))
        return CodeSource(part.label, part.identity, content, part.code_id, part.size)
    if part.place == "shared_root":
        # A job gains nothing by a link that leads elsewhere: this process has no more rights than the job.
        path = (shared_root / part.path).resolve()
        return source_tree.overlay_source(path, part.label) if number else source_tree.verl_source(path, part.label)
    if len(parts) == 1:
        raise StagingError(f'source "{part.label}"', "is a snapshot already.", "Add overlays, or omit it.")
    return snapshot_source(snapshots_directory(shared_root), part.label)


def stage_snapshot(
    shared_root: Path, item: Snapshot, parts: Sequence[SourceSpec], received: Path | None, options: StageOptions
) -> StageResult:
    """Stages a snapshot. parts: its source and overlays. Raises FilesNeededError if files have not arrived."""
    if not parts:
        problem = "is not set."
        raise StagingError("source", problem, "Set it to a release, a repository, a directory or a snapshot.")
    source, *others = (code_source_of(shared_root, parts, number, received) for number in range(len(parts)))
    overlays = [
        (tree, overlay_destination(tree, option.to)) for tree, option in zip(others, item.overlays, strict=True)
    ]
    return stage(build_request(shared_root, source, item.code_id, overlays), options)


def remove_snapshot(shared_root: Path, code_id: str, *, check: bool = False) -> StageResult:
    """Removes a snapshot. Raises StagingError if jobs use it."""
    target = snapshots_directory(shared_root) / check_name("code_id", code_id, NAME_WITH_CAPITALS)
    return remove(shared_root, KIND, code_id, target, check=check)


# Finds snapshots that are not needed any more, for stage_gc.yml and `argus gc`.

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


# The users' own Python files, copied below the shared root. They have no manifest, and change when the users like.

FILE_MODE = 0o644
# The maximum size of a diff that Ansible shows.
MAX_DIFF_BYTES = 104448


def stage_user_code(
    shared_root: Path, item: UserCode, received: Path | None, *, check: bool = False, diff: bool = False
) -> dict[str, Any]:
    """Replaces the files that differ, each by a rename. Returns the result as JSON.

    received: the directory in which all files have arrived; without it, FilesNeededError is raised if a file differs.
    diff: whether the result has the previous contents, in `before` by path.
    """
    code = check_shared_root(shared_root) / USER_CODE_DIR
    for file in item.files:
        if not is_plain_path(file.path):
            raise StagingError(repr(file.path), "has characters that cannot be shown.", "Rename the file.")
    with as_staging_errors(code / item.name, "copied"):
        changed = [file for file in item.files if not is_up_to_date(code / file.path, file)]
        before = {file.path: shown_text(code / file.path) for file in changed} if diff else {}
        for file in [] if check else changed:
            if received is None:
                raise FilesNeededError(file.path)
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (received / file.path).chmod(FILE_MODE)
            (received / file.path).replace(target)
    status = Status.STAGED if changed else Status.EXISTS
    path = str(code / item.name)
    return {"changed": bool(changed), "name": item.name, "path": path, "status": status.value, "before": before}


def is_up_to_date(path: Path, file: UploadFile) -> bool:
    try:
        return path.lstat().st_mode & 0o777 == FILE_MODE and file_sha256(path) == file.sha256
    except OSError:
        return False


def shown_text(path: Path) -> str:
    """The beginning of a file for a diff; empty if the file does not exist or is not text."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_DIFF_BYTES)
    except (OSError, UnicodeError):
        return ""
