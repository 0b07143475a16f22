# SPDX-License-Identifier: Apache-2.0
"""Reads counters of this process's control group, which in a container is that of the whole node."""

from __future__ import annotations

import contextlib
from pathlib import Path

CGROUP = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")


def oom_kills(cgroup: Path = CGROUP, mounted: Path = GROUPS) -> int:
    """The number of processes that the kernel has killed for lack of memory; 0 if unknown."""
    return read_counter("memory", ("memory.events", "memory.oom_control"), "oom_kill", cgroup, mounted)


def failed_forks(cgroup: Path = CGROUP, mounted: Path = GROUPS) -> int:
    """The number of processes and threads that the kernel has not started because of a limit; 0 if unknown."""
    return read_counter("pids", ("pids.events",), "max", cgroup, mounted)


def read_counter(controller: str, names: tuple[str, ...], key: str, cgroup: Path, mounted: Path) -> int:
    """A value in the first of these files that the control group has; 0 if there is none."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        for line in cgroup.read_text().splitlines():
            _number, controllers, path = line.split(":", 2)
            # Version 2 has one group for all controllers. In a container, its path may be that of the host.
            for directory in (mounted / controllers / path.lstrip("/"), mounted / controllers):
                for file in (directory / name for name in names):
                    if controllers in ("", controller) and file.exists():
                        return int(dict(entry.split() for entry in file.read_text().splitlines())[key])
    return 0
