# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads topics in processes of their own, all at once, each with a time limit.

A process that hangs in a driver or on a dead file server cannot be killed, and a program with such a thread never ends.
Therefore a process that is late is killed and left to the kernel, without waiting for its end.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

READ_BYTES = 1 << 16
PIPE_SECONDS = 0.5


@dataclass(frozen=True)
class Late:
    """A process that is still reading, and what it has written until now."""

    name: str
    pid: int
    pipe: int
    deadline: float
    received: bytearray = field(default_factory=bytearray)


class Apart:
    """Starts to read when it is created. Create it before any thread: a child of fork has no other threads."""

    def __init__(self, readings: Mapping[str, tuple[Callable[[], object], float]]) -> None:
        """readings: by name, what to do, and its time limit in seconds. The result is JSON."""
        self._waiting = [_start(name, read, seconds) for name, (read, seconds) in readings.items()]

    def answers(self) -> dict[str, dict[str, Any]]:
        """By name, {"answer": …} or {"error": why there is none}."""
        found: dict[str, dict[str, Any]] = {}
        # A long answer does not fit into its pipe, and waits there for us.
        soonest = time.monotonic() + PIPE_SECONDS
        waiting = {each.pipe: each for each in self._waiting}
        while waiting:
            rest = max(soonest, min(each.deadline for each in waiting.values())) - time.monotonic()
            ready, _writable, _failed = select.select(list(waiting), [], [], max(0.0, rest))
            for pipe in ready:
                data = os.read(pipe, READ_BYTES)
                waiting[pipe].received.extend(data)
                if not data:
                    done = waiting.pop(pipe)
                    found[done.name] = _result(done)
            now = time.monotonic()
            for late in [each for each in waiting.values() if max(soonest, each.deadline) <= now]:
                del waiting[late.pipe]
                found[late.name] = {"error": "no answer in time"}
                _abandon(late)
        return found


def _start(name: str, read: Callable[[], object], seconds: float) -> Late:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _child(read, writing)
    os.close(writing)
    return Late(name, child, reading, time.monotonic() + seconds)


def _child(read: Callable[[], object], writing: int) -> None:
    # Whatever happens, the child must not return into the code of its parent.
    try:
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
            pipe.write(json.dumps(result).encode())
    finally:
        os._exit(0)


def _result(done: Late) -> dict[str, Any]:
    os.close(done.pipe)
    # It has closed its pipe and is about to exit.
    with suppress(ChildProcessError):
        os.waitpid(done.pid, 0)
    try:
        found = json.loads(bytes(done.received))
    except ValueError:
        return {"error": "the process that reads ended without an answer"}
    return dict(found)


def _abandon(late: Late) -> None:
    os.close(late.pipe)
    # Its programs are in its session's process group.
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(late.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(late.pid, os.WNOHANG)
