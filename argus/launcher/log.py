# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver's log: written live, in parts of limited size."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
from pathlib import Path
from typing import IO

from ..archive.archive import Archive
from ..io.reading import UnreadableError

PART_BYTES = 64 << 20
# The first part, which shows how the job began, and the newest of the others.
PARTS = 16
# How much of the end stays in memory: as much as is read to find the reason of a failure.
END_BYTES = 1 << 20
TOTAL_STEPS = re.compile(rb"[Tt]otal (?:training )?steps: (\d{1,12})\b")
# verl prints the number of steps before the first one; the log may grow to gigabytes after that.
HEAD_BYTES = 4 << 20


class Log:
    """``driver.log``; a part that is full becomes ``driver.log.<n>``, the oldest with the smallest number.

    A shared root that cannot be written must end neither the trainer's output nor its launcher: the end of the log
    stays in memory, and what the file lacks is written as soon as it can be.
    """

    def __init__(self, path: Path, part_bytes: int = PART_BYTES) -> None:
        self.path = path
        self.part_bytes = part_bytes
        self.file = path.open("ab", buffering=0)
        # The pump and the watch write, each in a thread of its own.
        self.lock = threading.Lock()
        self.end = bytearray()
        # How many bytes at the end of the log the file lacks, and why.
        self.missing = 0
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Add to the log. Never raises OSError."""
        with self.lock:
            self.end += data
            self.missing += len(data)
            # Bytes that the file still lacks when they leave the memory are lost.
            del self.end[:-END_BYTES]
            self._catch_up()

    def catch_up(self) -> int:
        """Write what the file lacks, if that is possible now; returns how many bytes it still lacks."""
        with self.lock:
            self._catch_up()
            return self.missing

    def text(self) -> str:
        with self.lock:
            return self.end.decode(errors="replace")

    def _catch_up(self) -> None:
        try:
            lost = self.missing - len(self.end)
            if lost > 0:
                self._append(f"\n[{lost} bytes of the log were lost: {self.problem}]\n".encode())
                self.missing -= lost
            while self.missing:
                # A file system with little space takes a part of it.
                self.missing -= self._append(bytes(self.end[-self.missing :]))
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
        for number in numbers[1 : max(1, len(numbers) - PARTS + 2)]:
            self.path.with_name(f"{self.path.name}.{number}").unlink()


class Copy:
    """Writes the beginning of a log to another stream as well: whole lines, then one that says where the rest is."""

    def __init__(self, stream: IO[bytes], limit: int, last: str) -> None:
        self.stream = stream
        self.left = limit
        self.last = last

    def write(self, data: bytes) -> None:
        if not self.left:
            return
        if len(data) <= self.left:
            self.left -= len(data)
        else:
            shown = data[: self.left]
            data = shown[: shown.rfind(b"\n") + 1] or shown + b"\n"
            data += f"{self.last}\n".encode()
            self.left = 0
        self.write_beyond(data)

    def write_beyond(self, data: bytes) -> None:
        """Write in any case: what the archive cannot hold."""
        self.stream.write(data)
        self.stream.flush()


def total_steps(archive: Archive) -> int | None:
    """The number of steps that the trainer will do, as it prints it; None if the log does not show it."""
    with contextlib.suppress(FileNotFoundError, UnreadableError):
        for part in list(archive.log_parts().values())[:1]:
            with archive.open(f"logs/{part.name}") as log:
                found = TOTAL_STEPS.search(log.read(HEAD_BYTES))
                return int(found[1]) if found else None
    return None


def expected_steps(archive: Archive) -> int | None:
    """The trainer's number of steps, or that for which the data is enough, as the gate has found, if that is less."""
    total = total_steps(archive)
    with contextlib.suppress(UnreadableError):
        plan = archive.plan()
        if total is not None and plan and plan.steps is not None:
            return min(total, plan.steps)
    return total
