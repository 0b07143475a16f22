# SPDX-License-Identifier: GPL-3.0-or-later
"""Creates the directories of the shared root.

Jobs can write to the shared root, and may replace a directory by a link at any moment. So root creates directories only
where jobs cannot write, and everything else is done as the nodes' user.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..argus.common.shared_root import JOBS_DIR
from ..privileges import User, as_user, failure

# Created by cluster_up.yml; docs/files_on_machines.md has what each is for.
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


class BlockedError(Exception):
    """Something is in the way of a directory; the message says what, where, and what to do."""


def with_parents(names: tuple[str, ...]) -> list[Path]:
    """Return the directories, each after its parents."""
    paths = (Path(name) for name in names)
    return list(dict.fromkeys(above for path in paths for above in (*list(reversed(path.parents))[1:], path)))


def create_directories(shared_root: Path, user: User, check: bool) -> dict[str, Any]:
    """Create DIRECTORIES as far as they are missing, and return the new paths as ``created``.

    If that is not possible, the result also has ``failed`` and ``msg``. Root creates only what is missing directly
    below a shared root that only root can write to. The nodes' user, who cannot do more than a job, does the rest.
    """
    top = _create_as_root(shared_root, user, check)

    def work() -> dict[str, Any]:
        # Outside of check mode, root has created them already.
        created = list(top) if check else []
        try:
            if not check:
                _require_one_user(shared_root)
            for path in with_parents(DIRECTORIES):
                _create(shared_root, path, created, check)
        except BlockedError as error:
            return {**failure(str(error)), "created": [str(shared_root / path) for path in created]}
        return {"created": [str(shared_root / path) for path in created]}

    result = as_user(user, shared_root, work)
    created_as_root = [str(shared_root / path) for path in top]
    return {**result, "created": list(dict.fromkeys([*created_as_root, *result.get("created", ())]))}


def _create_as_root(shared_root: Path, user: User, check: bool) -> list[Path]:
    """As root, create what is missing directly below the shared root, if only root can write there."""
    status = shared_root.stat()
    if os.geteuid() or status.st_uid or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return []
    missing = [path for path in with_parents(DIRECTORIES) if len(path.parts) == 1 and not _exists(shared_root / path)]
    for path in () if check else missing:
        # A run for another cluster on this shared root may create it first.
        with suppress(FileExistsError):
            (shared_root / path).mkdir()
            os.chown(shared_root / path, *user, follow_symlinks=False)
    return missing


def _exists(path: Path) -> bool:
    """Whether the path exists, as a link too."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _create(shared_root: Path, path: Path, created: list[Path], check: bool) -> None:
    """Create a directory below the shared root, and append it to `created`. Raises BlockedError."""
    try:
        if check and (path in created or path.parent in created):
            created += [] if path in created else [path]
            return
        if not _exists(path):
            if not _can_write(path.parent):
                raise BlockedError(_conflict(shared_root, path.parent, f"{path.name} cannot be created there"))
            created.append(path)
            if check:
                return
            # Another run of cluster_up may create it first.
            path.mkdir(exist_ok=True)
        if path.is_symlink() or not path.is_dir():
            kind = "a link" if path.is_symlink() else "not a directory"
            raise BlockedError(
                f"{shared_root / path} is {kind}, and a directory has to be there: nodes and playbooks follow no link "
                "below the shared root. Remove it, or mount the file system that it leads to in its place"
            )
    except PermissionError as error:
        raise BlockedError(_conflict(shared_root, path.parent, f"{path.name} cannot be reached there")) from error
    except OSError as error:
        raise BlockedError(
            f"{shared_root / path} cannot be created or opened ({error.strerror}). If something else is there, a job "
            "may have put it there: remove it and run the playbook again"
        ) from error
    if str(path) in DIRECTORIES and not _can_write(path):
        raise BlockedError(_conflict(shared_root, path, "nodes could not write there"))


def _can_write(path: Path) -> bool:
    # Modes do not show access lists and squashed users. The kernel knows them, on NFS from the server.
    return os.access(path, os.W_OK | os.X_OK)


def _require_one_user(shared_root: Path) -> None:
    """Raise BlockedError for a shared root of another user's cluster in which both users could write."""
    for path in (Path(), Path(JOBS_DIR)):
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            owner = path.lstat().st_uid
            if owner not in (0, os.geteuid()) and _can_write(path) and _owner_of_new_file(path) != owner:
                raise BlockedError(_conflict(shared_root, path, "jobs of one user could replace files of the other"))


def _owner_of_new_file(directory: Path) -> int:
    """Return the owner of a new file. An NFS server may give all files to one user (all_squash)."""
    path = directory / f".owner-{os.urandom(8).hex()}"
    path.touch(exist_ok=False)
    try:
        return path.lstat().st_uid
    finally:
        path.unlink()


def _conflict(shared_root: Path, directory: Path, why: str) -> str:
    """Return the message about a directory of another user, with what to do."""
    status = directory.lstat()
    user, owner = f"{os.geteuid()}:{os.getegid()}", f"{status.st_uid}:{status.st_gid}"
    # Nodes of root would make every job root.
    other = (
        f'. A shared root has one user: run the nodes as that one (ray_node_user: "{owner}"), or, for a cluster of '
        f"another, make a directory in one of root's (install -d -o {os.geteuid()} -g {os.getegid()} DIRECTORY) and "
        f"write shared_root_source: DIRECTORY. If no cluster uses it any more, change the owner"
        if status.st_uid
        else ". Change the owner"
    )
    path = shared_root / directory
    return (
        f"{path} belongs to {owner} (mode {stat.S_IMODE(status.st_mode):o}), and the nodes' user is {user}: {why}"
        f"{other} (chown -R {user} {path})"
    )
