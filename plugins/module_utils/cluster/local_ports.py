# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of a machine, as its kernel reports them: pure parsers of /proc."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# A line of /proc/net/tcp and tcp6: number, local address and port, remote ones, state. 0A is LISTEN.
_LISTENER = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.M)


def parse_listeners(text: str) -> set[int]:
    """Return the TCP ports on which a process listens, at any address; connections do not count."""
    return {int(port, 16) for port in _LISTENER.findall(text)}


def parse_ranges(text: str) -> list[tuple[int, int]]:
    """Parse net.ipv4.ip_local_reserved_ports, such as ``8080,20000-21999``."""
    found = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [(int(first), int(last or first)) for first, last in found]


def parse_ephemeral(text: str) -> tuple[int, int] | None:
    """Parse net.ipv4.ip_local_port_range: the first and the last port of outgoing connections."""
    numbers = text.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def given_away(
    first: int, last: int, ephemeral: Sequence[int] | None, reserved: Iterable[Sequence[int]]
) -> tuple[int, int] | None:
    """Return the first and the last port of a range that the kernel may give to an outgoing connection."""
    if not ephemeral:
        return None
    free = range(max(first, ephemeral[0]), min(last, ephemeral[1]) + 1)
    kept = {port for start, end in reserved for port in range(max(start, first), min(end, last) + 1)}
    taken = [port for port in free if port not in kept]
    return (taken[0], taken[-1]) if taken else None
