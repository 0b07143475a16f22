# SPDX-License-Identifier: Apache-2.0
"""Passes a job's secrets to its trainer and workers through a file, and masks them in what a worker prints.

While the job lives, they are in ``<shared_root>/jobs/.secrets/<submission_id>.json``, mode 0600: every node can read
them there, also one that joins later, and Ray never transports them.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from ..io.reading import read_mapping
from .redact import Redactor

# The variable with the path of the job's archive, set for all processes of a job.
ARCHIVE_VARIABLE = "ARGUS_VERL_ARCHIVE"
# The directory beside the archives, which the user of the nodes certainly owns.
DIRECTORY = ".secrets"


def secrets_path(archive: Path) -> Path:
    return archive.parent / DIRECTORY / f"{archive.name}.json"


def store(archive: Path, values: Mapping[str, str]) -> None:
    """Write the values to a file that only the user of the nodes can read. Raises OSError."""
    file = secrets_path(archive)
    file.parent.mkdir(mode=0o700, exist_ok=True)
    # A job may have left a file there that others can read.
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        json.dump(dict(values), stream)


def load(archive: Path) -> dict[str, str]:
    """The job's secrets; empty if it has none, or if it has ended. Raises UnreadableError."""
    try:
        return read_mapping(secrets_path(archive))
    except FileNotFoundError:
        return {}


def forget(archive: Path) -> None:
    """Remove the job's secrets, if it has any. What a job has put in place of their directory has none."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        secrets_path(archive).unlink()


class RedactedOutput(io.BufferedIOBase):
    """The binary side of a standard stream, which it writes to line by line, without secrets."""

    def __init__(self, stream: TextIO, redactor: Redactor) -> None:
        # Without a reference, Python would close it.
        self._stream = stream
        self._redactor = redactor
        # Data loaders and loggers write from threads of their own.
        self._lock = threading.RLock()
        # Some programs write to sys.stdout.buffer.raw.
        self.raw = self

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        content = bytes(data)
        with self._lock:
            self._put(self._redactor.feed(content))
        return len(content)

    def finish(self) -> None:
        with self._lock, contextlib.suppress(ValueError, OSError):
            self._put(self._redactor.finish())

    def _put(self, data: bytes) -> None:
        if data:
            self._stream.flush()
            self._stream.buffer.write(data)
            self._stream.buffer.flush()


def provide_secrets() -> None:
    """Put the job's secrets into the environment of this process, and mask them in its output. No secrets, no change.

    What native code writes to the file descriptors is not masked: a pipe in their place would lose the last words of a
    process that crashes, by which its failure is recognised.
    """
    values = load(Path(os.environ[ARCHIVE_VARIABLE]))
    if not values:
        return
    os.environ.update(values)
    for name in ("stdout", "stderr"):
        stream: TextIO = getattr(sys, name)
        output = RedactedOutput(stream, Redactor(values.values()))
        text = io.TextIOWrapper(output, stream.encoding, stream.errors, write_through=True)  # type: ignore[type-var]
        atexit.register(output.finish)
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
