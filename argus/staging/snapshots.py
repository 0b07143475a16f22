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
from .manifest import MANIFEST, Manifest, Staged, Status, problems, read_manifest
from .options import (
    NAME_WITH_CAPITALS,
    StageOptions,
    StagingError,
    as_staging_errors,
    changed_meanwhile,
    check_name,
    check_shared_root,
    join_items,
)
from .source_tree import (
    CONTENT,
    PATCH,
    CodeSource,
    Content,
    Opener,
    content_identity,
    is_plain_path,
    openers,
    read_verl_version,
    tree_files,
    unknown_source,
)
from .store import BuildRequest, Built, remove, stage
from .upload import FilesNeededError, UploadFile

# Snapshots: immutable copies of a verl source tree under the shared root, optionally with overlays of a user.

KIND = "snapshot"
MARKER = "mvp_marker.py"
# Our own files in a snapshot, beside its packages.
RESERVED_FILES = (MARKER, MANIFEST, PATCH)
# A directory that is put over a snapshot, and its relative path there.
Overlay = tuple[CodeSource, str]
# The facts of a source, which also hold for a snapshot that adds overlays to it.
SOURCE_FACTS = ("commit", "uncommitted", "untracked", "requirements")


def snapshot_source(directory: Path, name: str) -> CodeSource:
    """Another snapshot, to which overlays are added."""
    path = directory / name
    # A snapshot cannot have a name that is not allowed.
    manifest = read_manifest(path) if NAME_WITH_CAPITALS.fullmatch(name) else None
    if manifest is None:
        problem = f"is neither a release, a repository, a directory nor a snapshot in {directory}."
        raise unknown_source(name, problem)
    # The identity of the source, which a job may have removed.
    content = manifest.facts.get("content_sha256")
    if manifest.kind != KIND or not isinstance(content, str):
        raise StagingError(path, "has no manifest of a snapshot.", "Give the code_id of a snapshot.")
    return CodeSource(
        name, f"{CONTENT}{content}", partial(read_snapshot, path.resolve(), manifest), name, manifest.bytes
    )


def read_snapshot(path: Path, manifest: Manifest) -> Content:
    # By their content: a job may have changed files, and the manifest.
    differences = problems(path, manifest, full=True)
    if differences:
        remedy = "Restore it as it was staged first."
        raise StagingError(path, f"no longer fits its manifest: {join_items(differences)}.", remedy)
    names = [name for name in manifest.files if name not in (MARKER, MANIFEST)]
    return Content(openers(path, names), manifest.select(SOURCE_FACTS))


class SourceSpec(BaseModel):
    """The source or an overlay, as the controller describes it. path: relative to the shared root."""

    place: Literal["controller", "shared_root", "snapshot"]
    label: str
    path: str = ""
    identity: str = ""
    code_id: str = ""
    size: int = 0
    facts: dict[str, Any] = Field(default_factory=dict)

    def content(self, received: Path | None) -> Content:
        """received: the directory with its files, if they have arrived."""
        if received is None:
            raise FilesNeededError(self.label)
        path = received.resolve()
        return Content(openers(path, tree_files(path)), self.facts)


def destination(overlay: CodeSource, to: str) -> str:
    """The relative path in a snapshot at which a directory is put over it."""
    path = "/".join(PurePosixPath(to).parts)
    if not is_plain_path(path) or path.partition("/")[0] in RESERVED_FILES:
        remedy = "Give a relative path below the snapshot, such as recipe/mine or my_package."
        raise StagingError(f'overlay "{overlay.label}"', f'cannot be put at "{printable(to)}".', remedy)
    return path


@dataclass(frozen=True)
class SnapshotTree:
    """A directory that is being filled, with the hashes of its files."""

    directory: Path
    hashes: dict[str, str] = field(default_factory=dict)

    def add(self, source: CodeSource, to: str = "") -> Mapping[str, object]:
        """Writes the files of a source, and returns its facts."""
        content = source.content()
        hashes = {name: self.write(f"{to}/{name}" if to else name, opener) for name, opener in content.files.items()}
        # The name of a release or a repository identifies it.
        described = {name: sha256 for name, sha256 in hashes.items() if to or name != PATCH}
        if source.identity.startswith(CONTENT) and content_identity(described) != source.identity:
            raise changed_meanwhile(source.label)
        return content.facts

    def write(self, name: str, opener: Opener) -> str:
        # An overlay replaces a file that exists.
        (self.directory / name).unlink(missing_ok=True)
        with opener() as file:
            self.hashes[name] = write_file(self.directory / name, file)
        return self.hashes[name]

    def content_sha256(self) -> str:
        hashes = {name: sha256 for name, sha256 in self.hashes.items() if name not in RESERVED_FILES}
        return content_identity(hashes).removeprefix(CONTENT)


