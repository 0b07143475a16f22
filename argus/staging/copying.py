# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies files, and notices if one changes during the copy."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from .errors import changed_meanwhile
from .files import THREADS
from .lock import Progress

CHUNK = 16 << 20
# The errors of a kernel or file system that cannot copy between two files.
CANNOT_COPY = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY, errno.EPERM)


def copy_all(source: Path, target: Path, files: Mapping[str, int], progress: Progress) -> None:
    """Copies files of these sizes, by their relative paths."""

    def copy(name: str) -> None:
        before = (source / name).stat()
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name, progress.add)
        after = (source / name).stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or after.st_size != files[name]:
            raise changed_meanwhile(source / name)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(copy, files))


def copy_file(source: Path, target: Path, count: Callable[[int], None]) -> None:
    """Copies the content of a file to a new one."""
    with source.open("rb", buffering=0) as reading, new_file(target) as writing:
        copy_content(reading, writing, count)


def new_file(target: Path | str, mode: int = 0o666) -> FileIO:
    """A file that did not exist before; nothing is ever written through a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return FileIO(os.open(target, flags, mode), "w")


def copy_content(reading: FileIO, writing: FileIO, count: Callable[[int], None]) -> None:
    """Copies content; a file system that supports it does so on its server, or by sharing the blocks."""
    try:
        while copied := os.copy_file_range(reading.fileno(), writing.fileno(), CHUNK):
            count(copied)
    except OSError as error:
        if error.errno not in CANNOT_COPY:
            raise
    # If the call failed, or reported the end at once, this copies the rest.
    while part := reading.read(CHUNK):
        write_all(writing, part)
        count(len(part))


def write_all(writing: FileIO, content: bytes) -> None:
    """Without a buffer, a single call may write only a part of what is large."""
    rest = memoryview(content)
    while rest:
        rest = rest[writing.write(rest) :]
