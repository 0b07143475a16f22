# SPDX-License-Identifier: Apache-2.0
"""The lock of a target: a file beside it, locked with flock between machines, into which its holder writes progress."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..common.text import duration, size_text
from ..io.reading import UnreadableError, parse_json, read_text
from ..io.schema import MalformedError, parse
from .options import StagingError

PROGRESS_INTERVAL_SECONDS = 1.0
# Of a report, whose numbers are bytes, or seconds since the epoch.
MAX_TEXT_CHARS, MAX_NUMBER = 4096, 1 << 63


@dataclass(frozen=True)
class ProgressReport:
    """The progress at one moment, as the lock file has it."""

    host: str
    pid: int
    step: str = ""  # what the process does now; empty before the first step
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


LOCK_NAME = re.compile(r"\.(?P<name>.+)\.lock")
LOCK_RETRY_INTERVAL_SECONDS = 0.2
# A holder that is alive writes its progress more often, unless the shared root itself hangs.
HEARTBEAT_TIMEOUT_SECONDS = 600.0
# A report is far smaller.
MAX_REPORT_BYTES = 64 << 10
# The errors for a file that another machine has removed; NFS may report them at any use of it.
REMOVED_ERRNOS = (errno.ENOENT, errno.ESTALE)


def lock_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> ProgressReport | None:
    """The progress of the process that holds the lock of a target; None if there is none, or none is written yet."""
    file = lock_file(target)
    try:
        # The end of a longer text may still follow.
        line = read_text(file, MAX_REPORT_BYTES).partition("\n")[0]
        return ProgressReport.from_json(parse_json(line, file))
    except (OSError, UnreadableError):
        return None


def is_held(target: Path) -> bool:
    """Whether a process holds the lock of a target. This takes the lock for a moment; others then try again."""
    try:
        with open(lock_file(target), "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextlib.contextmanager
def hold_lock(target: Path) -> Iterator[Progress]:
    """Holds the lock of a target, and writes the yielded progress into it. The kernel frees it if the holder dies.

    Raises StagingError if another holder sends no heartbeat any more.
    """
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(wait_for_lock(target, file), "rb") as lock:
        progress = Progress(lock.fileno())
        try:
            with progress.write_heartbeats():
                yield progress
        finally:
            file.unlink(missing_ok=True)


def wait_for_lock(target: Path, file: Path) -> int:
    """Waits until the lock is free. Returns a descriptor of the locked file; closing it frees the lock."""
    silent_since, last = time.monotonic(), None
    while (lock := try_lock(file)) is None:
        report = read_progress(target)
        if report != last:
            silent_since, last = time.monotonic(), report
        if time.monotonic() - silent_since > HEARTBEAT_TIMEOUT_SECONDS:
            holder = f"{last.host}, process {last.pid}" if last else "another process"
            problem = f"is being staged by {holder}, which has sent no heartbeat for {HEARTBEAT_TIMEOUT_SECONDS:.0f} s."
            raise StagingError(target, problem, "Find out what that process waits for, or end it.")
        time.sleep(LOCK_RETRY_INTERVAL_SECONDS)
    return lock


def try_lock(file: Path) -> int | None:
    """A descriptor of the locked file; None if another process holds the lock, or has removed the file meanwhile."""
    try:
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return None
    is_ours = False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # This makes NFS ask its server for the names; otherwise it answers from its cache for some seconds.
        os.close(os.open(file.parent, os.O_RDONLY))
        # The previous holder may have removed the file that was opened here.
        is_ours = os.path.samestat(os.fstat(lock), file.lstat())
    except OSError as error:
        # Other errors do not mean that the lock is held, such as ENOLCK of a file system without locks.
        if error.errno not in (errno.EAGAIN, errno.EACCES, *REMOVED_ERRNOS):
            raise
    finally:
        if not is_ours:
            os.close(lock)
    return lock if is_ours else None
