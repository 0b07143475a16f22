# SPDX-License-Identifier: GPL-3.0-or-later
"""The operating system of a machine: kernel, limits, /tmp, host name, and processes that hang or belong to Ray."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..network.interfaces import read_text, resolve
from .procfs import RAY_PROGRAMS, Process, list_processes, with_origin

# A process that only waits for a disk is in state D for less than this.
STUCK_SECONDS = 0.5


@dataclass(frozen=True)
class System:
    """The operating system of a machine."""

    # The kernel's release.
    kernel: str = ""
    # Hard limits, of Docker's daemon if there is one: "unlimited", a number (of files, of bytes) or empty.
    open_files: str = ""
    locked_memory: str = ""
    # The file system of /tmp; 0 if it cannot be read.
    tmp_total_bytes: int = 0
    tmp_free_bytes: int = 0
    # Processes that stay in state D: they hang in the kernel.
    stuck: tuple[Process, ...] = ()
    # Processes of RAY_PROGRAMS, in containers or not.
    ray: tuple[Process, ...] = ()
    # The path of Ray's token in the home of Ansible's user; empty without one.
    token: str = ""
    hostname: str = ""
    # The IPv4 addresses to which the machine resolves its own name.
    addresses: Sequence[str] = ()

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> System:
        lists = {name: tuple(Process(**process) for process in answer[name]) for name in ("stuck", "ray")}
        return cls(**{**answer, **lists, "addresses": tuple(answer["addresses"])})


def read_system(root: Path) -> System:
    """Read the operating system below a root directory, which holds /proc, /tmp and the home directory."""
    listed = list(list_processes(root))
    waiting = {proc.pid for proc in listed if proc.state == "D"}
    if waiting:
        time.sleep(STUCK_SECONDS)
    stuck = [proc for proc in list_processes(root) if proc.pid in waiting and proc.state == "D"] if waiting else []
    daemon = next((proc.pid for proc in listed if proc.name == "dockerd"), "self")
    # Another user may not read the limits of the daemon.
    limits = _hard_limits(root, daemon) or _hard_limits(root, "self")
    total, free = _total_and_free_bytes(root / "tmp")
    token = str(Path.home() / ".ray" / "auth_token")
    # A process that has ended (Z, X) has no container any more.
    ray = [proc for proc in listed if proc.name in RAY_PROGRAMS and proc.state not in "ZX"]
    hostname = socket.gethostname()
    return System(
        kernel=read_text(root / "proc/sys/kernel/osrelease"),
        open_files=limits.get("Max open files", ""),
        locked_memory=limits.get("Max locked memory", ""),
        tmp_total_bytes=total,
        tmp_free_bytes=free,
        stuck=tuple(stuck),
        ray=tuple(with_origin(root, proc) for proc in ray),
        token=token if os.path.lexists(root / token.lstrip("/")) else "",
        hostname=hostname,
        addresses=tuple(address for address in resolve(hostname) if ":" not in address),
    )


def _total_and_free_bytes(path: Path) -> tuple[int, int]:
    try:
        space = shutil.disk_usage(path)
    except OSError:
        return 0, 0
    return space.total, space.free


def _hard_limits(root: Path, pid: int | str) -> dict[str, str]:
    """The hard limits of a process by name, such as "Max open files"; "unlimited", or a number."""
    return dict(re.findall(r"^(Max [a-z ]+?) {2,}\S+ +(\S+)", read_text(root / f"proc/{pid}/limits"), re.M))
