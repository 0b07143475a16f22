# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mounts: a pure parser of the kernel's list, and the state of a path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mount:
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]


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
        point, own = before.split(" ")[4:6]
        fstype, source, shared = after.split(" ", 2)
        # A mount is read-only when either the mount or the file system under it is.
        options = [*own.split(","), *shared.strip().split(",")]
        access = "ro" if "ro" in options else "rw"
        rest = dict.fromkeys(option for option in options if option not in ("ro", "rw"))
        mounts.append(Mount(_unescape(point), fstype, _unescape(source), [access, *map(_unescape, rest)]))
    return mounts


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds a path; of two on one mount point, the later hides the earlier."""
    found: Mount | None = None
    for mount in mounts:
        below = mount.mount_point.rstrip("/") + "/"
        if f"{path}/".startswith(below) and (found is None or len(mount.mount_point) >= len(found.mount_point)):
            found = mount
    return found


@dataclass(frozen=True)
class PathState:
    """The mount that holds a path, and its space.

    For a path that does not exist, mount, space and writable are those of its nearest parent.
    error: why the path cannot be read, as with a file server that does not answer.
    mode: of the path; None if it does not exist.
    archives_owner: the owner of the directory of job archives in it, as uid:gid; None without one.
    """

    path: str
    exists: bool
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]
    free_bytes: int
    total_bytes: int
    writable: bool
    error: str | None = None
    mode: int | None = None
    archives_owner: str | None = None
