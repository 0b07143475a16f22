# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of a machine, such as the shared root: the mount that holds a path, its free space and its rights."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from ..argus.common.shared_root import JOBS_DIR
from ..network.interfaces import read_text


@dataclass(frozen=True)
class Mount:
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]


@dataclass(frozen=True)
class PathState:
    """The mount that holds a path, its free space and its rights.

    For a path that does not exist, mount, space and `writable` are those of its nearest parent.
    """

    path: str
    exists: bool
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]
    # What users other than root may still write.
    free_bytes: int
    # Whether Ansible's user can create files in it.
    writable: bool
    # Why the path cannot be read, as with a file server that does not answer.
    error: str | None = None
    # The permissions of the path, and its owner as uid:gid; None if it does not exist.
    mode: int | None = None
    owner: str | None = None
    # The owner, as uid:gid, of the job archives: the directory jobs/ below the path. None if there is none.
    archives_owner: str | None = None


def _unescape(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the order in which they were mounted. Format: proc_pid_mountinfo(5)."""
    mounts = []
    for line in text.splitlines():
        # The optional fields before the dash vary in number.
        before, dash, after = line.partition(" - ")
        if not dash:
            continue
        point, mount_options = before.split(" ")[4:6]
        fstype, source, super_options = after.split(" ", 2)
        # A mount is read-only when either the mount or the file system under it is.
        options = [*mount_options.split(","), *super_options.strip().split(",")]
        access = "ro" if "ro" in options else "rw"
        rest = dict.fromkeys(option for option in options if option not in ("ro", "rw"))
        mounts.append(Mount(_unescape(point), fstype, _unescape(source), [access, *map(_unescape, rest)]))
    return mounts


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds a path; of two on one mount point, the later hides the earlier."""
    deepest: Mount | None = None
    for mount in mounts:
        below = mount.mount_point.rstrip("/") + "/"
        if f"{path}/".startswith(below) and (deepest is None or len(mount.mount_point) >= len(deepest.mount_point)):
            deepest = mount
    return deepest


def read_paths(root: Path, paths: Iterable[str], timeout_seconds: float) -> list[PathState]:
    """Return the state of each path; one that does not answer in time has an error."""
    answers: dict[str, PathState] = {}

    def read(path: str) -> None:
        answers[path] = _read_path(root, path)

    # Daemon threads: a thread that hangs in the kernel must not keep the interpreter from exiting.
    threads = [(path, Thread(target=read, args=(path,), daemon=True)) for path in paths]
    for _path, thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout_seconds
    for _path, thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [answers.get(path) or _silent_path(root, path, timeout_seconds) for path, _thread in threads]


def _read_path(root: Path, path: str) -> PathState:
    file = root / path.lstrip("/")
    nearest = file
    exists, error = True, None
    while True:
        try:
            space = os.statvfs(nearest)
            break
        except (FileNotFoundError, NotADirectoryError):
            exists, nearest = False, nearest.parent
        except OSError as problem:
            # Permission, or a stale handle of a file server.
            exists, error, nearest = False, problem.strerror or str(problem), nearest.parent
    resolved = "/" + os.path.relpath(os.path.realpath(nearest), os.path.realpath(root))
    # Read after statvfs(), which is what makes an automounter mount it.
    mount = _read_mount(root, "/" if resolved == "/." else resolved)
    status = file.stat() if exists else None
    return PathState(
        path=path,
        exists=exists,
        **vars(mount),
        free_bytes=space.f_bavail * space.f_frsize,
        # On NFS the server answers, which applies root_squash.
        writable=os.access(nearest, os.W_OK | os.X_OK),
        error=error,
        mode=stat.S_IMODE(status.st_mode) if status else None,
        owner=f"{status.st_uid}:{status.st_gid}" if status else None,
        archives_owner=_archives_owner(file) if exists else None,
    )


def _archives_owner(shared_root: Path) -> str | None:
    try:
        # No link is followed: a job may have replaced the directory.
        status = (shared_root / JOBS_DIR).lstat()
    except OSError:
        return None
    return f"{status.st_uid}:{status.st_gid}"


def _silent_path(root: Path, path: str, timeout_seconds: float) -> PathState:
    mount = _read_mount(root, path)
    error = f"{mount.source or path} does not answer within {timeout_seconds:g} s"
    return PathState(path, False, mount.mount_point, mount.fstype, mount.source, mount.options, 0, False, error)


def _read_mount(root: Path, path: str) -> Mount:
    mounts = parse_mountinfo(read_text(root / "proc/self/mountinfo"))
    return mount_of(path, mounts) or Mount("", "", "", [])
