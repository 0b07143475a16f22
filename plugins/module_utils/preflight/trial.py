# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A trial of the shared root: what each machine writes, and what it sees, locks and measures of the others.

All machines meet in a directory with a random name. Everything here runs as the user of the nodes. For the module
shared_root_trial.
"""

from __future__ import annotations

import errno
import fcntl
import io
import mmap
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import quote

# Nodes and jobs may write to "user"; before the first cluster_up, it does not exist.
PLACES = ("user", ".")
PREFIX = ".argus-verl-trial-"
TOKEN = re.compile("[0-9a-f]{16,64}")
CONTENT_BYTES = 256
SYNC_BYTES, SYNCS, SYNC_SECONDS = 4096, 100, 5.0
# NFS may remember for a minute that there is no such file.
LOOK_SECONDS = 70.0
# Both are in use: flock by staging and jobs, fcntl by SQLite and by what datasets and Hugging Face download.
LOCKS: dict[str, Callable[[int, int], Any]] = {"flock": fcntl.flock, "fcntl": fcntl.lockf}
LOCK_SECONDS = 10
MIB = 1 << 20
# A very slow file system must not take an hour.
LIMIT_SECONDS = 60.0
# A trial that was interrupted is removed by a later one.
OLD_SECONDS = 3600.0
# More than a module has open.
OPEN_FILES = 1024


class TrialError(Exception):
    """The trial is not possible; the message says why."""


class Trial:
    """What one machine does. hosts: all machines, in their order; the first one holds the locks."""

    def __init__(self, shared_root: Path, token: str, host: str, hosts: Sequence[str]) -> None:
        if not TOKEN.fullmatch(token):
            raise TrialError("the token of a trial is 16 hexadecimal digits or more")
        places = [shared_root / name for name in PLACES]
        place = next((each for each in places if os.access(each, os.W_OK | os.X_OK)), None)
        if place is None:
            raise TrialError(f"user {os.geteuid()} can write neither there nor to its directory {PLACES[0]}")
        self._directory = place / f"{PREFIX}{token}"
        self._token, self._host, self._hosts = token, host, hosts

    def _file(self, host: str, kind: str) -> Path:
        return self._directory / f"{quote(host, safe='')}.{kind}"

    def _content(self, host: str) -> bytes:
        return f"{self._token} {host}"[:CONTENT_BYTES].encode()

    def written(self) -> dict[str, Any]:
        """Write the file that the other machines look for, measure small writes, and hold the locks."""
        self._directory.mkdir(exist_ok=True)
        file, new = self._file(self._host, "host"), self._file(self._host, "new")
        for path, content in ((file, b"not this"), (new, self._content(self._host))):
            with path.open("xb") as opened:
                opened.write(content)
        new.replace(file)
        holds = {"locks": self._hold(300 + 30 * len(self._hosts))} if self._host == self._hosts[0] else {}
        return {
            "uid": os.geteuid(),
            "seen_uid": file.stat().st_uid,
            "renamed": _content(file) == self._content(self._host),
            "sync_ms": _sync_times(self._file(self._host, "sync")),
            **holds,
        }

    def measured(self, mib: int) -> dict[str, Any]:
        """Look for the files of all others, try to get the locks, and measure writing and reading."""
        index = self._hosts.index(self._host)
        seen = self._look(LOOK_SECONDS)
        locks = self._contend() if index else {}
        rates: dict[str, dict[str, Any] | None] = {"write": _write_rate(self._file(self._host, "data"), mib)}
        # A file that this machine has not in its cache. With fewer forks than machines, the next ones have not begun.
        other = self._hosts[index - 1 if index else min(1, len(self._hosts) - 1)]
        if other == self._host or seen[other]["right"]:
            rates["read"] = _read_rate(self._file(other, "data"), mib)
        return {"seen": seen, "locks": locks, "rates": {kind: rate for kind, rate in rates.items() if rate}}

    def removed(self) -> dict[str, Any]:
        """Remove the trial, and those that were interrupted long ago. The holder of the locks ends without its file."""
        for directory in self._directory.parent.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if directory != self._directory and time.time() - directory.stat().st_mtime > OLD_SECONDS:
                    shutil.rmtree(directory, ignore_errors=True)
        for _attempt in range(20):
            # On NFS, a file that is still open keeps its directory.
            shutil.rmtree(self._directory, ignore_errors=True)
            if not self._directory.exists():
                break
            time.sleep(0.2)
        return {}

    def _look(self, seconds: float) -> dict[str, Any]:
        """By host, after how many seconds its file was there, its owner, and whether the content is right."""
        begin = time.monotonic()
        missing = [host for host in self._hosts if host != self._host]
        seen: dict[str, Any] = {}
        while missing and time.monotonic() - begin < seconds:
            with suppress(OSError):
                # The directory is opened each time: NFS then asks the server whether it has changed.
                names = {path.name for path in self._directory.iterdir()}
                for host in [host for host in missing if self._file(host, "host").name in names]:
                    seen[host] = self._seen(host, round(time.monotonic() - begin, 3))
                    missing.remove(host)
            if missing:
                time.sleep(0.2)
        return {**seen, **{host: {"seconds": None, "uid": None, "right": False} for host in missing}}

    def _seen(self, host: str, waited: float) -> dict[str, Any]:
        try:
            file = self._file(host, "host")
            right = _content(file) == self._content(host)
            return {"seconds": waited, "uid": file.stat().st_uid, "right": right}
        except OSError:
            # This user may not read it.
            return {"seconds": waited, "uid": None, "right": False}

    def _lock_file(self, kind: str) -> Path:
        return self._directory / f"lock-{kind}"

    def _hold(self, seconds: int) -> list[str]:
        """Hold both kinds of locks in a process of its own, until their files are gone; return those that it got."""
        reading, writing = os.pipe()
        if not os.fork():
            # Whatever happens, the child must not return into the code of its parent.
            try:
                # Locks of fcntl belong to a process, and are not inherited.
                files = {kind: os.open(self._lock_file(kind), os.O_RDWR | os.O_CREAT, 0o644) for kind in LOCKS}
                got = [kind for kind, file in files.items() if _try_lock(LOCKS[kind], file) == "free"]
                os.write(writing, " ".join(got).encode())
                _leave(keep=set(files.values()))
                end = time.monotonic() + seconds
                while time.monotonic() < end and self._lock_file("flock").exists():
                    time.sleep(0.1)
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            return pipe.read().decode().split()

    def _contend(self) -> dict[str, str]:
        """By kind, "held" if another process has it, as it should be, "free" if this one got it, or "unsupported"."""
        states = {}
        for kind, call in LOCKS.items():
            # Without the file, which is a finding of its own, nothing is known.
            with suppress(OSError):
                file = os.open(self._lock_file(kind), os.O_RDWR)
                states[kind] = _try_lock(call, file)
                os.close(file)
        return states


def _opened(file: Path) -> io.FileIO:
    # A pipe of this name must not hold up a reader.
    return io.FileIO(os.open(file, os.O_RDONLY | os.O_NONBLOCK))


def _content(file: Path) -> bytes:
    with _opened(file) as opened:
        return opened.read(CONTENT_BYTES) or b""


def _sync_times(file: Path) -> list[float]:
    """The median and the 99th percentile of writing 4 KiB through to the server, in milliseconds."""
    taken: list[float] = []
    end = time.monotonic() + SYNC_SECONDS
    with file.open("xb", buffering=0) as opened:
        while len(taken) < SYNCS and time.monotonic() < end:
            begin = time.monotonic()
            opened.write(os.urandom(SYNC_BYTES))
            os.fsync(opened.fileno())
            taken.append(1000 * (time.monotonic() - begin))
    return [round(median(taken), 3), round(sorted(taken)[(len(taken) * 99 - 1) // 100], 3)]


def _try_lock(call: Callable[[int, int], Any], file: int) -> str:
    """Try once. A server without a lock manager may not answer at all: a signal ends the call."""
    signal.signal(signal.SIGALRM, _interrupt)
    signal.alarm(LOCK_SECONDS)
    try:
        call(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return "held" if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else "unsupported"
    finally:
        signal.alarm(0)
    return "free"


def _interrupt(_number: int, _frame: object) -> None:
    raise TimeoutError(errno.ETIMEDOUT, "no answer from the lock manager")


def _leave(keep: set[int]) -> None:
    """Outlive the caller: Ansible and SSH wait until their pipes are closed."""
    os.setsid()
    # Without /proc, which is not below the shared root.
    for descriptor in range(OPEN_FILES):
        if descriptor not in keep:
            with suppress(OSError):
                os.close(descriptor)


def _write_rate(path: Path, mib: int) -> dict[str, Any]:
    with path.open("xb", buffering=0) as file:
        direct = _past_the_cache(file.fileno())
        # Zeros would be compressed or left out by some file systems; the buffer is aligned for O_DIRECT.
        block = mmap.mmap(-1, MIB)
        block.write(os.urandom(MIB))
        begin, size = time.time(), 0
        while size < mib * MIB and time.time() - begin < LIMIT_SECONDS:
            size += os.pwrite(file.fileno(), block, size)
        os.fsync(file.fileno())
    return {"size": size, "begin": begin, "end": time.time(), "direct": direct}


def _read_rate(path: Path, mib: int) -> dict[str, Any] | None:
    """Read the file of another machine as soon as it is whole; None if that machine wrote nothing."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not _is_whole(path, mib * MIB) and time.monotonic() < deadline:
        time.sleep(0.2)
    with suppress(FileNotFoundError), _opened(path) as file:
        direct = _past_the_cache(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        block = mmap.mmap(-1, MIB)
        begin, size = time.time(), 0
        while size < mib * MIB and time.time() - begin < LIMIT_SECONDS:
            count = os.preadv(file.fileno(), [block], size)
            if not count:
                break
            size += count
        return {"size": size, "begin": begin, "end": time.time(), "direct": direct} if size else None
    return None


def _is_whole(path: Path, size: int) -> bool:
    """The file is opened: NFS then asks the server for the size."""
    with suppress(OSError), _opened(path) as file:
        return os.fstat(file.fileno()).st_size >= size
    return False


def _past_the_cache(file: int) -> bool:
    """Leave out the cache of this machine, where the file system can; tmpfs cannot before Linux 6.5."""
    try:
        fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True
