# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes of a machine, from /proc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..argus.common.node_process import MARK
from ..network.interfaces import read

# Docker, Podman, containerd and CRI-O name a container's cgroup after its id, with words of their own around it.
CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
NAME_LENGTH = 100


@dataclass(frozen=True)
class Process:
    """A process. container: the id of the one that it runs in, or empty. memory_mib: what it has of a GPU.

    of_node: whether it is of a node without a container.
    """

    pid: int
    name: str
    state: str = ""
    container: str = ""
    memory_mib: int = 0
    of_node: bool = False

    def __str__(self) -> str:
        return f"{self.name} (pid {self.pid}{f', container {self.container[:12]}' if self.container else ''})"


def processes(root: Path) -> Iterator[Process]:
    """All processes, without what `placed` adds."""
    for directory in sorted(root.glob("proc/[0-9]*")):
        # Such as "1 (name with (brackets)) S 0 1 …".
        before, bracket, after = read(directory / "stat").rpartition(")")
        if bracket and after.split():
            yield Process(int(directory.name), before.partition("(")[2][:NAME_LENGTH], after.split()[0])


def placed(root: Path, process: Process) -> Process:
    """The process with its container or node. Only its user and root can see that it is of a node."""
    ids = CONTAINER.findall(read(root / f"proc/{process.pid}/cgroup"))
    environment = read(root / f"proc/{process.pid}/environ").split("\0")
    of_node = any(each.startswith(f"{MARK}=") for each in environment)
    return replace(process, container=str(ids[-1]) if ids else "", of_node=of_node)
