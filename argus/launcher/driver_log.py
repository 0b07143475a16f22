# SPDX-License-Identifier: Apache-2.0
"""Writes the output of an attempt without secrets: to the driver's log, ``logs/driver.log`` and its parts, and its
beginning to Ray's own log. Helps to record the end of the attempt while the shared root is full or read-only.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import IO, TypeVar

from ..archive.failures import Failure
from ..hooks.redact import Redactor
from ..io.reading import UnreadableError, parse_json
from ..io.schema import MalformedError, json_text, parse
from .log_scan import ProgressScan

PART_BYTES = 64 << 20
# How many parts are kept: the first, which shows how the job began, and the newest of the others.
MAX_PARTS = 16
# The size of the log's end that is kept in memory. The diagnosis of a failure reads it.
TAIL_BYTES = 1 << 20
# The size of the log's beginning that also goes to Ray's own log, which Ray keeps on the node without limit.
RAY_LOG_BYTES = 16 << 20


class DriverLog:
    """Appends to ``driver.log``; a part that is full becomes ``driver.log.<n>``, the oldest with the smallest number.

    A shared root that cannot be written must end neither the trainer's output nor its launcher: the end of the log
    stays in memory, and what the file lacks is written as soon as that is possible.
    """

    def __init__(self, path: Path, part_bytes: int = PART_BYTES) -> None:
        self.path = path
        self.part_bytes = part_bytes
        self.file = path.open("ab", buffering=0)
        # Two threads write: one copies the trainer's output, the other runs the watch.
        self.lock = threading.Lock()
        self.tail = bytearray()
        # How many bytes at the end of the log the file lacks, and why.
        self.unwritten_bytes = 0
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Add to the log. Never raises OSError."""
        with self.lock:
            self.tail += data
            self.unwritten_bytes += len(data)
            # What the file still lacks when it leaves the memory is lost.
            del self.tail[:-TAIL_BYTES]
            self._flush_pending()

    def flush_pending(self) -> int:
        """Write what the file lacks, if that is possible now; returns the number of bytes that it still lacks."""
        with self.lock:
            self._flush_pending()
            return self.unwritten_bytes

    def tail_text(self) -> str:
        """The end of the log, at most TAIL_BYTES of it, also if the file lacks it."""
        with self.lock:
            return self.tail.decode(errors="replace")

    def _flush_pending(self) -> None:
        try:
            lost = self.unwritten_bytes - len(self.tail)
            if lost > 0:
                self._append(f"\n[{lost} bytes of the log were lost: {self.problem}]\n".encode())
                self.unwritten_bytes -= lost
            while self.unwritten_bytes:
                # A file system with little space may take only a part.
                self.unwritten_bytes -= self._append(bytes(self.tail[-self.unwritten_bytes :]))
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _append(self, data: bytes) -> int:
        if self.file.tell() + len(data) > self.part_bytes and self.file.tell():
            self.rotate()
        written = self.file.write(data)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return written

    def rotate(self) -> None:
        numbers = sorted(int(part.suffix[1:]) for part in self.path.parent.glob(f"{self.path.name}.*[0-9]"))
        # An earlier rotation that could not open its next part has renamed the file already.
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.{max(numbers, default=0) + 1}"))
        full, self.file = self.file, self.path.open("ab", buffering=0)
        full.close()
        for number in numbers[1 : max(1, len(numbers) - MAX_PARTS + 2)]:
            self.path.with_name(f"{self.path.name}.{number}").unlink()


