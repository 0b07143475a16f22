# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs programs that may hang for ever, such as nvidia-smi with a broken driver."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

# Exit codes of a shell for a program that does not exist, and of timeout(1) for one that took too long.
NOT_INSTALLED = 127
TIMED_OUT = 124
# Distributions put ibdev2netdev there, and the PATH of a session over SSH often lacks these directories.
SBIN_DIRS = "/usr/local/sbin:/usr/sbin:/sbin"
# How long to wait for the end of a killed program. One that hangs in the kernel never ends.
KILLED_SECONDS = 0.5


def program_environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN_DIRS}", "LC_ALL": "C"}


def run_program(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr; the code is 127 if the program does not exist, and 124 after a timeout.

    seconds: the timeout. A program in state D cannot be killed, so nobody waits for its end.
    """
    try:
        program = subprocess.Popen(
            argv,
            env=program_environment(),
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
        name, path = argv[0], program_environment()["PATH"]
        if isinstance(error, PermissionError) and "/" not in name and shutil.which(name, path=path) is None:
            return NOT_INSTALLED, "", f"{argv[0]}: not found"
        return 126, "", str(error)
    try:
        out, err = program.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(program)
        return TIMED_OUT, "", f"no answer within {seconds:.0f} s"
    return program.returncode, out, err


def _kill(program: subprocess.Popen[str]) -> None:
    with suppress(OSError):
        os.killpg(program.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        program.communicate(timeout=KILLED_SECONDS)
    for pipe in (program.stdout, program.stderr):
        if pipe:
            pipe.close()
