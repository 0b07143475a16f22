# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a machine: programs with a time limit, files below one root, and all topics in processes of their own.

A process that hangs in a driver or on a dead file server cannot be killed, and a program with such a thread never ends.
Therefore a process that is late is killed and left to the kernel, without waiting for its end.
"""

from __future__ import annotations

import os
import pickle
import re
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cluster.programs import run_program
from ..cluster.supervisor import MARK

# A file of /proc or /sys is never longer; kernel logs and lists of processes come from programs.
LONGEST = 1 << 20
# How long before the end of a topic's time its last program is stopped, so that the topic can still say the rest.
SPARE_SECONDS = 1.0
# A long answer does not fit into its pipe, and waits there for us.
PIPE_SECONDS = 0.5
# Docker, Podman, containerd and CRI-O name a container's cgroup after its id, with words of their own around it.
CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
NAME_LENGTH = 100


class Output(NamedTuple):
    """What a program printed. The code is 127 for a program that does not exist, 124 for one that did not end."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        return " ".join((self.err or self.out).split())[:200] or f"exit code {self.code} without a message"


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


class Reader:
    """root: the directory that holds /proc, /sys, /dev and all paths. seconds: how long all programs may take."""

    def __init__(self, root: str | Path = "/", seconds: float = 10.0) -> None:
        self.root = Path(root)
        self._deadline = time.monotonic() + seconds - SPARE_SECONDS

    def run(self, *argv: str, seconds: float = 3600.0) -> Output:
        """Run a program; seconds is a limit of its own, below that of the topic."""
        return Output(*run_program(argv, max(0.1, min(seconds, self._deadline - time.monotonic()))))

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def text(self, path: str | Path) -> str:
        """The stripped text of a file; nothing if it cannot be read, as parts of sysfs cannot."""
        try:
            with (self.at(path) if isinstance(path, str) else path).open("rb") as file:
                return file.read(LONGEST).decode(errors="replace").strip()
        except (OSError, ValueError):
            return ""

    def paths(self, pattern: str) -> list[Path]:
        """The paths that match a pattern such as "/sys/class/drm/card*", sorted."""
        return sorted(self.root.glob(pattern.lstrip("/")))

    def processes(self) -> Iterator[Process]:
        """All processes, without what `placed` adds."""
        for directory in self.paths("/proc/[0-9]*"):
            # Such as "1 (name with (brackets)) S 0 1 …".
            before, bracket, after = self.text(directory / "stat").rpartition(")")
            if bracket and after.split():
                yield Process(int(directory.name), before.partition("(")[2][:NAME_LENGTH], after.split()[0])

    def placed(self, process: Process) -> Process:
        """The process with its container or node. Only its user and root can see that it is of a node."""
        ids = CONTAINER.findall(self.text(f"/proc/{process.pid}/cgroup"))
        environment = self.text(f"/proc/{process.pid}/environ").split("\0")
        of_node = any(each.startswith(f"{MARK}=") for each in environment)
        return replace(process, container=str(ids[-1]) if ids else "", of_node=of_node)


class _Child(NamedTuple):
    pid: int
    pipe: int
    deadline: float


class Reading:
    """Starts to read when it is created. Create it before any thread: a child of fork has no other threads."""

    def __init__(self, readings: Mapping[str, Callable[[], object]], seconds: float) -> None:
        self._children = {name: _start(read, time.monotonic() + seconds) for name, read in readings.items()}

    def answers(self) -> dict[str, dict[str, Any]]:
        """By name, {"answer": …} or {"error": why there is none}."""
        return {name: _answer(child) for name, child in self._children.items()}


def _start(read: Callable[[], object], deadline: float) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        # Whatever happens, the child must not return into the code of its parent.
        try:
            _work(read, writing)
        finally:
            os._exit(0)
    os.close(writing)
    return _Child(pid, reading, deadline)


def _work(read: Callable[[], object], writing: int) -> None:
    # For the programs that it starts.
    os.setsid()
    # Ansible waits until everyone has closed these.
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    try:
        result: dict[str, Any] = {"answer": read()}
    except Exception as error:
        result = {"error": f"{type(error).__name__}: {error}"}
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(pickle.dumps(result))


def _answer(child: _Child) -> dict[str, Any]:
    received = bytearray()
    try:
        while select.select([child.pipe], [], [], max(PIPE_SECONDS, child.deadline - time.monotonic()))[0]:
            data = os.read(child.pipe, LONGEST)
            received.extend(data)
            if not data:
                return dict(pickle.loads(received))  # noqa: S301 - the child is this program
    except (EOFError, pickle.UnpicklingError):
        return {"error": "the process that reads ended without an answer"}
    finally:
        os.close(child.pipe)
        # Its programs are in its session's process group.
        for kill in (os.killpg, os.kill):
            with suppress(OSError):
                kill(child.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child.pid, os.WNOHANG)
    return {"error": "no answer in time"}
