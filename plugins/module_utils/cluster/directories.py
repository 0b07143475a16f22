# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories of the shared root. Jobs can write there: no link is followed, and root creates nothing that they can
move.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path, PurePosixPath
from typing import Any

from ..argus.common.shared_root import JOBS
from ..privileges import User, as_user, failure

# The layout of the shared root; the nodes' user can write to all of it.
DIRECTORIES = (
    "datasets",
    "hf",
    "jobs",
    "outputs",
    "ray",
    "common/models",
    "common/datasets",
    "common/code/verl",
    "user/code",
)
# The directories whose mode the inventory can set: what users share, not what jobs and playbooks rely on.
OPENED = tuple(
    dict.fromkeys(
        str(above)
        for name in DIRECTORIES
        if PurePosixPath(name).parts[0] in ("common", "user")
        for above in (*reversed(PurePosixPath(name).parents[:-1]), PurePosixPath(name))
    )
)
# The owner has all rights, or nodes could not work; no setuid; others write only with the sticky bit, without which
# they could also replace the files of each other.
MODE = re.compile(r"0?(2?7[0-7][0145]|[13]7[0-7][0-7])")
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BlockedError(Exception):
    """Something is in the way of a directory; the message says what, where, and what to do."""


def create_directories(shared_root: Path, user: User, check: bool, mode: str = "") -> dict[str, Any]:
    """Create what is missing, and return the changes as ``created``; with ``failed`` and ``msg`` if it is not possible.

    mode: of ``common/`` and ``user/`` and the directories of the layout in them, such as "1777"; empty leaves them.

    Root creates only what is missing directly below a shared root that belongs to root, where no other user can
    interfere.
    Everything else is done as the nodes' user, who cannot do more than a job.
    """
    # Search permission is enough: on NFS, root may not have more. The path above the shared root is the operator's.
    root = os.open(shared_root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.geteuid() != 0:
            return _complete(shared_root, root, check, [], mode)
        created = _create_at_the_top(shared_root, root, user, check)
        # In check mode they are not there.
        pending = [Path(path).name for path in created] if check else []
        result = as_user(user, lambda: _complete(shared_root, root, check, pending, mode))
    finally:
        os.close(root)
    return {**result, "created": list(dict.fromkeys([*created, *result.get("created", ())]))}


def _create_at_the_top(shared_root: Path, root: int, user: User, check: bool) -> list[str]:
    """As root, create what is missing directly below the shared root, if only root can write there."""
    owner = os.fstat(root)
    if owner.st_uid != 0 or owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return []
    created = []
    for name in dict.fromkeys(PurePosixPath(directory).parts[0] for directory in DIRECTORIES):
        try:
            os.stat(name, dir_fd=root, follow_symlinks=False)
        except FileNotFoundError:
            created.append(str(shared_root / name))
            if not check:
                _create_owned(name, root, user)
    return created


def _create_owned(name: str, directory: int, user: User) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        # A run for another cluster on this shared root was faster.
        return
    descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    try:
        os.fchown(descriptor, *user)
    finally:
        os.close(descriptor)


def _complete(shared_root: Path, root: int, check: bool, pending: list[str], mode: str) -> dict[str, Any]:
    """As the nodes' user, create everything that is missing; pending: what is to be there at the top."""
    created: list[str] = []
    try:
        if not check:
            _require_one_user(shared_root, root)
        for name in DIRECTORIES:
            if PurePosixPath(name).parts[0] in pending:
                created += _below(shared_root / name, shared_root)
            else:
                created += _complete_one(shared_root, root, name, check)
        for name in OPENED if mode else ():
            created += _change_mode(shared_root, root, name, int(mode, 8), check)
    except BlockedError as error:
        return {**failure(str(error)), "created": created}
    return {"created": list(dict.fromkeys(created))}


def _complete_one(shared_root: Path, root: int, name: str, check: bool) -> list[str]:
    """Create a directory and those above it, and return what was created."""
    created: list[str] = []
    path, directory = shared_root, os.dup(root)
    try:
        for part in PurePosixPath(name).parts:
            missing = _is_missing(path / part, part, directory)
            if missing and not _can_write(directory):
                raise BlockedError(_not_ours(path, directory, f"{part} cannot be created there"))
            if missing and check:
                return _below(shared_root / name, path)
            path /= part
            below = _open(path, part, directory, create=missing)
            os.close(directory)
            directory = below
            if missing:
                created.append(str(path))
        if not _can_write(directory):
            raise BlockedError(_not_ours(path, directory, "nodes could not write there"))
    finally:
        os.close(directory)
    return created


def _change_mode(shared_root: Path, root: int, name: str, mode: int, check: bool) -> list[str]:
    """Give a directory its mode, and return the change; each part of its path is opened without following a link."""
    path, directory = shared_root, os.dup(root)
    try:
        for part in PurePosixPath(name).parts:
            path /= part
            try:
                below = os.open(part, OPEN_DIRECTORY, dir_fd=directory)
            except FileNotFoundError:
                # In check mode, it would be created.
                return [f"{shared_root / name} (mode {mode:04o})"]
            except OSError as error:
                raise BlockedError(
                    f"{path} cannot be opened ({error.strerror}). Remove what is in its place"
                ) from error
            os.close(directory)
            directory = below
        there = os.fstat(directory)
        before = stat.S_IMODE(there.st_mode)
        if before == mode:
            return []
        if os.geteuid() not in (0, there.st_uid):
            raise BlockedError(
                f"{path} has mode {before:04o} and belongs to {there.st_uid}:{there.st_gid}: the nodes' user "
                f"{os.geteuid()}:{os.getegid()} cannot give it mode {mode:04o}. Let its owner do it (chmod {mode:04o} "
                f"{path}), or leave ray_node_common_mode empty"
            )
        if not check:
            os.fchmod(directory, mode)
        return [f"{path} (mode {before:04o} -> {mode:04o})"]
    finally:
        os.close(directory)


def _can_write(directory: int) -> bool:
    # The kernel is asked, and on NFS the server: modes do not show access lists and squashed users.
    return os.access(".", os.W_OK | os.X_OK, dir_fd=directory)


def _below(path: Path, parent: Path) -> list[str]:
    """The directories from below `parent` down to `path`."""
    return [str(above) for above in (*reversed(path.parents), path) if parent in above.parents]


def _is_missing(path: Path, name: str, directory: int) -> bool:
    try:
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return True
    except PermissionError as error:
        raise BlockedError(_not_ours(path.parent, directory, f"{name} cannot be reached there")) from error
    if not stat.S_ISDIR(there.st_mode):
        kind = "a link" if stat.S_ISLNK(there.st_mode) else "not a directory"
        raise BlockedError(
            f"{path} is {kind}, and a directory has to be there: nodes and playbooks follow no link below the shared "
            "root. Remove it, or mount the file system that it leads to in its place"
        )
    return False


def _open(path: Path, name: str, directory: int, create: bool) -> int:
    try:
        if create:
            # Another run of cluster_up may be faster, or a job: O_NOFOLLOW decides.
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=directory)
        return os.open(name, OPEN_DIRECTORY, dir_fd=directory)
    except OSError as error:
        raise BlockedError(
            f"{path} cannot be created or opened ({error.strerror}). If something else is there, a job may have put it "
            "there: remove it and run the playbook again"
        ) from error


