# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories under the shared root that are made once: whole or not at all, each with its manifest."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import operator
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from ..text import size_text
from .errors import StagingError

A = TypeVar("A")
B = TypeVar("B")
# For what reads or writes much.
THREADS = 4
# For calls on a network file system, which wait more than they work; on a local disk one takes 0.02 to 0.05 ms.
CALLS = 8
ALONE_SECONDS, SLOW_SECONDS = 0.005, 0.0002
# Of a file that somebody else removed, NFS may say that its handle is stale.
GONE = (errno.ENOENT, errno.ESTALE)


def check_space(directory: Path, size: int) -> None:
    """Whether `size` further bytes fit where a directory is, or will be."""
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    if size > free:
        raise StagingError(
            directory,
            f"has {size_text(free)} free, and {size_text(size)} are needed.",
            "Make room: stage_gc.yml removes snapshots that nobody uses, staged.yml shows what is there.",
        )


def each(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """The results for all items, in their order.

    Threads help where calls wait, on a network file system or for a large file; on a local disk they would only get in
    each other's way. So one begins, and the others join when it is slow.
    """
    results: list[Any] = [None] * len(items)
    # Taking the next one is atomic.
    places = iter(range(len(items)))
    over = threading.Event()

    def work() -> None:
        for place in places:
            results[place] = function(items[place])

    def join() -> None:
        if over.wait(ALONE_SECONDS):
            return
        done = len(items) - operator.length_hint(places)
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
    """The relative paths of all files, of links and of what is no directory either, below a directory."""
    return (name for name, _entry in entries_below(directory, lambda _name: False))


def entries_below(directory: Path, leave: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """What is no directory below a directory, with its relative path; `leave`: files and directories not to look at."""

    def scan(prefix: str) -> tuple[list[tuple[str, os.DirEntry[str]]], list[str]]:
        files, directories = [], []
        with os.scandir(directory / prefix) as entries:
            for entry in entries:
                if leave(entry.name):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    directories.append(f"{prefix}{entry.name}/")
                else:
                    files.append((prefix + entry.name, entry))
        return files, directories

    level = [""]
    while level:
        scanned = each(scan, level)
        level = []
        for files, directories in scanned:
            yield from files
            level += directories


def directories_of(names: Iterable[str]) -> list[str]:
    """The directories in which files lie, by relative paths; the outer ones come first."""
    found: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            parent = parent.rpartition("/")[0]
    return sorted(found, key=lambda path: (path.count("/"), path))


def file_sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_litter(name: str) -> bool:
    """What tools leave in a source tree, and what differs from one import to the next."""
    return any(part in (".git", "__pycache__") or part.endswith((".pyc", ".egg-info")) for part in name.split("/"))


def keep_time(path: Path, entry: Mapping[str, Any]) -> None:
    """A file that looks as its manifest says need not be read again."""
    time_ns = entry.get("mtime_ns", time.time_ns())
    os.utime(path, ns=(time_ns, time_ns))


@contextlib.contextmanager
def writable(directory: Path) -> Iterator[None]:
    """Directories that are read-only for their owner too, for the time of a change."""
    mode = directory.stat().st_mode
    directory.chmod(mode | 0o200)
    try:
        yield
    finally:
        directory.chmod(mode)


def sync_all(directory: Path) -> None:
    """Bring a file system to the disk: a rename must not survive a power cut that what is renamed does not."""
    # One call for thousands of files; Python has none for a single file system.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(descriptor)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot do this for a directory, and then do not need it.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Remove one of our own directories, which may be read-only already; one of another user stays, and what a link
    points at."""
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    for parent, _dummy, _dummy in os.walk(directory):
        try:
            Path(parent).chmod(0o700)
        except OSError:
            return
    shutil.rmtree(directory, ignore_errors=True)
