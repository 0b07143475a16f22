# SPDX-License-Identifier: Apache-2.0
"""Writes files that others read at the same time, in directories where a job may have put something in the way."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path

# Members of the nodes' group may read archives, others may not.
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
MAX_LOCK_ATTEMPTS = 50


def make_directory(path: Path) -> None:
    """Make a directory and those above it, if they do not exist. Raises OSError."""
    if not path.is_dir():
        make_directory(path.parent)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Replace a file, completely or not at all. durable: wait until it is on the disk. Raises OSError."""
    make_directory(path.parent)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            # The umask may have removed permissions.
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        # Even if the temporary file cannot be removed, the first error is raised.
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


@contextlib.contextmanager
def open_for_append(path: Path) -> Iterator[int]:
    """A descriptor that appends to a regular file, which is created if need be. Raises OSError."""
    make_directory(path.parent)
    # Without O_NONBLOCK, opening a FIFO waits for a reader for ever.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        yield descriptor
    finally:
        os.close(descriptor)


def lock_briefly(descriptor: int) -> None:
    """Lock a file until it is closed. Without the lock after a second, go on: a job may hold it for ever."""
    for _attempt in range(MAX_LOCK_ATTEMPTS):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1 / MAX_LOCK_ATTEMPTS)
        except OSError:
            return None
    return None


def append(path: Path, text: str) -> None:
    """Append to a file in one write, so that lines of two writers do not mix. Raises OSError."""
    with open_for_append(path) as descriptor:
        # Without a lock, NFS would append at the end that this machine remembers, over lines of other machines.
        lock_briefly(descriptor)
        size = os.fstat(descriptor).st_size
        data = text.encode()
        # An earlier writer had no space for the end of its line.
        if data and size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]
