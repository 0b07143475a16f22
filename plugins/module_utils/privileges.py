# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on the shared root without the rights of root.

Jobs can write to the shared root: they can replace any directory there by a link while it is being used. A process of
root must not follow such a path. Modules that run on a machine, often as root, therefore do all work on the shared root
in a child process that is the user of the nodes, and has no right that a job does not have.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .argus.common.shared_root import JOBS

# The user and group of nodes if Ansible is root. No person and no service has the number: it is above that of people
# (login.defs, UID_MAX) and below the dynamic users of systemd.
UNPRIVILEGED = 61000
# Constants of mount(2) and unshare(2); Python has unshare since 3.12 only.
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000


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
    for look, path in ((os.stat, shared_root), (os.lstat, shared_root / JOBS)):
        try:
            found = look(path)
        except FileNotFoundError:
            continue
        except PermissionError:
            # On NFS, root may have no rights (root_squash).
            user = User(UNPRIVILEGED, UNPRIVILEGED)
            continue
        if found.st_uid:
            return User(found.st_uid, found.st_gid or found.st_uid)
        if stat.S_ISLNK(found.st_mode) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            user = User(UNPRIVILEGED, UNPRIVILEGED)
    return user


def without_root(shared_root: Path, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do work on a shared root as the user of its nodes, and return its result, which is JSON.

    The result is what a module exits with: with ``failed`` and ``msg`` if the work failed. Any exception of the work
    becomes such a result. A process that is not root does the work itself.
    """
    user = user_of(shared_root)
    if os.geteuid() or not user.uid:
        return work()
    closed = closed_above(shared_root, user)
    return as_user(user, work, lambda: uncover(shared_root, closed) if closed else None)


def closed_above(shared_root: Path, user: User) -> Path | None:
    """The uppermost directory above a shared root that a user cannot enter, such as the home directory of root."""
    for directory in reversed(Path(os.path.realpath(shared_root)).parents):
        found = directory.stat()
        bit = stat.S_IXOTH
        if found.st_uid == user.uid:
            bit = stat.S_IXUSR
        elif found.st_gid == user.gid:
            bit = stat.S_IXGRP
        if not found.st_mode & bit:
            return directory
    return None


def uncover(shared_root: Path, closed: Path) -> None:
    """Let this process, and no other, reach a shared root below a directory that stays closed.

    In mounts of its own, the closed directory is an empty one that leads to the shared root alone, under its own path.
    """
    real = os.path.realpath(shared_root)
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: Callable[..., int], *arguments: Any) -> None:
        if function(*arguments):
            raise PermissionError(
                f"the user of the nodes cannot enter {closed}, which is above the shared root, and this process cannot "
                f"change its mounts ({os.strerror(ctypes.get_errno())}). Move the shared root to another place, or "
                f"run: chmod o+x {closed}"
            )

    call(libc.unshare, CLONE_NEWNS)
    call(libc.mount, None, b"/", None, MS_REC | MS_PRIVATE, None)
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY)
    call(libc.mount, b"tmpfs", os.fsencode(closed), b"tmpfs", 0, b"mode=0755,size=1m")
    before = os.umask(0o022)
    Path(real).mkdir(parents=True)
    os.umask(before)
    call(libc.mount, f"/proc/self/fd/{descriptor}".encode(), os.fsencode(real), None, MS_BIND | MS_REC, None)
    os.close(descriptor)


def as_user(
    user: User, work: Callable[[], dict[str, Any]], before: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Do work in a child process of another user, without any right of root; return its result, which is JSON.

    before: what the child does with its rights, before it drops them.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(user, work, before, writing)
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


def _child(user: User, work: Callable[[], dict[str, Any]], before: Callable[[], None], writing: int) -> NoReturn:
    # Whatever happens, the child must not return into the code of its parent.
    code = 1
    try:
        result: dict[str, Any]
        try:
            before()
            drop(user)
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
    # The directory in which Ansible has started this process may be root's alone.
    os.chdir("/")


def failure(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}