def build_request(
    shared_root: Path, source: CodeSource, code_id: str = "", overlays: Sequence[Overlay] = ()
) -> BuildRequest:
    contents = (f"{to}: {overlay.identity.removeprefix(CONTENT)}" for overlay, to in overlays)
    identity = " + ".join((source.identity, *contents))
    default = source.code_id
    if overlays:
        default += f"-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    code_id = check_name("code_id", code_id or default, NAME_WITH_CAPITALS)
    target = snapshots(shared_root) / code_id

    def build(directory: Path, _progress: Progress) -> Built:
        tree = SnapshotTree(directory)
        facts = tree.add(source)
        for overlay, to in overlays:
            tree.add(overlay, to)
        content = tree.content_sha256()
        tree.write(MARKER, partial(io.BytesIO, f'MARKER = "{code_id}"\n'.encode()))
        # Jobs write none, and each of their processes would compile the same files again. Some files are of other
        # versions of Python.
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
        return Built(facts, tree.hashes)

    def difference(manifest: Manifest) -> str:
        if manifest.facts.get("identity") == identity:
            return ""
        version = manifest.facts.get("verl_version")
        return f"contains {manifest.source} (verl {version}), which differs from the present content of {source.label}."

    size = sum(part.size for part in (source, *(overlay for overlay, _to in overlays)))
    return BuildRequest(KIND, code_id, target, build, difference, read_only=True, size=lambda: size)


def snapshots(shared_root: Path) -> Path:
    return check_shared_root(shared_root) / CODE_DIR


def source_of(shared_root: Path, parts: Sequence[SourceSpec], number: int, received: Path | None) -> CodeSource:
    """The source, or an overlay."""
    part = parts[number]
    if part.place == "controller":
        content = partial(part.content, received and received / str(number))
        return CodeSource(part.label, part.identity, content, part.code_id, part.size)
    if part.place == "shared_root":
        # A link that leads elsewhere gains a job nothing: this process has no more rights.
        path = (shared_root / part.path).resolve()
        return source_tree.overlay(path, part.label) if number else source_tree.directory(path, part.label)
    if len(parts) == 1:
        raise StagingError(f'source "{part.label}"', "is a snapshot already.", "Add overlays, or omit it.")
    return snapshot_source(snapshots(shared_root), part.label)


def stage_snapshot(
    shared_root: Path, options: Snapshot, parts: Sequence[SourceSpec], received: Path | None, how: StageOptions
) -> Staged:
    """Stages a snapshot. Raises FilesNeededError if it needs files of the controller that have not arrived."""
    if not parts:
        problem = "is not set."
        raise StagingError("source", problem, "Set it to a release, a repository, a directory or a snapshot.")
    source, *others = (source_of(shared_root, parts, number, received) for number in range(len(parts)))
    overlays = [(tree, destination(tree, option.to)) for tree, option in zip(others, options.overlays, strict=True)]
    return stage(build_request(shared_root, source, options.code_id, overlays), how)


def remove_snapshot(shared_root: Path, code_id: str, *, check: bool = False) -> Staged:
    """Removes a snapshot unless jobs use it."""
    target = snapshots(shared_root) / check_name("code_id", code_id, NAME_WITH_CAPITALS)
    return remove(shared_root, KIND, code_id, target, check=check)


# Finds snapshots of verl that are not needed any more.

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
    """The decision about the snapshot at this place among the newest."""
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


# The users' own Python files, copied below the shared root. They have no manifest, and change when the users like.

MODE = 0o644
# The maximum size of a diff that Ansible shows.
MAX_DIFF_BYTES = 104448


def stage_user_code(
    shared_root: Path, item: UserCode, received: Path | None, *, check: bool = False, diff: bool = False
) -> dict[str, Any]:
    """Replace the files that differ, each at once. received: the directory with all of them, as they arrived.

    diff: whether the result has their content before.
    """
    code = check_shared_root(shared_root) / USER_CODE_DIR
    for file in item.files:
        if not is_plain_path(file.path):
            raise StagingError(repr(file.path), "has characters that cannot be shown.", "Rename the file.")
    with as_staging_errors(code / item.name, "copied"):
        changed = [file for file in item.files if not is_same(code / file.path, file)]
        before = {file.path: text_of(code / file.path) for file in changed} if diff else {}
        for file in [] if check else changed:
            if received is None:
                raise FilesNeededError(file.path)
            target = code / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            (received / file.path).chmod(MODE)
            (received / file.path).replace(target)
    status = Status.STAGED if changed else Status.EXISTS
    path = str(code / item.name)
    return {"changed": bool(changed), "name": item.name, "path": path, "status": status.value, "before": before}


def is_same(path: Path, file: UploadFile) -> bool:
    try:
        return path.lstat().st_mode & 0o777 == MODE and file_sha256(path) == file.sha256
    except OSError:
        return False


def text_of(path: Path) -> str:
    """The content of a file that can be shown."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(MAX_DIFF_BYTES)
    except (OSError, UnicodeError):
        return ""
