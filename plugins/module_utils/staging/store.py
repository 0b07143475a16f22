# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .errors import StagingError, reported
from .files import check_space, keep_time, remove_tree, sync, sync_all, writable
from .lock import Progress, is_at, lock_file, locked
from .manifest import (
    ADDED,
    NAMED_FILES,
    list_files,
    manifest_beside,
    manifest_file,
    manifest_of,
    manifest_text,
    named,
    problems,
    protect,
)
from .options import ABSENT, DEFERRED, EXISTS, REMOVED, REPAIRED, STAGED, Staged

LEFTOVER = re.compile(r"\.(?P<name>.+)\.staging-[0-9a-f]{8}(\.manifest\.json)?")


def replace_manifest(target: Path, manifest: Mapping[str, Any]) -> None:
    """Say something else of the files that are there; for who holds the lock."""
    written = manifest_beside(beside(target))
    try:
        written.write_text(manifest_text(manifest), encoding="utf-8")
        sync(written)
        written.replace(manifest_file(target))
    finally:
        remove_leftovers(target)
    sync(target)


def tidy(target: Path) -> None:
    """Remove what somebody has left who was killed when all was done; who is at work now needs it, and stays alone."""
    file = lock_file(target)
    # Whoever may not write there has nothing to tidy up.
    with contextlib.suppress(OSError), file.open("r+", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_at(file, lock.fileno()):
            remove_leftovers(target)
            file.unlink()


# Fills the empty directory that it is given, or puts a link to another one in its place, and returns what the manifest
# shall say besides the files; if it knows them, all that count, by relative path, with their SHA-256 as "hashes".
Build = Callable[[Path, Progress], Mapping[str, Any]]


@dataclass(frozen=True)
class Request:
    """Something that is to be under the shared root, and how it is made."""

    kind: str
    name: str
    target: Path
    build: Build
    # Why a manifest is not of what is asked for; nothing when it is.
    differs: Callable[[Mapping[str, Any]], str] = lambda manifest: ""
    # Whoever imports from it cannot change it by accident.
    read_only: bool = False
    # How many bytes it will take, as far as that is known before.
    size: Callable[[], int] = lambda: 0
    # Whether it is made in a moment.
    quick: bool = False

    def result(self, status: str, notes: Sequence[str] = ()) -> Staged:
        return Staged(self.kind, self.name, str(self.target), status, tuple(notes))


def stage(
    request: Request, *, check: bool = False, repair: bool = False, full: bool = False, defer: bool = False
) -> Staged:
    """Make it once; what is there is verified.

    check: only say what would become of it.
    repair: put files right that no longer fit the manifest; without it they are an error that names them.
    full: verify content, even of files that look unchanged.
    defer: leave what may take longer than a moment undone, and say so.
    """
    with reported(request.target, "staged"):
        wrong = examine(request, full, repair)
        if wrong is None:
            check_space(request.target, request.size())
        elif not wrong:
            if not check:
                tidy(request.target)
            return request.result(EXISTS)
        if check:
            return request.result(STAGED if wrong is None else REPAIRED, notes(wrong))
        if defer and not request.quick:
            return request.result(DEFERRED)
        with locked(request.target) as progress:
            # Whoever held the lock before may have done it.
            wrong = examine(request, full, repair)
            if wrong is None:
                return make(request, progress)
            return mend(request, progress, wrong) if wrong else request.result(EXISTS)


def examine(request: Request, full: bool, repair: bool) -> dict[str, str] | None:
    """As compare; what may not be repaired is an error."""
    wrong = compare(request, full)
    if wrong and (not repair or ADDED in wrong.values()):
        raise StagingError(
            request.target,
            f"no longer fits its manifest: {named(wrong)}.",
            "Move away what was added; the rest is put back as it was staged with -e staging_repair=true."
            if ADDED in wrong.values()
            else "Put it back as it was staged with -e staging_repair=true.",
        )
    return wrong


def compare(request: Request, full: bool) -> dict[str, str] | None:
    """What of a target is not as it was staged; None when there is no target, an error when it is something else."""
    manifest = manifest_of(request.target)
    if manifest is None:
        return None
    kind = manifest.get("kind")
    if kind != request.kind:
        raise StagingError(request.target, f"is of kind {kind}, not {request.kind}.", "Choose another name.")
    differs = request.differs(manifest)
    if differs:
        raise StagingError(
            request.target, differs, "What is staged never changes: choose another name, or remove it (state: absent)."
        )
    return problems(request.target, manifest, full=full)


def notes(wrong: Mapping[str, str] | None) -> list[str]:
    return [f"{name} {what}" for name, what in (wrong or {}).items()]


def make(request: Request, progress: Progress) -> Staged:
    """Build beside the target, and rename."""
    with built(request, progress) as building:
        try:
            if building.is_symlink():
                publish_link(building, request.target)
            else:
                building.rename(request.target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.EISDIR):
                raise
            # Where locks do not reach to all machines, somebody else was faster; theirs has to be what was asked for.
            examine(request, full=False, repair=False)
            return request.result(EXISTS)
    sync(request.target.parent)
    return request.result(STAGED)


def publish_link(building: Path, target: Path) -> None:
    """A link counts when it is there: its manifest goes before it, and nothing that has the name is replaced."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    manifest_beside(building).rename(manifest_beside(target))
    target.symlink_to(building.readlink())


def mend(request: Request, progress: Progress, wrong: Mapping[str, str]) -> Staged:
    """Build it again, and put those files in place that were changed or lost."""
    target = request.target
    files = (manifest_of(target) or {}).get("files", {})
    with built(request, progress) as building:
        again = (manifest_of(building) or {}).get("files", {})
        other = [name for name in files if again.get(name, {}).get("sha256") != files[name]["sha256"]]
        if other:
            raise StagingError(
                target,
                f"cannot be repaired: its source gives other content now ({', '.join(other[:NAMED_FILES])}).",
                "Remove it (state: absent) and stage it again, or choose another name.",
            )
        if target.is_symlink():
            # What it points at was put right by the build; perhaps it pointed elsewhere.
            for name in wrong:
                keep_time(building / name, files[name])
            building.replace(target)
            return request.result(REPAIRED, notes(wrong))
        for name in wrong:
            for parent in reversed(Path(name).parents):
                if not (target / parent).exists():
                    with writable((target / parent).parent):
                        (target / parent).mkdir()
                    shutil.copymode(building / parent, target / parent)
            with writable((target / name).parent), writable((building / name).parent):
                keep_time(building / name, files[name])
                (building / name).replace(target / name)
                sync(target / name)
    return request.result(REPAIRED, notes(wrong))


@contextlib.contextmanager
def built(request: Request, progress: Progress) -> Iterator[Path]:
    """The finished directory with its manifest, on disk, beside its place; if it is still there at the end, it goes."""
    target = request.target
    remove_leftovers(target)
    building = beside(target)
    # Not tempfile.mkdtemp: its mode 0700 would shut out the nodes' users.
    building.mkdir()
    try:
        progress.begin("building")
        said = dict(request.build(building, progress))
        hashes = said.pop("hashes", None)
        progress.begin("writing to disk")
        files = list_files(building, hashes, read_only=request.read_only)
        manifest = {
            "kind": request.kind,
            "name": request.name,
            **said,
            "staged_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            "staged_on": socket.gethostname(),
            "bytes": sum(entry["size"] for entry in files.values()),
            "files": files,
        }
        manifest_file(building).write_text(manifest_text(manifest), encoding="utf-8")
        if request.read_only:
            protect(building, files)
        sync_all(building)
        if building.is_symlink():
            # What it points at may be on another file system.
            sync_all(building.parent)
        yield building
    finally:
        remove_leftovers(target)


def beside(target: Path) -> Path:
    """A name that is free; a sibling is on the same file system, where a rename is atomic."""
    return target.with_name(f".{target.name}.staging-{secrets.token_hex(4)}")


def remove_leftovers(target: Path) -> None:
    """What a build leaves, and what killed ones have left; under the lock nobody else is at work on it."""
    if not os.path.lexists(target):
        manifest_beside(target).unlink(missing_ok=True)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.staging-*"):
        match = LEFTOVER.fullmatch(leftover.name)
        if match and match["name"] == target.name:
            remove_tree(leftover)


def remove(kind: str, name: str, target: Path, users: Callable[[], Sequence[str]], *, check: bool = False) -> Staged:
    """Remove something staged, unless jobs use it; `users` are their submission ids."""
    with reported(target, "removed"):
        manifest = manifest_of(target)
        if manifest is None:
            if not check:
                tidy(target)
            return Staged(kind, name, str(target), ABSENT)
        if manifest.get("kind") != kind:
            raise StagingError(target, f"is of kind {manifest.get('kind')}, not {kind}.", "Nothing was removed.")
        with contextlib.nullcontext() if check else locked(target):
            # Whoever held the lock before may have done it.
            if not os.path.lexists(target):
                return Staged(kind, name, str(target), ABSENT)
            using = users()
            if using:
                todo = "Wait for the end of these jobs, or stop them (stop.yml)."
                raise StagingError(target, f"is used by {', '.join(using)}.", todo)
            if not check:
                # It goes at once, whatever happens to what is left of it.
                target.rename(beside(target))
                remove_leftovers(target)
        return Staged(kind, name, str(target), REMOVED)
