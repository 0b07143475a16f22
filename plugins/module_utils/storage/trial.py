# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directory of a trial on the shared root, and what each machine writes and reads there."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

# Nodes and jobs may write to "user"; before the first cluster_up, it does not exist.
PLACES = ("user", ".")
PREFIX = ".argus-verl-trial-"
TOKEN = re.compile("[0-9a-f]{16,64}")
# A host of the inventory, as a file name.
UNSAFE = re.compile(r"[^A-Za-z0-9_-]")
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe of this name must not hold up a reader.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CONTENT_BYTES = 256
SYNC_BYTES, SYNCS, SYNC_SECONDS = 4096, 100, 5.0
# A trial that was interrupted is removed by a later one.
OLD_SECONDS = 3600.0


class TrialError(Exception):
    """The trial is not possible; the message says why."""


@dataclass(frozen=True)
class Written:
    """What one machine has written.

    uid: whose process it was. seen_uid: who owns the file, as this machine sees it.
    renamed: whether a file was replaced by renaming another one.
    sync_ms: the median and the 99th percentile of writing 4 KiB through to the server, in milliseconds.
    """

    uid: int
    seen_uid: int
    renamed: bool
    sync_ms: Sequence[float]


@dataclass(frozen=True)
class Seen:
    """What a machine sees of another one's file.

    seconds: until it was there; None if it was not.
    uid: of its owner.
    right: whether the content is what the other one wrote.
    """

    seconds: float | None
    uid: int | None = None
    right: bool = False


def file_name(host: str) -> str:
    return UNSAFE.sub(lambda found: f"%{ord(found[0]):x}", host)


def content(token: str, host: str) -> bytes:
    return f"{token} {host}"[:CONTENT_BYTES].encode()


@contextlib.contextmanager
def place(shared_root: Path) -> Iterator[int]:
    """The directory in which trials have theirs: the first of those to which this process can write."""
    root = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in PLACES:
            with contextlib.suppress(OSError):
                directory = os.open(name, OPEN_DIRECTORY, dir_fd=root)
                if os.access(".", os.W_OK | os.X_OK, dir_fd=directory):
                    break
                os.close(directory)
        else:
            raise TrialError(f"user {os.geteuid()} cannot write to {shared_root}, nor to {shared_root}/{PLACES[0]}")
    finally:
        os.close(root)
    try:
        yield directory
    finally:
        os.close(directory)


@contextlib.contextmanager
def trial(shared_root: Path, token: str, create: bool = False) -> Iterator[int]:
    """The directory of a trial, which the first machine creates."""
    if not TOKEN.fullmatch(token):
        raise TrialError("the token of a trial is 16 hexadecimal digits or more")
    with place(shared_root) as above:
        if create:
            with contextlib.suppress(FileExistsError):
                os.mkdir(PREFIX + token, 0o755, dir_fd=above)
        directory = os.open(PREFIX + token, OPEN_DIRECTORY, dir_fd=above)
    try:
        yield directory
    finally:
        os.close(directory)


def write(shared_root: Path, token: str, host: str) -> Written:
    """Write the file that the other machines look for, and measure small writes."""
    with trial(shared_root, token, create=True) as directory:
        name = file_name(host)
        _create(directory, name, b"not this")
        _create(directory, f"{name}.new", content(token, host))
        os.replace(f"{name}.new", name, src_dir_fd=directory, dst_dir_fd=directory)
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        renamed = read_small(directory, name) == content(token, host)
        return Written(os.geteuid(), there.st_uid, renamed, _sync_times(directory, f"{name}.sync"))


def _create(directory: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, CREATE, 0o644, dir_fd=directory)
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_small(directory: int, name: str) -> bytes:
    descriptor = os.open(name, READ, dir_fd=directory)
    try:
        return os.read(descriptor, CONTENT_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def _sync_times(directory: int, name: str) -> list[float]:
    descriptor = os.open(name, CREATE, 0o644, dir_fd=directory)
    taken: list[float] = []
    end = time.monotonic() + SYNC_SECONDS
    try:
        while len(taken) < SYNCS and time.monotonic() < end:
            begin = time.monotonic()
            os.pwrite(descriptor, os.urandom(SYNC_BYTES), SYNC_BYTES * len(taken))
            os.fsync(descriptor)
            taken.append(1000 * (time.monotonic() - begin))
    finally:
        os.close(descriptor)
    return [round(median(taken), 3), round(percentile(taken, 0.99), 3)]


def percentile(values: Iterable[float], part: float) -> float:
    """The smallest value that is not below this part of the values."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(part * 100) // 100) - 1)]


def look(shared_root: Path, token: str, others: Iterable[str], seconds: float) -> dict[str, Seen]:
    """Look for the files of other machines, until all are there or the time is over."""
    begin = time.monotonic()
    missing = list(others)
    found: dict[str, Seen] = {}
    while True:
        # Opened again each time: NFS then asks the server whether the directory has changed.
        with contextlib.suppress(FileNotFoundError), trial(shared_root, token) as directory:
            for host in missing:
                seen = _look_once(directory, token, host, time.monotonic() - begin)
                if seen:
                    found[host] = seen
        missing = [host for host in missing if host not in found]
        if not missing or time.monotonic() - begin >= seconds:
            return {**found, **{host: Seen(None) for host in missing}}
        time.sleep(0.2)


def _look_once(directory: int, token: str, host: str, waited: float) -> Seen | None:
    try:
        there = os.stat(file_name(host), dir_fd=directory, follow_symlinks=False)
        right = read_small(directory, file_name(host)) == content(token, host)
    except FileNotFoundError:
        return None
    except OSError:
        # A link, or a file that this user may not read.
        return Seen(round(waited, 3), None, False)
    return Seen(round(waited, 3), there.st_uid, right)


def remove(shared_root: Path, token: str) -> None:
    """Remove the trial, and those that were interrupted long ago."""
    with place(shared_root) as above:
        for name in os.listdir(above):
            if name == PREFIX + token or (name.startswith(PREFIX) and _is_old(above, name)):
                _remove(above, name)


def _is_old(above: int, name: str) -> bool:
    try:
        there = os.stat(name, dir_fd=above, follow_symlinks=False)
    except OSError:
        return False
    return stat.S_ISDIR(there.st_mode) and time.time() - there.st_mtime > OLD_SECONDS


def _remove(above: int, name: str) -> None:
    # Several machines remove the same one at the same time.
    with contextlib.suppress(OSError):
        directory = os.open(name, OPEN_DIRECTORY, dir_fd=above)
        try:
            for entry in os.listdir(directory):
                with contextlib.suppress(OSError):
                    os.unlink(entry, dir_fd=directory)
        finally:
            os.close(directory)
        os.rmdir(name, dir_fd=above)
