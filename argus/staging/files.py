# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls on the file system, with few round trips on a network file system: lists, hashes, modes, sync, removal."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import operator
import os
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ..common.text import size_text
from .errors import StagingError

A = TypeVar("A")
B = TypeVar("B")
# Threads for reading and writing file content.
THREADS = 4
# Threads for calls on a network file system, which mostly wait; on a local disk a call takes 0.02 to 0.05 ms.
CALLS = 8
ALONE_SECONDS, SLOW_SECONDS = 0.005, 0.0002
# NFS can report a stale handle for a file that another client has removed.
GONE = (errno.ENOENT, errno.ESTALE)


def check_space(directory: Path, size: int) -> None:
    """Raises an error unless `size` further bytes fit on the file system of a directory, which need not exist yet."""
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    if size > free:
        raise StagingError(
            directory,
            f"has {size_text(free)} free, but {size_text(size)} are needed.",
            "Free some space: stage_gc.yml removes unused snapshots, staged.yml lists everything that is staged.",
        )


def parallel_map(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """The results for all items, in their order.

    Threads help where calls wait, on a network file system or for a large file; on a local disk they only block each
    other. So one thread starts, and the others join if it is slow.
    """
    results: list[Any] = [None] * len(items)
    # next() on it is atomic.
    indices = iter(range(len(items)))
    over = threading.Event()

    def work() -> None:
        for index in indices:
            results[index] = function(items[index])

    def join() -> None:
        if over.wait(ALONE_SECONDS):
            return
        done = len(items) - operator.length_hint(indices)
        if done * SLOW_SECONDS < ALONE_SECONDS:
            with ThreadPoolExecutor(CALLS - 1) as pool:
                for other in [pool.submit(work) for _dummy in range(CALLS - 1)]:
                    other.result()

    with ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join)
        try:
            work()
        finally:
            over.set()
        joining.result()
    return results


def files_below(directory: Path) -> Iterator[str]:
    """The relative paths of everything below a directory that is not a directory: files, links and special files."""
    return (name for name, _entry in entries_below(directory, lambda _name: False))


def entries_below(directory: Path, ignored: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """The relative path and the entry of everything below a directory that is not a directory.

    ignored: which names of files and directories to skip.
    """

    def scan(prefix: str) -> tuple[list[tuple[str, os.DirEntry[str]]], list[str]]:
        files, directories = [], []
        with os.scandir(directory / prefix) as entries:
            for entry in entries:
                if ignored(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(f"{prefix}{entry.name}/")
                else:
                    files.append((prefix + entry.name, entry))
        return files, directories

    level = [""]
    while level:
        scanned = parallel_map(scan, level)
        level = []
        for files, directories in scanned:
            yield from files
            level += directories


def directories_of(names: Iterable[str]) -> list[str]:
    """The directories that contain files with these relative paths; outer ones come first."""
    found: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found, key=lambda path: (path.count("/"), path))


def matching(pattern: str) -> list[Path]:
    """The files that a pattern matches, in the order of their names."""
    # Not pathlib's glob: that one also matches hidden files, such as those that macOS creates beside others.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))
    return [path for path in paths if not path.is_dir()]


def file_sha256(path: str, *, links: bool = True) -> str:
    """The SHA-256 of a regular file. links: whether a link is followed."""
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW)
    with open(path, "rb", opener=lambda name, _mode: os.open(name, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", path)
        return hashlib.file_digest(file, "sha256").hexdigest()


def set_mtime(path: Path, mtime_ns: int | None) -> None:
    """Sets the modification time that the manifest has, so that verification need not read the file."""
    time_ns = time.time_ns() if mtime_ns is None else mtime_ns
    os.utime(path, ns=(time_ns, time_ns))


def change_mode(path: Path | str, mode: int) -> int:
    """Sets the mode of a file or directory, never through a link; returns the mode that it had."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        before = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if before != mode:
            os.fchmod(descriptor, mode)
        return before
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Makes a read-only directory writable for its owner during a change."""
    mode = stat.S_IMODE(directory.lstat().st_mode)
    change_mode(directory, mode | 0o200)
    try:
        yield
    finally:
        change_mode(directory, mode)


def sync_all(directory: Path) -> None:
    """Writes a file system to disk: after a power failure, a rename must not be there without the renamed content."""
    # One call for thousands of files; Python has none for a single file system.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems do not support this for a directory, and do not need it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Removes one of our own directories, which may be read-only.

    A directory of another user stays, and of a link only the link itself is removed.
    """
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    # By descriptors, because a directory can be replaced by a link meanwhile; shutil.rmtree does the same.
    try:
        for _path, _directories, _files, descriptor in os.fwalk(directory):
            os.fchmod(descriptor, 0o700)
        shutil.rmtree(directory, ignore_errors=True)
    except (OSError, RecursionError):
        # Also if a job has nested directories without end.
        return
