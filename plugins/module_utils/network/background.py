# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process that outlives the module that starts it, does one thing for a limited time, and can be ended by name.

Its name is its number with its start time: another process that has the number later is never ended. It ends by itself,
so that nothing remains if the playbook is interrupted. Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from .sysfs import read

PROC = Path("/proc")


@dataclass(frozen=True)
class Background:
    """A process, by its number and its start time in ticks since the machine was booted."""

    pid: int
    started: int


def start(work: Callable[[], None], keep: Collection[int], seconds: int) -> Background:
    """Start a child that does the work and exits, after `seconds` at the latest.

    keep: the descriptors that it needs. All others are closed: Ansible and SSH wait until their pipes are.
    """
    child = os.fork()
    if not child:
        try:
            os.setsid()
            # Whatever handler this process has, the child has none.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(seconds)
            close_others(keep)
            work()
        finally:
            os._exit(0)
    return Background(child, start_time(child))


def close_others(keep: Collection[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in keep and descriptor != nothing:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    for standard in range(3):
        os.dup2(nothing, standard)


def start_time(pid: int, proc: Path = PROC) -> int:
    """The start time of a process; 0 if there is none of this number."""
    # The name of a program, in parentheses, can have spaces and parentheses.
    fields = read(proc / str(pid) / "stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else 0


def end(background: Background) -> bool:
    """End the process; return whether it was there."""
    if not background.started or start_time(background.pid) != background.started:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(background.pid, signal.SIGKILL)
    return True
