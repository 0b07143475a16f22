# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
STAGED = "staged"
EXISTS = "exists"

# What a build that was killed leaves behind. It is hidden, and its name tells whose it is.
LEFTOVER = re.compile(r"\..+\.staging-[0-9a-f]{8}")
LEFTOVER_SECONDS = 3600

# In lower case, the form of a submission id: a name of a dataset ends up in paths, tags and commands.
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
# Models and code ids come with capitals (Qwen2.5-0.5B-Instruct).
NAME_WITH_CAPITALS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class StagingError(Exception):
    """Says where something is wrong, what it is, and what to do about it."""

    def __init__(self, where: object, what: str, todo: str) -> None:
        super().__init__(f"{where}: {what} {todo}")


@dataclass(frozen=True)
class Staged:
    """One thing under the shared root, and what became of it.

    kind: what it is, for example "model".
    status: "staged" when it was made now (or would be, in check mode), "exists" when it was there already.
    """

    kind: str
    name: str
    path: str
    status: str

    def as_dict(self) -> dict[str, str]:
        return asdict(self)


def difference(results: Iterable[Staged]) -> dict[str, str]:
    """Ansible's diff: what was there before, and what is there now."""
    results = list(results)
    return {
        "before": "".join(f"{each.kind} {each.path}\n" for each in results if each.status == EXISTS),
        "after": "".join(f"{each.kind} {each.path}\n" for each in results),
    }


def check_name(kind: str, name: str, allowed: re.Pattern[str] = NAME) -> str:
    """The name itself, when it is fit to be a directory under the shared root."""
    if not allowed.fullmatch(name):
        raise StagingError(kind, f'the name "{name}" is not allowed.', f"Choose one that matches {allowed.pattern}")
    return name


def check_shared_root(shared_root: Path) -> Path:
    """The shared root itself. It is never made: where it is missing it is not mounted, and a local disk would fill."""
    if not shared_root.is_dir():
        raise StagingError(
            f'shared_root "{shared_root}"', "is no directory here.", "Mount or make it first, or correct its path."
        )
    return shared_root


def manifest_of(target: Path) -> dict[str, Any] | None:
    """What the manifest of a staged directory says; None when there is nothing of that name."""
    # A dangling link occupies the name too.
    if not os.path.lexists(target):
        return None
    try:
        manifest = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise StagingError(
            target, f"exists, but was not staged: it has no {MANIFEST}.", "Choose another name, or move it away."
        ) from None
    except OSError as error:
        raise StagingError(
            target, f"cannot be read ({error}).", f"Give user id {os.geteuid()} permission to read it."
        ) from error
    except ValueError as error:
        raise StagingError(
            target / MANIFEST, f"is not readable as JSON ({error}).", f"Remove {target} and stage it again."
        ) from error
    if not isinstance(manifest, dict):
        raise StagingError(target / MANIFEST, "is not a mapping.", f"Remove {target} and stage it again.")
    return manifest


def stage_directory(target: Path, build: Callable[[Path], Mapping[str, Any]], *, read_only: bool = False) -> str:
    """Make a directory once: ``STAGED`` when this call made it, ``EXISTS`` when it was there, or somebody was faster.

    target: the directory to make; its parents are made too.
    build: fills the empty directory that it is given, and returns what the manifest shall say besides the files.
    read_only: take away all write permissions; whoever imports from it cannot change it by accident.
    """
    try:
        return _stage_directory(target, build, read_only)
    except OSError as error:
        raise StagingError(
            target,
            f"cannot be staged: {error}.",
            f"See that {target.parent} is on a file system with room, and writable for user id {os.geteuid()}.",
        ) from error


def _stage_directory(target: Path, build: Callable[[Path], Mapping[str, Any]], read_only: bool) -> str:
    _remove_leftovers(target.parent)
    if manifest_of(target) is not None:
        return EXISTS
    target.parent.mkdir(parents=True, exist_ok=True)
    # A sibling is on the same file system, where a rename is atomic.
    building = target.with_name(f".{target.name}.staging-{secrets.token_hex(4)}")
    # Not tempfile.mkdtemp: its mode 0700 would shut out the nodes' users.
    building.mkdir()
    try:
        metadata = build(building)
        manifest = {**metadata, "files": list_files(building)}
        (building / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        _settle(building, read_only)
        try:
            building.rename(target)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            # Somebody else was faster; what they made has to be complete as well.
            manifest_of(target)
            _remove(building)
            return EXISTS
    except BaseException:
        _remove(building)
        raise
    _sync(target.parent)
    return STAGED


def list_files(directory: Path) -> dict[str, dict[str, Any]]:
    """Size and SHA-256 of every file below a directory, by its relative path, in order."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return {
        path.relative_to(directory).as_posix(): {"size": path.stat().st_size, "sha256": file_sha256(path)}
        for path in files
    }


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _settle(directory: Path, read_only: bool) -> None:
    """Bring a finished directory to the disk: the rename must not survive a power cut that its content does not."""
    for parent, _dummy, names in os.walk(directory, topdown=False):
        for name in names:
            path = Path(parent, name)
            if read_only:
                path.chmod(0o444)
            _sync(path)
        if read_only:
            Path(parent).chmod(0o555)
        _sync(Path(parent))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do this for a directory, and then do not need it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove(directory: Path) -> None:
    """Remove one of our own directories, which may be read-only already; one of another user stays."""
    for parent, _dummy, _dummy in os.walk(directory):
        try:
            Path(parent).chmod(0o700)
        except OSError:
            return
    shutil.rmtree(directory, ignore_errors=True)


def _remove_leftovers(parent: Path) -> None:
    """Remove what builds that were killed have left, once no build can still be at work on it."""
    if not parent.is_dir():
        return
    for leftover in parent.iterdir():
        if not LEFTOVER.fullmatch(leftover.name) or time.time() - _last_write(leftover) < LEFTOVER_SECONDS:
            continue
        # Were it alive after all, its own rename now fails, and cannot bring out half a directory.
        doomed = leftover.with_name(f"{leftover.name[:-8]}{secrets.token_hex(4)}")
        try:
            leftover.rename(doomed)
        except OSError:
            continue
        _remove(doomed)


def _last_write(directory: Path) -> float:
    """The time of the last write anywhere below; now, when it vanishes meanwhile."""
    try:
        return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
    except OSError:
        return time.time()
