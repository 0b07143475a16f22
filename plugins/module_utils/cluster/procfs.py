# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel tells in /proc of memory, ports and processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..argus.common.node_process import MARK
from ..network.interfaces import read_text

# A line of /proc/net/tcp and tcp6: number, local address and port, remote ones, state. 0A is LISTEN.
LISTENER = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.M)
# Docker, Podman, containerd and CRI-O put the id of a container, among other words, into the name of its cgroup.
CONTAINER_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MAX_NAME_CHARS = 100
RAY_PROGRAMS = ("raylet", "gcs_server")


def parse_meminfo(text: str) -> dict[str, int]:
    """Return sizes in bytes by name; entries without a unit are no sizes."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.M)}


def parse_listeners(text: str) -> set[int]:
    """Return the TCP ports on which a process listens, at any address; connections do not count."""
    return {int(port, 16) for port in LISTENER.findall(text)}


def parse_reserved_ports(text: str) -> list[tuple[int, int]]:
    """Parse net.ipv4.ip_local_reserved_ports, such as ``8080,20000-21999``."""
    matches = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [(int(first), int(last or first)) for first, last in matches]


def parse_ephemeral_range(text: str) -> tuple[int, int] | None:
    """Parse net.ipv4.ip_local_port_range: the first and the last port of outgoing connections."""
    numbers = text.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


@dataclass(frozen=True)
class Process:
    """A process of the machine, in a container or not."""

    pid: int
    name: str
    # The letter of proc_pid_stat(5), such as "S" or "D".
    state: str = ""
    # The id of the container that it runs in; empty outside of containers.
    container: str = ""
    # Memory of a GPU, if it was listed for one.
    memory_mib: int = 0
    # Whether it belongs to a node without a container.
    of_node: bool = False

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', container {self.container[:12]}' if self.container else ''})"


def list_processes(root: Path) -> Iterator[Process]:
    """List all processes, without what `with_origin` adds. root: the directory that holds /proc."""
    for directory in sorted(root.glob("proc/[0-9]*")):
        # Such as "1 (name with (brackets)) S 0 1 …".
        before, bracket, after = read_text(directory / "stat").rpartition(")")
        if bracket and after.split():
            yield Process(int(directory.name), before.partition("(")[2][:MAX_NAME_CHARS], after.split()[0])


def with_origin(root: Path, process: Process) -> Process:
    """Return the process with its container or node. Only its user and root can see that it belongs to a node."""
    ids = CONTAINER_ID.findall(read_text(root / f"proc/{process.pid}/cgroup"))
    environment = read_text(root / f"proc/{process.pid}/environ").split("\0")
    of_node = any(variable.startswith(f"{MARK}=") for variable in environment)
    return replace(process, container=str(ids[-1]) if ids else "", of_node=of_node)
