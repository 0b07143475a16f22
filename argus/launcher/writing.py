# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write files below a directory that jobs can write to: never through a link, by descriptors of directories."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from . import reading
from .reading import UnreadableError

# Members of the nodes' group may read archives, others may not.
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
HOLD_ATTEMPTS = 50
# What write_text leaves of a file, in status.json and its like, if its process is killed.
TEMPORARY = re.compile(r"\.[a-z_]+(?:-[0-9]{1,9})?\.(?:jsonl?|txt|yaml)\.[0-9a-f]{8}")


@contextlib.contextmanager
def directory(root: Path, name: str) -> Iterator[int]:
    """A descriptor of a directory below `root`; both are created if they do not exist. Raises OSError."""
    root.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in PurePosixPath(name).parts:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, DIRECTORY_MODE, dir_fd=descriptor)
            above, descriptor = descriptor, os.open(part, reading.DIRECTORY_FLAGS, dir_fd=descriptor)
            os.close(above)
        yield descriptor
    finally:
        os.close(descriptor)


def write_text(root: Path, name: str, text: str, durable: bool = True) -> None:
    """Write a file, completely or not at all. durable: wait until it is on the disk."""
    path = PurePosixPath(name)
    temporary = f".{path.name}.{secrets.token_hex(4)}"
    with directory(root, str(path.parent)) as above:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, FILE_MODE, dir_fd=above)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path.name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            # The first error says why, also where nothing can be removed any more.
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=above)
            raise


@contextlib.contextmanager
def appended(root: Path, name: str) -> Iterator[int]:
    """A descriptor that appends to a regular file below `root`, which is created if need be. Raises OSError."""
    path = PurePosixPath(name)
    # Without O_NONBLOCK, opening a FIFO waits for a reader for ever.
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with directory(root, str(path.parent)) as above:
        descriptor = os.open(path.name, flags, FILE_MODE, dir_fd=above)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(root / name))
        yield descriptor
    finally:
        os.close(descriptor)


def hold(descriptor: int) -> None:
    """Lock a file until it is closed, but wait for it no longer than a second: a job can hold the lock as well."""
    for _attempt in range(HOLD_ATTEMPTS):
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(1 / HOLD_ATTEMPTS)
        except OSError:
            return None
    return None


def append(root: Path, name: str, text: str) -> None:
    """Append to a file in one write, so that lines of two writers do not mix. Raises OSError."""
    with appended(root, name) as descriptor:
        # NFS writes to where this machine believes the end to be.
        hold(descriptor)
        size = os.fstat(descriptor).st_size
        data = text.encode()
        # An earlier writer found too little space for its whole line.
        if data and size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data
        while data:
            data = data[os.write(descriptor, data) :]


def remove_temporary(root: Path, name: str) -> None:
    """Remove from a directory what killed processes have left of write_text. Never raises OSError."""
    with contextlib.suppress(OSError, UnreadableError), contextlib.ExitStack() as stack:
        above = reading.open_directory(root, name)
        stack.callback(os.close, above)
        for each in filter(TEMPORARY.fullmatch, reading.names_in(above)):
            if stat.S_ISREG(os.stat(each, dir_fd=above, follow_symlinks=False).st_mode):
                os.unlink(each, dir_fd=above)
