# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..text import duration, size_text
from .errors import StagingError
from .files import GONE

# What a build that was killed leaves behind. It is hidden, and its name tells whose it is.
LOCK = re.compile(r"\.(?P<name>.+)\.lock")
# How often who waits looks whether the lock is free, and how often its holder tells how far it is.
LOCK_SECONDS, PROGRESS_SECONDS = 0.2, 1.0
# A holder that is alive tells more often; on a shared root that stands still nobody does.
SILENT_SECONDS = 600.0


class Progress:
    """How far a build is, written where everybody who waits for it can read it."""

    def __init__(self, file: Path | None = None) -> None:
        self.file = file
        self.started_at = time.time()
        self.what = ""
        self.total = 0
        self.done = 0
        self.counting = threading.Lock()

    def begin(self, what: str, total: int = 0) -> None:
        """What is done now; `total` in bytes, when it is known."""
        self.what, self.total, self.done, self.started_at = what, total, 0, time.time()
        self.write()

    def add(self, size: int) -> None:
        """So many bytes more are done; from any thread."""
        with self.counting:
            self.done += size

    @contextlib.contextmanager
    def written(self) -> Iterator[None]:
        """Written every second, also while nothing can be counted: a holder that lives is heard of."""
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
        said = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "what": self.what,
            "done": self.done,
            "total": self.total,
            "started_at": self.started_at,
            "time": time.time(),
        }
        # In place: the file is the lock. Who reads half of it reads again.
        with contextlib.suppress(OSError), self.file.open("r+", encoding="utf-8") as file:
            file.write(json.dumps(said) + "\n")
            file.truncate()


def lock_file(target: Path) -> Path:
    """What is locked while a target is made; also where its progress is."""
    return target.with_name(f".{target.name}.lock")


def read_progress(target: Path) -> dict[str, Any] | None:
    """How far somebody is who stages the target now, as Progress writes it."""
    try:
        # Of what was longer the end may still be there.
        said = json.loads(lock_file(target).read_text(encoding="utf-8").partition("\n")[0])
    except (OSError, ValueError):
        return None
    return said if isinstance(said, dict) else None


def progress_line(said: Mapping[str, Any]) -> str:
    """One line of how far somebody is, from what Progress wrote."""
    parts = [f"{said['what'] or 'beginning'} on {said['host']}"]
    done, total, seconds = said["done"], said["total"], said["time"] - said["started_at"]
    if total:
        parts.append(f"{size_text(done)} of {size_text(total)} ({100 * done // total} %)")
    elif done:
        parts.append(size_text(done))
    if done and seconds > 0:
        rate = done / seconds
        parts.append(f"{size_text(rate)}/s")
        if total > done:
            parts.append(f"{duration((total - done) / rate)} left")
    return ", ".join(parts)


def is_held(target: Path) -> bool:
    """Whether somebody makes a target now; who begins in this moment waits for the next one."""
    try:
        with lock_file(target).open(encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        # What may not be read, or not be locked, is somebody's.
        return error.errno not in GONE
    return False


@contextlib.contextmanager
def locked(target: Path) -> Iterator[Progress]:
    """Hold the right to make a target, on all machines that see it; the kernel frees it when its holder dies."""
    file = lock_file(target)
    file.parent.mkdir(parents=True, exist_ok=True)
    silent_since, last = time.monotonic(), None
    while True:
        lock = file.open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            now = read_progress(target)
            if now != last:
                silent_since, last = time.monotonic(), now
            if time.monotonic() - silent_since > SILENT_SECONDS:
                holder = f"{last['host']}, process {last['pid']}" if last else "somebody"
                raise StagingError(
                    target,
                    f"is being staged by {holder}, of which nothing was heard for {SILENT_SECONDS:.0f} s.",
                    "See what that process waits for, or end it.",
                ) from None
            time.sleep(LOCK_SECONDS)
            continue
        # Whoever held it has removed the file that was opened here.
        if is_at(file, lock.fileno()):
            break
        lock.close()
    with lock:
        progress = Progress(file)
        try:
            with progress.written():
                yield progress
        finally:
            file.unlink(missing_ok=True)


def is_at(file: Path, descriptor: int) -> bool:
    """Whether what is open is what has this name now."""
    # NFS then asks its server; otherwise it answers from memory for some seconds.
    os.close(os.open(file.parent, os.O_RDONLY))
    try:
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
