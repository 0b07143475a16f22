# SPDX-License-Identifier: Apache-2.0
"""Stages a directory or link under the shared root once, completely or not at all, and removes it if no job uses it."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from ..common.shared_root import HUB_CACHE_DIR
from .files import check_space, make_read_only, make_writable, remove_tree, sync_file_system
from .hub import delete_revision
from .lock import Progress, hold_lock, lock_file, try_lock
from .manifest import (
    NOT_IN_MANIFEST,
    Facts,
    FileEntry,
    Manifest,
    StageResult,
    Status,
    check_facts,
    file_problems,
    link_manifest_path,
    list_files,
    manifest_path,
    problem_lines,
    read_manifest,
)
from .options import StageOptions, StagingError, as_staging_errors, join_items
from .usage import jobs_using

# What an unfinished build or removal leaves beside an item: a directory or a link, or the manifest of a link.
LEFTOVER_NAME = re.compile(r"\.(?P<name>.+)\.staging-[0-9a-f]{8}(\.manifest\.json)?")


@dataclass(frozen=True)
class BuildResult:
    """What a build tells of the item that it has built."""

    facts: Facts = field(default_factory=dict)  # what the manifest has besides the files
    # The SHA-256 of every file that belongs to the item, by relative path; None if the build has not computed them.
    hashes: Mapping[str, str] | None = None


# Fills the empty directory that it is given, or replaces it by a link to another directory.
BuildFunction = Callable[[Path, Progress], BuildResult]


@dataclass(frozen=True)
class BuildRequest:
    """An item that shall exist under the shared root, and how to build it."""

    kind: str  # for example "model"
    name: str
    target: Path
    build: BuildFunction
    # By the manifest of an item, why it is not the requested one, as the end of a sentence; empty if it is.
    mismatch: Callable[[Manifest], str] = lambda manifest: ""
    read_only: bool = False  # remove write permissions, so that an import cannot change the item
    size: Callable[[], int] = lambda: 0  # the bytes that the item will take, as far as they are known in advance

    def result(self, status: Status, notes: Sequence[str] = ()) -> StageResult:
        return StageResult(self.kind, self.name, str(self.target), status, tuple(notes))


def stage(request: BuildRequest, options: StageOptions | None = None) -> StageResult:
    """Creates the target; if it exists, verifies it, and repairs it if the options say so. Raises StagingError."""
    options = options or StageOptions()
    with as_staging_errors(request.target, "staged"):
        damage = find_damage(request, options)
        if damage is None:
            check_space(request.target, request.size())
        elif not damage:
            if not options.check:
                remove_leftovers_if_unlocked(request.target)
            return request.result(Status.EXISTS)
        if options.check:
            return request.result(Status.STAGED if damage is None else Status.REPAIRED, problem_lines(damage or {}))
        with hold_lock(request.target) as progress:
            # The previous holder of the lock may have done it.
            damage = find_damage(request, options)
            if damage is None:
                return create(request, progress)
            return repair(request, progress, damage) if damage else request.result(Status.EXISTS)


def find_damage(request: BuildRequest, options: StageOptions) -> dict[str, str] | None:
    """The problems of the files of the target that are not as they were staged, by name; None without a target.

    Raises StagingError if the target is another item, or has damage that may not be repaired.
    """
    target = request.target
    manifest = read_manifest(target)
    if manifest is None:
        return None
    if manifest.kind != request.kind:
        raise StagingError(target, f"is of kind {manifest.kind}, not {request.kind}.", "Choose another name.")
    if mismatch := request.mismatch(manifest):
        remedy = "Staged content never changes: choose another name, or remove it first (state: absent)."
        raise StagingError(target, mismatch, remedy)
    damage = file_problems(target, manifest, full=options.full)
    remedy = "Restore it as it was staged with -e staging_repair=true."
    if added := NOT_IN_MANIFEST in damage.values():
        remedy = "Move the added files away; -e staging_repair=true restores the others as they were staged."
    if damage and (added or not options.repair):
        raise StagingError(target, f"no longer fits its manifest: {', '.join(problem_lines(damage))}.", remedy)
    return damage


def create(request: BuildRequest, progress: Progress) -> StageResult:
    """Builds the item beside the target, and renames it."""
    with built_beside_target(request, progress) as new_item:
        if new_item.is_symlink():
            # A link is complete as soon as it exists: its manifest comes first.
            link_manifest_path(new_item).rename(link_manifest_path(request.target))
            request.target.symlink_to(new_item.readlink())
        else:
            new_item.rename(request.target)
        sync_file_system(request.target.parent)
    return request.result(Status.STAGED)


def repair(request: BuildRequest, progress: Progress, damage: Mapping[str, str]) -> StageResult:
    """Builds the item again beside the target, and replaces the damaged files of the target by the new ones."""
    target = request.target
    files = (read_manifest(target) or Manifest()).files
    with built_beside_target(request, progress) as new_item:
        rebuilt = (read_manifest(new_item) or Manifest()).files
        changed = [name for name, entry in files.items() if name not in rebuilt or rebuilt[name].sha256 != entry.sha256]
        if changed:
            problem = f"cannot be repaired: its source has other content now ({join_items(changed)})."
            raise StagingError(target, problem, "Remove it (state: absent) and stage it again, or choose another name.")
        if target.is_symlink():
            # The build has repaired the directory that the new link points at; the old link may have pointed elsewhere.
            for name in damage:
                set_mtime(new_item / name, files[name])
            new_item.replace(target)
        else:
            try:
                for directory in (new_item, target):
                    make_writable(directory)
                for name in damage:
                    set_mtime(new_item / name, files[name])
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (new_item / name).replace(target / name)
            finally:
                if request.read_only:
                    make_read_only(target)
            sync_file_system(target)
    return request.result(Status.REPAIRED, problem_lines(damage))


def set_mtime(path: Path, entry: FileEntry) -> None:
    """Sets the modification time that the manifest has, so that later verifications need not read the file."""
    os.utime(path, ns=(entry.mtime_ns, entry.mtime_ns))


@contextlib.contextmanager
def built_beside_target(request: BuildRequest, progress: Progress) -> Iterator[Path]:
    """Builds the item beside the target, with its manifest, and yields its path once all is synced to disk.

    On exit, the item is removed unless it was renamed.
    """
    target = request.target
    remove_leftovers(target)
    new_item = new_sibling(target)
    # Not tempfile.mkdtemp: its mode 0700 would exclude the users of the nodes.
    new_item.mkdir()
    try:
        progress.begin("building")
        built = request.build(new_item, progress)
        progress.begin("writing to disk")
        files = list_files(new_item, built.hashes)
        facts = {
            "kind": request.kind,
            "name": request.name,
            **built.facts,
            "staged_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "staged_on": socket.gethostname(),
            "bytes": sum(entry.size for entry in files.values()),
        }
        try:
            check_facts(facts)
        except ValueError as error:
            remedy = "Use a source whose name and path are short and have printable characters only."
            raise StagingError(target, f"cannot be described in a manifest: {error}.", remedy) from error
        manifest_path(new_item).write_text(Manifest(facts, files).text(), encoding="utf-8")
        if request.read_only:
            make_read_only(new_item)
        sync_file_system(new_item)
        if new_item.is_symlink():
            # The link's destination may be on another file system.
            sync_file_system(new_item.parent)
        yield new_item
    finally:
        remove_leftovers(target)


def new_sibling(target: Path) -> Path:
    """A free path beside the target: on the same file system, where a rename is atomic."""
    return target.with_name(f".{target.name}.staging-{secrets.token_hex(4)}")


def remove_leftovers(target: Path) -> None:
    """Removes what builds and removals of a target have left. Only the holder of its lock may call this."""
    if not os.path.lexists(target):
        link_manifest_path(target).unlink(missing_ok=True)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.staging-*"):
        match = LEFTOVER_NAME.fullmatch(leftover.name)
        if match and match["name"] == target.name:
            remove_tree(leftover)


def remove_leftovers_if_unlocked(target: Path) -> None:
    """Removes what a killed process has left, with its lock file; nothing if a process holds the lock."""
    file = lock_file(target)
    # Without write permission, the leftovers stay.
    with contextlib.suppress(OSError):
        if file.exists() and (lock := try_lock(file)) is not None:
            try:
                remove_leftovers(target)
                file.unlink()
            finally:
                os.close(lock)


# The removal of an item.
def remove(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> StageResult:
    """Removes an item. Raises StagingError if jobs use it, or if another kind of item is at its path."""
    result = partial(StageResult, kind, name, str(target))
    with as_staging_errors(target, "removed"):
        manifest = read_manifest(target)
        if manifest is None:
            if not check:
                remove_leftovers_if_unlocked(target)
            return result(Status.ABSENT)
        if manifest.kind != kind:
            raise StagingError(target, f"is of kind {manifest.kind}, not {kind}.", "Nothing was removed.")
        with contextlib.nullcontext() if check else hold_lock(target):
            # The previous holder of the lock may have done it.
            if not os.path.lexists(target):
                return result(Status.ABSENT)
            if jobs := jobs_using(shared_root, target):
                remedy = "Wait until these jobs have ended, or stop them (stop.yml)."
                raise StagingError(target, f"is used by {', '.join(jobs)}.", remedy)
            if not check:
                # The rename removes it at once, even if deleting its files fails.
                target.rename(new_sibling(target))
                remove_leftovers(target)
        return result(Status.REMOVED)


def remove_downloaded(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> StageResult:
    """Removes an item that may come from the hub, and its commit from the cache unless another item needs that."""
    manifest = None if check else read_manifest(target)
    removed = remove(shared_root, kind, name, target, check=check)
    if not manifest or not manifest.commit or removed.status is not Status.REMOVED:
        return removed
    if not any(needs_commit(path, manifest) for path in target.parent.iterdir()):
        repo_type = "model" if kind == "model" else "dataset"
        delete_revision(shared_root / HUB_CACHE_DIR, manifest.source, manifest.commit, repo_type)
    return removed


def needs_commit(path: Path, manifest: Manifest) -> bool:
    """Whether the item at a path needs the commit of a manifest; it may also be a link that a user has made."""
    other = None
    # What was not staged has no manifest.
    with contextlib.suppress(StagingError):
        other = read_manifest(path)
    same = other is not None and (other.source, other.commit) == (manifest.source, manifest.commit)
    return same or path.resolve().name == manifest.commit
