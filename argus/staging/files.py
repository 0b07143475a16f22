# SPDX-License-Identifier: Apache-2.0
"""Helpers for files and directories: parallel access, hashes, copies, permissions, and syncing to disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import glob
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TypeVar

from ..common.text import size_text
from .lock import Progress
from .options import StagingError, changed_meanwhile

A = TypeVar("A")
B = TypeVar("B")
# Calls on a network file system mostly wait; so do reading and writing of large files.
THREADS = 8
CHUNK = 16 << 20


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
    """The results for all items, in their order."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def files_below(directory: Path, ignored: Callable[[str], bool] = lambda _name: False) -> Iterator[str]:
    """The relative paths of everything below a directory that is not a directory: files, links and special files.

    ignored: which names of files and directories to skip.
    """

    def raise_error(error: OSError) -> None:
        raise error

    for parent, directories, names in os.walk(directory, onerror=raise_error):
        linked = [name for name in directories if os.path.islink(f"{parent}/{name}")]
        directories[:] = [name for name in directories if not ignored(name)]
        prefix = os.path.relpath(parent, directory) + "/"
        yield from (f"{prefix}{name}".removeprefix("./") for name in (*linked, *names) if not ignored(name))


def matching_files(pattern: str) -> list[Path]:
    """The files that a pattern matches, in the order of their names."""
    # Not pathlib's glob: that one also matches hidden files, such as those that macOS creates beside others.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))
    return [path for path in paths if not path.is_dir()]


def file_sha256(path: Path | str, count: Callable[[int], None] = lambda _size: None) -> str:
    """The SHA-256 of a regular file."""
    digest = hashlib.sha256()
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        while part := file.read(CHUNK):
            digest.update(part)
            count(len(part))
    return digest.hexdigest()


def write_file(target: Path, content: IO[bytes]) -> str:
    """Write a new file, and return its SHA-256."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        while part := content.read(CHUNK):
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def copy_all(source: Path, target: Path, files: Mapping[str, int], progress: Progress) -> None:
    """Copies files of these sizes, by their relative paths."""

    def copy(name: str) -> None:
        before = (source / name).stat()
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name, progress.add)
        after = (source / name).stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or after.st_size != files[name]:
            raise changed_meanwhile(source / name)

    parallel_map(copy, list(files))


def copy_file(source: Path, target: Path, count: Callable[[int], None]) -> None:
    """Copies content; a file system that supports it does so on its server, or by sharing the blocks."""
    with source.open("rb", buffering=0) as reading, target.open("xb") as writing:
        # Kernels and file systems that cannot copy between two files say so with many errors.
        with contextlib.suppress(OSError):
            while copied := os.copy_file_range(reading.fileno(), writing.fileno(), CHUNK):
                count(copied)
        # If the call failed, or reported the end at once, this copies the rest.
        writing.seek(0, os.SEEK_END)
        reading.seek(writing.tell())
        while part := reading.read(CHUNK):
            writing.write(part)
            count(len(part))


def make_writable(directory: Path) -> None:
    """Gives the owner write permission for a directory and all those in it."""
    for parent, _directories, _names in os.walk(directory):
        os.chmod(parent, stat.S_IMODE(os.stat(parent).st_mode) | 0o700)


def sync_all(directory: Path) -> None:
    """Writes a file system to disk: after a power failure, a rename must not be there without the renamed content."""
    # One call for thousands of files; Python has none for a single file system.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Removes one of our own directories, which may be read-only; of a link only the link itself."""
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        make_writable(directory)
    shutil.rmtree(directory, ignore_errors=True)
