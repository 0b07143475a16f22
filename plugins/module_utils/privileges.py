# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on the shared root without the rights of root.

Jobs can write to the shared root, and can replace any directory there by a link at any moment. A process of root must
not follow such a path. So modules, which often run as root, do all work on the shared root in a child process. It runs
as the nodes' user, and has no right that a job does not have.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .argus.common.shared_root import JOBS_DIR

# The uid and gid of nodes if Ansible is root. No person and no service has this number: it is above the numbers of
# people (UID_MAX in login.defs) and below those of systemd's dynamic users.
UNPRIVILEGED = 61000


class User(NamedTuple):
    """A user and its group, by number."""

    uid: int
    gid: int


def user_of(shared_root: Path) -> User:
    """Return the user as whom a process of root works on a shared root.

    It is the owner of the shared root, if not root; else the owner of the job archives, if not root; else UNPRIVILEGED,
    if other users can write to one of the two or if root has no access; else root.
    """
    user = User(0, 0)
    # The shared root itself may be a link of the administrator. Below it, a job may have put a link in any place.
    for read_status, path in ((os.stat, shared_root), (os.lstat, shared_root / JOBS_DIR)):
        try:
            status = read_status(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            # On NFS, root may have no rights (root_squash).
            user = User(UNPRIVILEGED, UNPRIVILEGED)
            continue
        if status.st_uid:
            return User(status.st_uid, status.st_gid or status.st_uid)
        if stat.S_ISLNK(status.st_mode) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            user = User(UNPRIVILEGED, UNPRIVILEGED)
    return user


def without_root(shared_root: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do work on a shared root as the user that `user_of` returns; return its result, with which a module can exit.

    If the work raises an exception, the result has ``failed`` and ``msg``. Paths of the work are relative to the shared
    root, because the path to the shared root may lead through the home directory of root.
    """
    return as_user(user_of(shared_root), shared_root, work)


def as_user(user: User, shared_root: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Like `without_root`, but as this user. A process that is not root keeps its own user."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        os.close(read_end)
        _work_in_child(user, shared_root, work, write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        answer = pipe.read()
    _pid, status = os.waitpid(child, 0)
    # The child has read what jobs wrote, so it is not trusted: JSON cannot do anything in this process.
    with contextlib.suppress(ValueError):
        result = json.loads(answer)
        if isinstance(result, dict):
            return result
    return failure(f"the process of user {user.uid} ended without a result (wait status {status})")


def _work_in_child(user: User, shared_root: Path, work: Callable[[], dict[str, Any]], write_end: int) -> NoReturn:
    """Become the user, work, write the result as JSON to a pipe, and end this process."""
    # Whatever happens, the child must not return into the code of its parent.
    code = 1
    try:
        result: dict[str, Any]
        try:
            # Opened as root, who can reach any path. O_PATH, as on NFS only the user may have rights in it.
            directory = os.open(shared_root, os.O_PATH | os.O_DIRECTORY)
            if os.geteuid() == 0:
                # No link leads out of a chroot. If NFS refuses it, links still lead only where the user may go.
                with contextlib.suppress(PermissionError):
                    os.chroot(shared_root)
                become(user)
            os.fchdir(directory)
            result = work()
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            result = failure(f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})")
        with os.fdopen(write_end, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
        code = 0
    finally:
        os._exit(code)


def become(user: User) -> None:
    """Become another user for good."""
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # The user cannot reach the home directory of root, and must not read settings of another user.
    os.environ["HOME"] = "/nonexistent"


def failure(message: str) -> dict[str, Any]:
    """Return the result of a module that fails."""
    return {"failed": True, "msg": message}
