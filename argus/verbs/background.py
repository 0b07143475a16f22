# SPDX-License-Identifier: Apache-2.0
"""Lets a verb go on in the background: a child process writes its answer to a file, which later calls read.

A long verb need not hold the connection of its caller: a call returns a reference to the answer, and further calls with
that reference ask for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from ..jobs.services import OperationError

# The directory of a child, in the directory for temporary files.
ANSWER_PREFIX = "argus-verb-"
# The file in it that is the standard output of the child, which holds a lock on it as long as it lives.
ANSWER = "answer"
# The time for which a call waits for the answer, and the interval of its checks.
MOMENT_SECONDS, LOOK_SECONDS = 5.0, 0.05
MAX_DESCRIPTORS = 1 << 16


class EndedError(Exception):
    """A child has ended without an answer, as if it was killed."""


def begin_background() -> str:
    """Fork. In the caller, return the reference to the child's answer; in the child, return ""."""
    directory = tempfile.mkdtemp(prefix=ANSWER_PREFIX)
    answer = os.open(Path(directory, ANSWER), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(answer, fcntl.LOCK_EX)
    if os.fork():
        os.close(answer)
        return directory
    os.setsid()
    devnull = os.open(os.devnull, os.O_RDWR)
    for source, target in ((devnull, 0), (answer, 1), (devnull, 2)):
        os.dup2(source, target)
    # A reader of an inherited pipe would wait for this child.
    os.closerange(3, MAX_DESCRIPTORS)
    return ""


def background_answer(reference: str) -> dict[str, Any] | None:
    """Read the answer of a child, and remove its file; None if the child goes on. Raises EndedError, OperationError."""
    directory = Path(reference)
    if directory.parent != Path(tempfile.gettempdir()) or not directory.name.startswith(ANSWER_PREFIX):
        raise OperationError(f"{reference!r} is not a reference to an answer")
    try:
        with (directory / ANSWER).open("rb") as file:
            if not is_unlocked_soon(file.fileno()):
                return None
            text = file.read()
        shutil.rmtree(directory, ignore_errors=True)
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise EndedError from error


def is_unlocked_soon(answer: int) -> bool:
    """Whether the child that holds the lock on an answer has ended, or ends within MOMENT_SECONDS."""
    deadline = time.monotonic() + MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(answer, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
        time.sleep(LOOK_SECONDS)
