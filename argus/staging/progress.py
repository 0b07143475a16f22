# SPDX-License-Identifier: Apache-2.0
"""The progress of a process that stages an item, written to its lock file every second, and read by those that wait."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from ..common.text import duration, size_text
from ..io.schema import MalformedError, parse

PROGRESS_INTERVAL_SECONDS = 1.0
# Numbers are bytes, or seconds since the epoch.
MAX_TEXT_CHARS, MAX_NUMBER = 4096, 1 << 63


@dataclass(frozen=True)
class ProgressReport:
    """The progress at one moment, as the lock file has it."""

    # Of the process that stages the item.
    host: str
    pid: int
    step: str = ""  # what it does now; empty before the first step
    # In bytes; a total of 0 is not known.
    done: int = 0
    total: int = 0
    # When the step began, and when this was written, in seconds since the epoch.
    started_at: float = 0.0
    time: float = 0.0

    @classmethod
    def from_json(cls, value: object) -> ProgressReport | None:
        """The report in a JSON value; None if it is none, as a job may write anything. Unknown keys are ignored."""
        try:
            report = parse(cls, value)
        except MalformedError:
            return None
        texts = (report.host, report.step)
        numbers = (report.pid, report.done, report.total, report.started_at, report.time)
        is_sound = all(text.isprintable() and len(text) <= MAX_TEXT_CHARS for text in texts)
        return report if is_sound and all(0 <= number < MAX_NUMBER for number in numbers) else None

    def line(self) -> str:
        """The progress as one line of text."""
        parts = [f"{self.step or 'starting'} on {self.host}"]
        seconds = self.time - self.started_at
        if self.total:
            parts.append(f"{size_text(self.done)} of {size_text(self.total)} ({100 * self.done // self.total} %)")
        elif self.done:
            parts.append(size_text(self.done))
        if self.done and seconds > 0:
            rate = self.done / seconds
            parts.append(f"{size_text(rate)}/s")
            if self.total > self.done:
                parts.append(f"{duration((self.total - self.done) / rate)} left")
        return ", ".join(parts)


class Progress:
    """The progress of this process, written to the open lock file."""

    def __init__(self, lock: int | None = None) -> None:
        """lock: the descriptor of the lock file; None to write nothing."""
        self.lock = lock
        self.started_at = time.time()
        self.step = ""
        self.total = 0
        self.done = 0
        self.counter: Callable[[], int] | None = None
        self.done_mutex = threading.Lock()

    def begin(self, step: str, total: int = 0, counter: Callable[[], int] | None = None) -> None:
        """Starts a step. total: in bytes; 0 if unknown. counter: returns the bytes that are done, instead of `add`."""
        self.step, self.total, self.done, self.started_at, self.counter = step, total, 0, time.time(), counter
        self.write()

    def add(self, size: int) -> None:
        """Counts further bytes; any thread may call it."""
        with self.done_mutex:
            self.done += size

    @contextlib.contextmanager
    def write_heartbeats(self) -> Iterator[None]:
        """Writes the progress every second, even if nothing can be counted: it is the heartbeat of this process."""
        over = threading.Event()

        def write() -> None:
            self.write()
            while not over.wait(PROGRESS_INTERVAL_SECONDS):
                self.write()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()

    def write(self) -> None:
        if self.lock is None:
            return
        if self.counter:
            self.done = max(0, self.counter())
        times = self.started_at, time.time()
        report = ProgressReport(socket.gethostname(), os.getpid(), self.step, self.done, self.total, *times)
        line = (json.dumps(asdict(report)) + "\n").encode()
        # In place, because the file is the lock. A reader that sees half of a line reads again.
        with contextlib.suppress(OSError):
            os.pwrite(self.lock, line, 0)
            os.ftruncate(self.lock, len(line))
            # Closing any descriptor makes NFS send the line to the server, where readers on other machines look.
            os.close(os.dup(self.lock))
