# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that the launcher and the steward start beside a job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Protocol

from . import writing
from .archive import KEEPER_LOG, Archive
from .program import Program

# How long a call of Ray's client may take.
RAY_CLIENT_SECONDS = 120.0


class Process(Protocol):
    """What the steward needs of a process in the background."""

    def poll(self) -> int | None: ...


class Runner(Protocol):
    """Runs the launcher with one of its verbs."""

    def start(self, verb: str, *arguments: str) -> Process: ...

    def run(self, verb: str, *arguments: str, seconds: float) -> None: ...

    def run_ray_client(self, verb: str, attempt: int) -> None: ...


class LauncherRunner:
    """The Runner of a real job: each verb is a process of its own, and runs the same code as this one."""

    def __init__(self, archive: Archive, program: Program | None = None) -> None:
        self.archive = archive
        self.program = program or Program.of_this_process()

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it in the background: a verb that hangs must not block the caller."""
        return self.program.start(self.archive, verb, *arguments)

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        """Run it to its end, or kill it after that time."""
        wait(self.start(verb, *arguments), seconds)

    def run_ray_client(self, verb: str, attempt: int) -> None:
        """Run a verb that needs Ray's client; its errors go to the steward's log."""
        arguments = self.program.arguments(self.archive, verb, str(attempt))
        log = subprocess.DEVNULL
        with contextlib.ExitStack() as stack:
            # A job may have put something else there. Its errors are lost then, but it is looked after as before.
            with contextlib.suppress(OSError):
                log = stack.enter_context(writing.appended(self.archive.path / KEEPER_LOG))
            subprocess.run(**arguments, stdout=log, stderr=log, timeout=RAY_CLIENT_SECONDS, check=False)


def kill_group(process: subprocess.Popen[bytes], signum: int) -> None:
    """Send a signal to a process that leads its own group, and to that group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that leads its own group; kill the group after that time."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_group(process, signal.SIGKILL)
        process.wait()
