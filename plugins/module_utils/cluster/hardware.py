# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory, mounts and ports: pure parsers of what the kernel prints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# A line of /proc/net/tcp and tcp6: number, local address and port, remote ones, state. 0A is LISTEN.
LISTENER = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.M)


def parse_meminfo(text: str) -> dict[str, int]:
    """Return sizes in bytes by name; entries without a unit are no sizes."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.M)}


def parse_listeners(text: str) -> set[int]:
    """Return the TCP ports on which a process listens, at any address; connections do not count."""
    return {int(port, 16) for port in LISTENER.findall(text)}


def parse_ranges(text: str) -> list[tuple[int, int]]:
    """Parse net.ipv4.ip_local_reserved_ports, such as ``8080,20000-21999``."""
    found = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [(int(first), int(last or first)) for first, last in found]


def parse_ephemeral(text: str) -> tuple[int, int] | None:
    """Parse net.ipv4.ip_local_port_range: the first and the last port of outgoing connections."""
    numbers = text.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


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
    mode, owner: of the path, the owner as uid:gid; None if it does not exist.
    archives_owner: the owner of the directory of job archives in it, as uid:gid; None without one.
    """

    path: str
    exists: bool
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]
    free_bytes: int
    writable: bool
    error: str | None = None
    mode: int | None = None
    owner: str | None = None
    archives_owner: str | None = None
