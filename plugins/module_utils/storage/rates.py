# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rates of writing and reading on the shared root, past the caches of this machine where that is possible."""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

from .trial import CREATE, READ, TrialError, file_name, trial

MIB = 1 << 20
# One call of write or read: the largest that NFS sends at once.
BLOCK_BYTES = MIB
# A very slow file system must not take an hour.
LIMIT_SECONDS = 60.0
WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Rate:
    """size: in bytes. begin, end: by the clock of this machine. direct: whether its own cache was left out."""

    size: int
    begin: float
    end: float
    direct: bool

    @property
    def mib_per_second(self) -> float:
        return self.size / MIB / max(self.end - self.begin, 1e-6)


def write_rate(shared_root: Path, token: str, name: str, mib: int, start_at: float) -> Rate:
    """Write a file of this machine's, from a point in time on, and through to the server."""
    with trial(shared_root, token, create=True) as directory:
        descriptor = os.open(f"{file_name(name)}.data", CREATE, 0o644, dir_fd=directory)
        try:
            direct = _past_the_cache(descriptor)
            # Zeros would be compressed or left out by some file systems; the buffer is aligned for O_DIRECT.
            block = mmap.mmap(-1, BLOCK_BYTES)
            block.write(os.urandom(BLOCK_BYTES))
            time.sleep(max(0.0, min(start_at - time.time(), LIMIT_SECONDS)))
            begin, size = time.time(), 0
            while size < mib * MIB and time.time() - begin < LIMIT_SECONDS:
                size += os.pwrite(descriptor, block, size)
            os.fsync(descriptor)
            return Rate(size, begin, time.time(), direct)
        finally:
            os.close(descriptor)


def read_rate(shared_root: Path, token: str, name: str, mib: int) -> Rate | None:
    """Read the file that another machine writes, as soon as it is whole; None if that machine wrote nothing.

    Raises TrialError if the file is not there.
    """
    descriptor = _open_whole(shared_root, token, name, mib * MIB)
    try:
        direct = _past_the_cache(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        block = mmap.mmap(-1, BLOCK_BYTES)
        begin, size = time.time(), 0
        while size < mib * MIB and time.time() - begin < LIMIT_SECONDS:
            count = os.preadv(descriptor, [block], size)
            if not count:
                break
            size += count
        return Rate(size, begin, time.time(), direct) if size else None
    finally:
        os.close(descriptor)


def _open_whole(shared_root: Path, token: str, name: str, size: int) -> int:
    """Open a file when it has its size, or when its writer must have given up."""
    begin = time.monotonic()
    while True:
        waited = time.monotonic() - begin
        try:
            with trial(shared_root, token) as directory:
                descriptor = os.open(f"{file_name(name)}.data", READ, dir_fd=directory)
        except FileNotFoundError:
            if waited > WAIT_SECONDS:
                raise TrialError(f"the file {name} is not there") from None
        else:
            # Opened again each time: NFS then asks the server for the size.
            if os.fstat(descriptor).st_size >= size or waited > LIMIT_SECONDS + WAIT_SECONDS:
                return descriptor
            os.close(descriptor)
        time.sleep(0.2)


def _past_the_cache(descriptor: int) -> bool:
    """Leave out the cache of this machine, where the file system can; tmpfs cannot before Linux 6.5."""
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True
