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
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ..common.text import duration, size_text
from ..launcher.reading import UnreadableError, is_whole, parse_json, read_text
from .errors import StagingError
from .files import GONE

LOCK = re.compile(r"\.(?P<name>.+)\.lock")
# How often a waiting process tries the lock, and how often the holder writes its progress.
LOCK_SECONDS, PROGRESS_SECONDS = 0.2, 1.0
# A holder that is alive writes more often, unless the shared root itself hangs.
SILENT_SECONDS = 600.0
# A report is far smaller; its numbers are bytes, or seconds since the epoch.
REPORT_BYTES, LARGEST_TEXT, LARGEST_NUMBER = 64 << 10, 4096, 1 << 63
# A job can put anything in the place of a lock: a link to another file, or a FIFO, on which open() would wait.
SAFELY = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


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
            report = cls(**{name: value[name] for name in cls.__dataclass_fields__ if name in value})
        except TypeError:
            return None
        return report if report.is_sound() else None

    def is_sound(self) -> bool:
        """Whether all values have their types and can be shown; a job can write whatever it likes into a lock file."""
        texts = all(
            isinstance(text, str) and text.isprintable() and len(text) <= LARGEST_TEXT
            for text in (self.host, self.what)
        )
        whole = all(is_whole(number) for number in (self.pid, self.done, self.total))
        moments = all(is_whole(number) or isinstance(number, float) for number in (self.started_at, self.time))
        numbers = (self.pid, self.done, self.total, self.started_at, self.time)
        return texts and whole and moments and all(0 <= number < LARGEST_NUMBER for number in numbers)

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
    """The progress of a build, written to the open lock file, which waiting processes read."""

    def __init__(self, lock: int | None = None) -> None:
        self.lock = lock
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
        if self.lock is None:
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
        line = (json.dumps(asdict(report)) + "\n").encode()
        # In place, because the file is the lock, and through the descriptor, because another file may have its name by
        # now. A reader that sees half of it reads again.
        with contextlib.suppress(OSError):
            os.pwrite(self.lock, line, 0)
            os.ftruncate(self.lock, len(line))
            # Closing any descriptor makes NFS send it to the server, where readers on other machines look.
            os.close(os.dup(self.lock))


def lock_file(target: Path) -> Path:
    """The lock of a target, which also contains the progress of its holder."""
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> ProgressReport | None:
    """The progress of the process that stages the target now; None if there is none, or it has not written any yet."""
    file = lock_file(target)
    try:
        # The end of a longer text may still follow.
        line = read_text(file, REPORT_BYTES).partition("\n")[0]
        return ProgressReport.from_json(parse_json(line, file))
    except (OSError, UnreadableError):
        return None


def is_held(target: Path) -> bool:
    """Whether a process holds the lock of a target; one that starts in this moment tries again."""
    try:
        lock = os.open(lock_file(target), os.O_RDONLY | SAFELY)
    except OSError as error:
        # A lock that cannot be read belongs to another user. A link and a socket are no locks.
        return error.errno not in (*GONE, errno.ELOOP, errno.ENXIO)
    try:
        if stat.S_ISREG(os.fstat(lock).st_mode):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in GONE
    finally:
        os.close(lock)
    return False


@contextlib.contextmanager
def locked(target: Path) -> Iterator[Progress]:
    """Holds the lock of a target on all machines that mount it; the kernel frees it if the holder dies."""
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = _wait_for_lock(target, file)
    try:
        progress = Progress(lock)
        try:
            with progress.written():
                yield progress
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(lock)


def _wait_for_lock(target: Path, file: Path) -> int:
    """A descriptor of the locked file; closing it frees the lock."""
    silent_since, last = time.monotonic(), None
    while (lock := _try_lock(file)) is None:
        now = read_progress(target)
        if now != last:
            silent_since, last = time.monotonic(), now
        if time.monotonic() - silent_since > SILENT_SECONDS:
            raise _silent_holder(target, last) from None
        time.sleep(LOCK_SECONDS)
    return lock


def _try_lock(file: Path) -> int | None:
    """A descriptor of the locked file; None if another process holds the lock, or has removed the file meanwhile."""
    try:
        lock = open_lock(file, os.O_CREAT)
    except OSError as error:
        # NFS notices at any use of a file that another machine has removed it.
        if error.errno != errno.ESTALE:
            raise
        return None
    ours = False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous holder may have removed the file that was opened here.
        ours = is_at(file, lock)
    except OSError as error:
        # Any other error is not of a held lock, such as ENOLCK of a file system without locks.
        if error.errno not in (errno.EAGAIN, errno.EACCES, errno.ESTALE):
            raise
    finally:
        if not ours:
            os.close(lock)
    return lock if ours else None


def open_lock(file: Path, flags: int = 0) -> int:
    """A descriptor of a lock file for writing; an error if a job has put something else in its place.

    Nothing is written through a link, and not to a file that has a second name elsewhere.
    """
    try:
        lock = os.open(file, os.O_RDWR | SAFELY | flags, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise _no_lock(file, "is not a regular file") from error
        raise
    try:
        found = os.fstat(lock)
    except OSError:
        os.close(lock)
        raise
    why = ""
    if not stat.S_ISREG(found.st_mode):
        why = "is not a regular file"
    elif found.st_nlink > 1:
        why = "has a second name, so it may be another file"
    elif found.st_uid != os.geteuid():
        why = f"belongs to user id {found.st_uid}, not to user id {os.geteuid()}, which stages here"
    if why:
        os.close(lock)
        raise _no_lock(file, why)
    return lock


def _no_lock(file: Path, why: str) -> StagingError:
    return StagingError(file, f"{why}: it is no lock of staging.", "Nothing was written to it. Remove it.")


def _silent_holder(target: Path, last: ProgressReport | None) -> StagingError:
    holder = f"{last.host}, process {last.pid}" if last else "another process"
    what = f"is being staged by {holder}, which has sent no heartbeat for {SILENT_SECONDS:.0f} s."
    return StagingError(target, what, "Find out what that process waits for, or end it.")


def is_at(file: Path, descriptor: int) -> bool:
    """Whether an open file is the one that has this name now."""
    # This makes NFS ask its server; otherwise it answers from its cache for some seconds.
    os.close(os.open(file.parent, os.O_RDONLY))
    try:
        return os.path.samestat(os.fstat(descriptor), file.lstat())
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
