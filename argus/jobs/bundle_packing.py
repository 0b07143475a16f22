# SPDX-License-Identifier: Apache-2.0
"""Packs an archive into a bundle, in a node."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ..io.reading import UnreadableError, open_file, reason
from .bundle import FILE_MODE, MAX_MTIME, PAGE, ROOT_ENTRIES, Contents, Limits, name_problem, printable_name

CHECKPOINTS = "checkpoints"
# The maximum number of skipped files that are named.
MAX_SKIPPED_NAMES = 100


class FixedSizeReader:
    """A file for tarfile, which may grow or shrink meanwhile: a read returns exactly `size` bytes, if need be zeros."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        # The number of bytes that were replaced by zeros.
        self.missing = 0

    def read(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except OSError:
            data = b""
        self.missing += size - len(data)
        return data.ljust(size, b"\0")


def pack(archive: Path, checkpoints: bool, limits: Limits, file: BinaryIO) -> list[str]:
    """Write a bundle of an archive in one pass; return what was skipped, as ``<name>: <reason>``.

    While the job runs, files may grow or disappear. Raises OSError if the bundle cannot be written.
    """
    contents, unnamed_count = Contents(limits), 0
    skipped: list[str] = []
    # Level 1 shrinks logs tenfold; higher levels are usually slower than the network.
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for name, path in files_below(archive, "", checkpoints):
            problem = path if isinstance(path, str) else add_file(tar, name, path, contents)
            if problem and len(skipped) < MAX_SKIPPED_NAMES:
                skipped.append(f"{printable_name(name)}: {problem}")
            elif problem:
                unnamed_count += 1
    return [*skipped, f"{unnamed_count} more"] if unnamed_count else skipped


def files_below(directory: Path, prefix: str, checkpoints: bool) -> Iterator[tuple[str, Path | str]]:
    """The name of each file below a directory, with its path or why it is skipped, in order; hidden files are left out.

    prefix: the name of the directory itself with a slash, or empty for the archive.
    """
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        yield prefix or ".", f"it cannot be listed ({reason(error)})"
        return
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.name.startswith(".") or name == PAGE or (name == CHECKPOINTS and not checkpoints):
            continue
        if entry.is_symlink():
            yield name, "it is a link"
        elif problem := name_problem(name):
            yield name, problem
        elif not (is_directory := entry.is_dir(follow_symlinks=False)) and not entry.is_file(follow_symlinks=False):
            yield name, "it is not a regular file"
        elif not prefix and name not in ROOT_ENTRIES:
            yield name, "it is no part of an archive"
        elif is_directory:
            yield from files_below(Path(entry), f"{name}/", checkpoints)
        else:
            yield name, Path(entry)


def add_file(tar: tarfile.TarFile, name: str, path: Path, contents: Contents) -> str:
    """Add a file with its present size; return why it was skipped or is incomplete, or "". Hard links are files."""
    try:
        content = open_file(path)
    except FileNotFoundError:
        return ""
    except UnreadableError as error:
        return f"it {error.why}"
    with content:
        status = os.fstat(content.fileno())
        if problem := contents.add(status.st_size):
            return problem
        # The user, group and mode of the file mean nothing on the controller.
        member = tarfile.TarInfo(name)
        member.size, member.mode = status.st_size, FILE_MODE
        member.mtime = int(min(max(0, status.st_mtime), MAX_MTIME))
        reader = FixedSizeReader(content)
        tar.addfile(member, reader)  # type: ignore[arg-type]  # it only reads
    return f"it shrank while it was packed; its last {reader.missing} bytes are zeros" if reader.missing else ""
