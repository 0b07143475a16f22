# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that the launcher and the steward start beside a job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Protocol

from .archive import Archive

# How long a call of Ray's client may take.
RAY_CLIENT_SECONDS = 120.0


class Process(Protocol):
    """What the steward needs of a process in the background."""

    def poll(self) -> int | None: ...


class Runner(Protocol):
    """Runs the archive's copy of the launcher with one of its verbs."""

    def start(self, verb: str, *arguments: str) -> Process: ...

    def run(self, verb: str, *arguments: str, seconds: float) -> None: ...

    def run_ray_client(self, verb: str, attempt: int) -> None: ...


class LauncherRunner:
    """The Runner of a real job: each verb is a process of its own."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive

    def start(self, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start it in the background: a verb that hangs must not block the caller."""
        return self.archive.run_launcher(verb, *arguments)

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        """Run it to its end, or kill it after that time."""
        wait(self.start(verb, *arguments), seconds)

    def run_ray_client(self, verb: str, attempt: int) -> None:
        """Run a verb that needs Ray's client; its errors go to the steward's log."""
        launcher = str(self.archive.path / "config" / "launcher")
        command = [sys.executable, launcher, verb, str(self.archive.path), str(attempt)]
        with (self.archive.path / "logs" / "keeper.log").open("ab") as log:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=RAY_CLIENT_SECONDS,
                check=False,
                cwd="/",
            )


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
