# SPDX-License-Identifier: Apache-2.0
"""Runs code of a job in a child process, with limits on time, memory and output.

The child runs as the user of all jobs, and can do what a job can do. It can neither delay a check nor fill the memory
of the worker that waits for its answer.
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
# The variable that marks every process that the child starts, even one in another session.
MARK_VARIABLE = "ARGUS_VERL_CHECK"
# The beginning of each program. Only `say` adds lines to the output; whatever else the program prints is discarded.
PRELUDE = """
import json, os, resource, sys
answer = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
# Ray's workers do not search the current directory.
sys.path[:] = [path for path in sys.path if path]

def say(**values):
    print(json.dumps(values), file=answer, flush=True)

# RLIMIT_AS would be too strict: CUDA reserves more address space than a machine has memory.
for limit, value in ((resource.RLIMIT_DATA, int(sys.argv[1])), (resource.RLIMIT_CORE, 0)):
    resource.setrlimit(limit, (value, value))
"""
# Reads the question of the caller into `question`.
READ_QUESTION = "\nquestion = json.load(sys.stdin)\n"


@dataclass(frozen=True)
class ProgramOutput:
    """The output and the end of a program."""

    lines: tuple[Mapping[str, Any], ...]  # Code of a job may write anything: callers check the types
    status: int | None  # the exit status, negative for a signal; None after a timeout


class ChildProcess:
    """A Python program in a child process. It begins with its imports, and then waits for its question."""

    def __init__(self, program: str, environment: Mapping[str, str], memory_bytes: int, imports: str = "") -> None:
        self._mark = uuid.uuid4().hex
        # A file, not a pipe: a process that keeps the end of a pipe open would delay the answer.
        self._answer = tempfile.TemporaryFile()  # noqa: SIM115 - close() closes it
        self._process = subprocess.Popen(
            # -B: directories of users may be read-only.
            [sys.executable, "-B", "-c", f"{PRELUDE}{imports}{READ_QUESTION}{program}", str(memory_bytes)],
            env={**os.environ, **{name: str(value) for name, value in environment.items()}, MARK_VARIABLE: self._mark},
            stdin=subprocess.PIPE,
            stdout=self._answer,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def answer(self, question: Mapping[str, Any], seconds: float) -> ProgramOutput:
        """Ask the question, return the output of at most this time, and kill all processes of the program."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(json.dumps(question, default=str).encode("utf-8", "replace"), seconds)
            status = self._process.returncode
        kill_all(self._process, self._mark)
        self._answer.seek(0)
        return ProgramOutput(parse_lines(self._answer.read(MAX_ANSWER_BYTES)), status)

    def close(self) -> None:
        """End the program if it got no question, and remove its output."""
        if self._process.returncode is None:
            kill_all(self._process, self._mark)
        self._answer.close()


def run_program(
    program: str, question: Mapping[str, Any], environment: Mapping[str, str], seconds: float, memory_bytes: int
) -> ProgramOutput:
    """Run a Python program with a question, and end everything that it has started."""
    with contextlib.closing(ChildProcess(program, environment, memory_bytes)) as child:
        return child.answer(question, seconds)


def parse_lines(output: bytes) -> tuple[Mapping[str, Any], ...]:
    """The lines that are JSON objects. Others are not from `say`, or were cut off at the limit."""
    mappings = []
    for line in output.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            mappings += [value] if isinstance(value, dict) else []
    return tuple(mappings)


def kill_all(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process, its group, and those that have left the group but still have the mark."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        # OSError: a process of another user, or one that has just ended.
        with contextlib.suppress(OSError):
            if f"{MARK_VARIABLE}={mark}".encode() in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
