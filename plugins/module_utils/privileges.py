# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on the shared root without the rights of root.

Jobs can write to the shared root: they can replace any directory there by a link while it is being used. A process of
root must not follow such a path. Modules that run on a machine, often as root, therefore do all work on the shared root
in a child process that is the user of the nodes, and has no right that a job does not have.

Runs on machines with Python 3.9 and newer.
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

# The user and group of nodes if Ansible is root. No person and no service has the number: it is above that of people
# (login.defs, UID_MAX) and below the dynamic users of systemd.
UNPRIVILEGED = 61000


class User(NamedTuple):
    """A user and its group, by number."""

    uid: int
    gid: int


def user_of(shared_root: Path) -> User:
    """The user that work on a shared root is done as, if the process is root.

    It is the owner of the shared root, or of the job archives if the shared root belongs to root. Root remains root
    only where no other user can write: in a shared root that belongs to root, with archives that belong to root.
    """
    user = User(0, 0)
    # The shared root itself may be a link of the machine's. What is in it, a job may have replaced by a link.
    for look, path in ((os.stat, shared_root), (os.lstat, shared_root / JOBS_DIR)):
        try:
            status = look(path)
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
    """Do work on a shared root, in a child process without any right of root; return its result, which is JSON.

    Paths of the work are relative to the shared root. Only this process needs a way to it, which may lead through the
    home directory of root. The result is what a module exits with: with ``failed`` and ``msg`` if the work failed. Any
    exception of the work becomes such a result.
    """
    return as_user(user_of(shared_root), shared_root, work)


def as_user(user: User, shared_root: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The same as a user; a process that is not root does it as itself."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(user, shared_root, work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _pid, status = os.waitpid(child, 0)
    # JSON: the child has read what jobs wrote, and is not trusted with this process.
    with contextlib.suppress(ValueError):
        result = json.loads(answer)
        if isinstance(result, dict):
            return result
    return failure(f"the process of user {user.uid} ended without a result (wait status {status})")


def _child(user: User, shared_root: Path, work: Callable[[], dict[str, Any]], writing: int) -> NoReturn:
    # Whatever happens, the child must not return into the code of its parent.
    code = 1
    try:
        result: dict[str, Any]
        try:
            # On NFS, root may not have the right to search in it, and the user has.
            directory = os.open(shared_root, os.O_PATH | os.O_DIRECTORY)
            if os.geteuid() == 0:
                # No link leads out of a chroot. NFS may refuse it as well; then links lead where the user may go.
                with contextlib.suppress(PermissionError):
                    os.chroot(shared_root)
                drop(user)
            os.fchdir(directory)
            result = work()
        except BaseException as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            result = failure(f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})")
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(result).encode())
        code = 0
    finally:
        os._exit(code)


def drop(user: User) -> None:
    """Become another user for good."""
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    # The home directory of root is out of reach, and settings of other users must not be read.
    os.environ["HOME"] = "/nonexistent"


def failure(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}
