# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock of a target, which every machine that mounts the shared root respects, and the progress of its holder."""

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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..text import duration, size_text
from .errors import StagingError
from .files import GONE

LOCK = re.compile(r"\.(?P<name>.+)\.lock")
# How often a waiting process tries the lock, and how often the holder writes its progress.
LOCK_SECONDS, PROGRESS_SECONDS = 0.2, 1.0
# A holder that is alive writes more often, unless the shared root itself hangs.
SILENT_SECONDS = 600.0


@dataclass(frozen=True)
class ProgressReport:
    """The progress of a build at one moment, as the lock file and the module staged_info have it.

    what: the current step, empty before the first one. done, total: in bytes; a total of 0 is not known.
    started_at: when the step began, in seconds since the epoch. time: when this was written.
    """

    host: str
    pid: int
    what: str = ""
    done: int = 0
    total: int = 0
    started_at: float = 0.0
    time: float = 0.0

    @classmethod
    def from_json(cls, value: object) -> ProgressReport | None:
        """The report; None if the value is not one. Unknown keys are ignored."""
        if not isinstance(value, dict):
            return None
        try:
            return cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})
        except TypeError:
            return None

    def line(self) -> str:
        """The progress as one line of text."""
        parts = [f"{self.what or 'starting'} on {self.host}"]
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
    """The progress of a build, written to a file that waiting processes read."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.started_at = time.time()
        self.what = ""
        self.total = 0
        self.done = 0
        self.counting = threading.Lock()

    def begin(self, what: str, total: int = 0) -> None:
        """Starts a step; `total` in bytes, 0 if it is not known."""
        self.what, self.total, self.done, self.started_at = what, total, 0, time.time()
        self.write()

    def add(self, size: int) -> None:
        """Counts further bytes; any thread may call it."""
        with self.counting:
            self.done += size

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Writes the progress every second, even if nothing can be counted: it is the heartbeat of the holder."""
        over = threading.Event()

        def write() -> None:
            self.write()
            while not over.wait(PROGRESS_SECONDS):
                self.write()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            yield
        finally:
            over.set()
            writer.join()

    def write(self) -> None:
        if self.file is None:
            return
        report = ProgressReport(
            host=socket.gethostname(),
            pid=os.getpid(),
            what=self.what,
            done=self.done,
            total=self.total,
            started_at=self.started_at,
            time=time.time(),
        )
        # In place, because the file is the lock. A reader that sees half of it reads again.
        with contextlib.suppress(OSError), self.file.open("r+", encoding="utf-8") as file:
            file.write(json.dumps(asdict(report)) + "\n")
            file.truncate()


def lock_file(target: Path) -> Path:
    """The lock of a target, which also contains the progress of its holder."""
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> ProgressReport | None:
    """The progress of the process that stages the target now; None if there is none, or it has not written any yet."""
    try:
        # The end of a longer text may still follow.
        return ProgressReport.from_json(json.loads(lock_file(target).read_text(encoding="utf-8").partition("\n")[0]))
    except (OSError, ValueError):
        return None


def is_held(target: Path) -> bool:
    """Whether a process holds the lock of a target; one that starts in this moment tries again."""
    try:
        with lock_file(target).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        # A lock that cannot be read or locked belongs to another user.
        return error.errno not in GONE
    return False


@contextlib.contextmanager
def locked(target: Path) -> Iterator[Progress]:
    """Holds the lock of a target on all machines that mount it; the kernel frees it if the holder dies."""
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    with _wait_for_lock(target, file):
        progress = Progress(file)
        try:
            with progress.written():
                yield progress
        finally:
            file.unlink(missing_ok=True)


def _wait_for_lock(target: Path, file: Path) -> contextlib.AbstractContextManager[object]:
    """The open lock file, locked; closing it frees the lock."""
    silent_since, last = time.monotonic(), None
    while True:
        lock = file.open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            # Any other error is not of a held lock, such as ENOLCK of a file system without locks.
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            now = read_progress(target)
            if now != last:
                silent_since, last = time.monotonic(), now
            if time.monotonic() - silent_since > SILENT_SECONDS:
                raise _silent_holder(target, last) from None
            time.sleep(LOCK_SECONDS)
            continue
        # The previous holder may have removed the file that was opened here.
        if is_at(file, lock.fileno()):
            return lock
        lock.close()


def _silent_holder(target: Path, last: ProgressReport | None) -> StagingError:
    holder = f"{last.host}, process {last.pid}" if last else "another process"
    what = f"is being staged by {holder}, which has sent no heartbeat for {SILENT_SECONDS:.0f} s."
    return StagingError(target, what, "Find out what that process waits for, or end it.")


def is_at(file: Path, descriptor: int) -> bool:
    """Whether an open file is the one that has this name now."""
    # This makes NFS ask its server; otherwise it answers from its cache for some seconds.
    os.close(os.open(file.parent, os.O_RDONLY))
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
