# SPDX-License-Identifier: Apache-2.0
"""Runs code of a job in a process of its own, with limits on time, memory and output.

The process runs as the user of all jobs and can do what a job can do, but neither hold up the check nor fill the memory
of the worker that waits for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_ANSWER_BYTES = 1 << 20
# Marks every process that the code starts, whatever session it moves to.
MARK = "ARGUS_VERL_CHECK"
# The beginning of each program. `say` adds a line to the output; everything else is discarded.
PRELUDE = """
import json, os, resource, sys
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
# Ray's workers do not search the current directory.
sys.path[:] = [path for path in sys.path if path]

def say(**values):
    print(json.dumps(values), file=answer, flush=True)

# Not the address space: CUDA reserves more of it than a machine has memory.
for limit, value in ((resource.RLIMIT_DATA, int(sys.argv[1])), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (value, value))
"""
# Reads `question`, which the caller passes.
QUESTION = "\nquestion = json.load(sys.stdin)\n"


@dataclass(frozen=True)
class ProgramOutput:
    """The lines that a program wrote. Code of a job may write anything, so types have to be checked.

    status: the exit status, negative for a signal; None after a timeout.
    """

    lines: tuple[Mapping[str, Any], ...]
    status: int | None


class ChildProcess:
    """A Python program in its own process, which runs its imports and then waits for its question."""

    def __init__(self, program: str, environment: Mapping[str, str], memory_bytes: int, imports: str = "") -> None:
        self._mark = uuid.uuid4().hex
        # Not a pipe: a process that holds its end open would delay the answer.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - close() does
        self._process = subprocess.Popen(
            # -B: directories of users may be read-only.
            [sys.executable, "-B", "-c", f"{PRELUDE}{imports}{QUESTION}{program}", str(memory_bytes)],
            env={**os.environ, **{name: str(value) for name, value in environment.items()}, MARK: self._mark},
            stdin=subprocess.PIPE,
            stdout=self._answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def answer(self, question: Mapping[str, Any], seconds: float) -> ProgramOutput:
        """The output of the program within that time. All processes that it started are ended."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(json.dumps(question, default=str).encode("utf-8", "replace"), seconds)
            status = self._process.returncode
        end_all(self._process, self._mark)
        self._answer.seek(0)
        return ProgramOutput(lines_of(self._answer.read(MAX_ANSWER_BYTES)), status)

    def close(self) -> None:
        """End a program that got no question."""
        if self._process.returncode is None:
            end_all(self._process, self._mark)
        self._answer.close()


def run_program(
    program: str, question: Mapping[str, Any], environment: Mapping[str, str], seconds: float, memory_bytes: int
) -> ProgramOutput:
    """Run a Python program, and end everything that it has started."""
    with contextlib.closing(ChildProcess(program, environment, memory_bytes)) as child:
        return child.answer(question, seconds)


def lines_of(text: bytes) -> tuple[Mapping[str, Any], ...]:
    """The mappings in the output. Other lines come from elsewhere, and the last line may be cut off."""
    mappings = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            mappings += [value] if isinstance(value, dict) else []
    return tuple(mappings)


def end_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process, its group, and those that have left the group but still have the mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # A process of another user, or one that has just ended.
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
