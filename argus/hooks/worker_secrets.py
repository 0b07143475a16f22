# SPDX-License-Identifier: Apache-2.0
"""Gives a worker process of a trainer the job's secrets, and masks them in what it prints."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from . import secrets_file
from .redact import Redactor


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
    values = secrets_file.load(Path(os.environ[secrets_file.ARCHIVE_VARIABLE]))
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