def _require_one_user(shared_root: Path, root: int) -> None:
    """Refuse a shared root on which another user's cluster works, where that user could write as well as this one.

    Modules work as the owner of the shared root or of its archives: those of one cluster as the user of the other.
    """
    for name in (".", JOBS):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            directory = os.open(name, OPEN_DIRECTORY, dir_fd=root)
            try:
                owner = os.fstat(directory).st_uid
                if owner not in (0, os.geteuid()) and _can_write(directory) and _owner_of_new(directory) != owner:
                    why = "jobs of one user could replace files of the other"
                    raise BlockedError(_not_ours(shared_root / name, directory, why))
            finally:
                os.close(directory)


def _owner_of_new(directory: int) -> int:
    """The owner of a new file: a server of NFS may give all files to one user (all_squash)."""
    name = f".owner-{os.urandom(8).hex()}"
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
    os.unlink(name, dir_fd=directory)
    try:
        return os.fstat(descriptor).st_uid
    finally:
        os.close(descriptor)


def _not_ours(path: Path, directory: int, why: str) -> str:
    there = os.fstat(directory)
    user, owner = f"{os.geteuid()}:{os.getegid()}", f"{there.st_uid}:{there.st_gid}"
    # Nodes of root would make every job root.
    other = (
        f'. A shared root has one user: run the nodes as that one (ray_node_user: "{owner}"), or, for a cluster of '
        f"another, make a directory in one of root's (install -d -o {os.geteuid()} -g {os.getegid()} DIRECTORY) and "
        f"write shared_root_source: DIRECTORY. If no cluster uses it any more, change the owner"
        if there.st_uid
        else ". Change the owner"
    )
    return (
        f"{path} belongs to {owner} (mode {stat.S_IMODE(there.st_mode):o}), and the nodes' user is {user}: {why}"
        f"{other} (chown -R {user} {path})"
    )
