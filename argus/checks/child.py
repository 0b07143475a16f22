# SPDX-License-Identifier: Apache-2.0
"""Code and files of a job, used in a process of its own: with limits of time, memory and answer.

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

ANSWER_BYTES = 1 << 20
# Marks every process that the code starts, whatever session it moves to.
MARK = "ARGUS_VERL_CHECK"
# Begins each program. `say` adds a line to the answer, and all else is discarded.
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
# `given` is what the caller passes.
QUESTION = "\ngiven = json.load(sys.stdin)\n"


@dataclass(frozen=True)
class Answer:
    """What a program said, line by line. The code of a job may have said anything: types have to be checked.

    status: the exit status, negative for a signal; None if the time was over.
    """

    lines: tuple[Mapping[str, Any], ...]
    status: int | None


class Child:
    """A Python program in a process of its own, which has begun with its imports, and waits for its question."""

    def __init__(self, program: str, environment: Mapping[str, str], memory_bytes: int, imports: str = "") -> None:
        self._mark = uuid.uuid4().hex
        # Not a pipe: who holds its end decides when it ends.
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

    def answer(self, given: Mapping[str, Any], seconds: float) -> Answer:
        """What the program says within that time. Everything that it has started has ended then."""
        status: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(json.dumps(given, default=str).encode("utf-8", "replace"), seconds)
            status = self._process.returncode
        end_all(self._process, self._mark)
        self._answer.seek(0)
        return Answer(lines_of(self._answer.read(ANSWER_BYTES)), status)

    def close(self) -> None:
        """End a program that was asked nothing."""
        if self._process.returncode is None:
            end_all(self._process, self._mark)
        self._answer.close()


def run_program(
    program: str, given: Mapping[str, Any], environment: Mapping[str, str], seconds: float, memory_bytes: int
) -> Answer:
    """Run a Python program, and end everything that it has started."""
    with contextlib.closing(Child(program, environment, memory_bytes)) as child:
        return child.answer(given, seconds)


def lines_of(text: bytes) -> tuple[Mapping[str, Any], ...]:
    """The mappings in an answer. Other lines are none of ours, and the last one may be cut off."""
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            found += [value] if isinstance(value, dict) else []
    return tuple(found)


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
