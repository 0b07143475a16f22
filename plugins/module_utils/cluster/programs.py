# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs that may hang for ever."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from .engine import NOT_INSTALLED, TIMED_OUT

# The PATH of a session over SSH often lacks these, where distributions put ibdev2netdev.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
# How long a killed program has to give back its output; one that hangs in the kernel never does.
KILLED_SECONDS = 0.5


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}", "LC_ALL": "C"}


def run_program(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr; the code is 127 when the program does not exist, 124 after a timeout.

    A program in state D cannot be killed. Its end is not waited for.
    """
    try:
        program = subprocess.Popen(
            argv,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            # With the programs that it starts, it can be killed as a group.
            start_new_session=True,
        )
    except FileNotFoundError:
        return NOT_INSTALLED, "", f"{argv[0]}: not found"
    except OSError as error:
        # With a directory on PATH that this user cannot read, as after su, the kernel denies what does not exist.
        name, path = argv[0], environment()["PATH"]
        if isinstance(error, PermissionError) and "/" not in name and shutil.which(name, path=path) is None:
            return NOT_INSTALLED, "", f"{argv[0]}: not found"
        return 126, "", str(error)
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _leave(program)
        return TIMED_OUT, "", f"no answer within {seconds:.0f} s"
    return program.returncode, out, err


def _leave(program: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        program.communicate(timeout=KILLED_SECONDS)
    for pipe in (program.stdout, program.stderr):
        if pipe:
            pipe.close()
