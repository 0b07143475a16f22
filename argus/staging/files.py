# SPDX-License-Identifier: Apache-2.0
"""Operations on files and directory trees: space, listing, hashing, copying, permissions, syncing; parallel_map."""

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
from .options import StagingError, changed_source_error

A = TypeVar("A")
B = TypeVar("B")
# Calls on a network file system mostly wait; so do reading and writing of large files.
THREAD_COUNT = 8
CHUNK_BYTES = 16 << 20


def check_space(directory: Path, size_bytes: int) -> None:
    """Raises StagingError if so many bytes do not fit on the file system of a directory, which need not exist yet."""
    while not directory.exists():
        directory = directory.parent
    free = shutil.disk_usage(directory).free
    if size_bytes > free:
        raise StagingError(
            directory,
            f"has {size_text(free)} free, but {size_text(size_bytes)} are needed.",
            "Free some space: stage_gc.yml removes unused snapshots, staged.yml lists everything that is staged.",
        )


def parallel_map(function: Callable[[A], B], items: Sequence[A]) -> list[B]:
    """The results of a function for all items, in their order, computed by threads."""
    with ThreadPoolExecutor(THREAD_COUNT) as pool:
        return list(pool.map(function, items))


def files_below(directory: Path, is_ignored: Callable[[str], bool] = lambda _name: False) -> Iterator[str]:
    """The relative paths of everything below a directory that is not a directory: files, links and special files.

    is_ignored: tells for a name whether to skip the file, or the directory with all that is in it.
    """

    def raise_error(error: OSError) -> None:
        raise error

    for parent, directories, names in os.walk(directory, onerror=raise_error):
        linked = [name for name in directories if os.path.islink(f"{parent}/{name}")]
        directories[:] = [name for name in directories if not is_ignored(name)]
        prefix = os.path.relpath(parent, directory) + "/"
        yield from (f"{prefix}{name}".removeprefix("./") for name in (*linked, *names) if not is_ignored(name))


def matching_files(pattern: str) -> list[Path]:
    """The files that a pattern matches, in the order of their names."""
    # Not pathlib's glob: that one also matches hidden files, such as those that macOS creates beside others.
    paths = map(Path, sorted(glob.glob(pattern, recursive=True)))
    return [path for path in paths if not path.is_dir()]


def file_sha256(path: Path | str, on_bytes: Callable[[int], None] = lambda _size: None) -> str:
    """The SHA-256 of a regular file. on_bytes: called with the number of bytes of each part that was read."""
    digest = hashlib.sha256()
    # Without O_NONBLOCK, opening a FIFO would wait for a writer.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
        while part := file.read(CHUNK_BYTES):
            digest.update(part)
            on_bytes(len(part))
    return digest.hexdigest()


def write_file(target: Path, content: IO[bytes]) -> str:
    """Writes a new file, and returns its SHA-256."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        while part := content.read(CHUNK_BYTES):
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def copy_files(source: Path, target: Path, files: Mapping[str, int], progress: Progress) -> None:
    """Copies files. Raises StagingError if one changes meanwhile. files: their sizes, by path relative to source."""

    def copy(name: str) -> None:
        before = (source / name).stat()
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name, progress.add)
        after = (source / name).stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or after.st_size != files[name]:
            raise changed_source_error(source / name)

    parallel_map(copy, list(files))


def copy_file(source: Path, target: Path, on_bytes: Callable[[int], None]) -> None:
    """Copies the content of a file, where the file system can do it on its server or by sharing the blocks."""
    with source.open("rb", buffering=0) as reading, target.open("xb") as writing:
        # Kernels and file systems that cannot copy between two files raise various errors.
        with contextlib.suppress(OSError):
            while copied := os.copy_file_range(reading.fileno(), writing.fileno(), CHUNK_BYTES):
                on_bytes(copied)
        # If the call failed, or reported the end at once, this copies the rest.
        writing.seek(0, os.SEEK_END)
        reading.seek(writing.tell())
        while part := reading.read(CHUNK_BYTES):
            writing.write(part)
            on_bytes(len(part))


def make_writable(directory: Path) -> None:
    """Gives the owner write permission for a directory and all directories in it."""
    for parent, _directories, _names in os.walk(directory):
        os.chmod(parent, stat.S_IMODE(os.stat(parent).st_mode) | 0o700)


def make_read_only(directory: Path) -> None:
    """Removes write permissions from a directory and all that is in it."""
    for parent, _directories, names in os.walk(directory):
        for name in names:
            os.chmod(f"{parent}/{name}", 0o444)
        os.chmod(parent, 0o555)  # noqa: S103 - every user of a node reads it


def sync_file_system(directory: Path) -> None:
    """Writes the file system of a directory to disk: a power failure must not leave a rename without the content."""
    # One call for thousands of files; Python's os.sync is for all file systems.
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(directory))
    finally:
        os.close(descriptor)


def remove_tree(directory: Path) -> None:
    """Removes one of our own directories, which may be read-only, or a file; of a link, only the link itself."""
    if not directory.is_dir() or directory.is_symlink():
        directory.unlink(missing_ok=True)
        return
    with contextlib.suppress(OSError):
        make_writable(directory)
    shutil.rmtree(directory, ignore_errors=True)