class TruncatedCopy:
    """Copies the beginning of a log to another stream: whole lines, then a line that says where the rest is."""

    def __init__(self, stream: IO[bytes], max_bytes: int, full_log: Path) -> None:
        self.stream = stream
        self.bytes_left = max_bytes
        self.full_log = full_log

    def write(self, data: bytes) -> None:
        if not self.bytes_left:
            return
        if len(data) <= self.bytes_left:
            self.bytes_left -= len(data)
        else:
            beginning = data[: self.bytes_left]
            data = beginning[: beginning.rfind(b"\n") + 1] or beginning + b"\n"
            data += f"[the rest of this log is in {self.full_log}]\n".encode()
            self.bytes_left = 0
        self.write_unlimited(data)

    def write_unlimited(self, data: bytes) -> None:
        self.stream.write(data)
        self.stream.flush()


class AttemptOutput:
    """What the launcher of an attempt and the programs that it runs print."""

    def __init__(self, driver_log: Path, secrets: Iterable[str]) -> None:
        self.log = DriverLog(driver_log)
        self.ray_log = TruncatedCopy(sys.stdout.buffer, RAY_LOG_BYTES, driver_log)
        self.redactor = Redactor(secrets)
        self.progress = ProgressScan()
        # When the trainer last printed something that shows progress.
        self.last_output_at = time.time()

    def print_line(self, line: str) -> None:
        self.write(self.redactor.mask_text(f"{line}\n").encode(errors="replace"))

    def copy(self, pipe: IO[bytes], redactor: Redactor) -> None:
        while data := os.read(pipe.fileno(), 1 << 16):
            if self.progress.shows_progress(data):
                self.last_output_at = time.time()
            self.write(redactor.feed(data))

    def write(self, data: bytes) -> None:
        """Write data that has no secrets."""
        self.log.write(data)
        # A full disk of this node must not end the copying of output: the trainer would block on its full pipe.
        with contextlib.suppress(OSError):
            self.ray_log.write(data)

    def write_to_ray_log(self, text: str) -> None:
        """Write text that the archive cannot hold, without secrets and beyond the limit of Ray's own log."""
        with contextlib.suppress(OSError):
            self.ray_log.write_unlimited(self.redactor.mask_text(text).encode(errors="replace"))


# How long a launcher tries to record the end of its attempt. After that, it prints the end to Ray's own log.
RECORD_TIMEOUT_SECONDS = 300.0
# The same after a stop request: Ray soon kills the launcher.
STOP_RECORD_TIMEOUT_SECONDS = 5.0
RETRY_INTERVAL_SECONDS = 0.5
# Begins the line in Ray's own log with the failure that the archive lacks.
END_PREFIX = "ARGUS_VERL_END="
# How many last lines of a job's message from Ray are searched. Ray shows the last 10 lines of the log; splitlines may
# make more of them, as it also splits at carriage returns.
MAX_MESSAGE_LINES = 20
Result = TypeVar("Result")


def retry_write(write: Callable[[], Result], is_stopping: Callable[[], bool], clock: ModuleType = time) -> Result:
    """Write to the archive, and try again after errors; raises the last one after RECORD_TIMEOUT_SECONDS."""
    until = clock.monotonic() + RECORD_TIMEOUT_SECONDS
    while True:
        try:
            return write()
        except (OSError, UnreadableError) as error:
            # A job may have put something else in place of a file, which will not change.
            if isinstance(error, UnreadableError) and not error.is_transient:
                raise
            if is_stopping():
                until = min(until, clock.monotonic() + STOP_RECORD_TIMEOUT_SECONDS)
            if clock.monotonic() >= until:
                raise
        # sleep() resumes after a signal (PEP 475).
        clock.sleep(RETRY_INTERVAL_SECONDS)


def format_end_line(failure: Failure | None) -> str:
    return END_PREFIX + json_text(failure)


def parse_end_line(message: str) -> Failure | None:
    """The failure in the line with END_PREFIX of a job's message from Ray; None without it. A job can print one too."""
    for line in reversed(message.splitlines()[-MAX_MESSAGE_LINES:]):
        if line.startswith(END_PREFIX):
            try:
                return parse(Failure, parse_json(line.removeprefix(END_PREFIX), "the end"))
            except (MalformedError, UnreadableError):
                return None
    return None
