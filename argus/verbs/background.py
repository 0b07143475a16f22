# SPDX-License-Identifier: GPL-3.0-or-later
"""A verb that goes on after its caller has left: a child writes the answer to a file, which later calls read."""

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

# The directory of a child, and the file in it that is its standard output, and locked as long as it lives.
PREFIX, ANSWER = "argus-verb-", "answer"
# How long a call waits for the answer, and how often it looks.
MOMENT_SECONDS, LOOK_SECONDS = 5.0, 0.05
MOST_DESCRIPTORS = 1 << 16


class EndedError(Exception):
    """A child has ended without an answer."""


def begin() -> str:
    """Go on in a child in a session of its own. Returns "" there, and in the caller the reference to its answer."""
    directory = tempfile.mkdtemp(prefix=PREFIX)
    answer = os.open(Path(directory, ANSWER), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(answer, fcntl.LOCK_EX)
    if os.fork():
        os.close(answer)
        return directory
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for source, target in ((nothing, 0), (answer, 1), (nothing, 2)):
        os.dup2(source, target)
    # Who waits for the end of an inherited pipe would wait for this child.
    os.closerange(3, MOST_DESCRIPTORS)
    return ""


def answer_of(reference: str) -> dict[str, Any] | None:
    """The answer of a child, which is removed; None if the child goes on. Raises EndedError."""
    directory = Path(reference)
    if directory.parent != Path(tempfile.gettempdir()) or not directory.name.startswith(PREFIX):
        raise OperationError(f"{reference!r} is not a reference to an answer")
    try:
        with (directory / ANSWER).open("rb") as file:
            if not has_ended(file.fileno()):
                return None
            text = file.read()
        shutil.rmtree(directory, ignore_errors=True)
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise EndedError from error


def has_ended(answer: int) -> bool:
    """Whether a child has ended, or ends within a moment."""
    end = time.monotonic() + MOMENT_SECONDS
    while True:
        try:
            fcntl.flock(answer, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > end:
                return False
        time.sleep(LOOK_SECONDS)
