# SPDX-License-Identifier: Apache-2.0
"""Packs and unpacks bundles, the compressed tars with which `fetch` copies archives from a node to the controller.

Jobs can write to archives, also while one is packed: so a bundle has regular files and nothing else, with limits on
their number, sizes and names. Both sides apply these rules: jobs run in the node that packs.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..archive.archive import DIRECTORIES, STEWARD_HEARTBEAT
from ..archive.samples import DIRECTORY as SAMPLES
from ..common.text import size_text
from ..io.reading import MIB, UnreadableError, open_file, reason

CHECKPOINTS = "checkpoints"
# The page of a job. It is not in a bundle: a job may have changed it, so the controller makes it anew.
PAGE = "report.html"
INDEX = "index.html"
# The entries of an archive that are fetched. Others, such as an ansible.cfg, could affect people on the controller.
ROOT_ENTRIES = frozenset((*DIRECTORIES, SAMPLES, STEWARD_HEARTBEAT, "heartbeat.json", "status.json", "events.jsonl"))
# The maximum sizes of one file and of all files together, without checkpoints and with them.
MAX_FILE_MIB, MAX_TOTAL_MIB = 2 << 10, 8 << 10
MAX_CHECKPOINT_FILE_MIB, MAX_CHECKPOINT_TOTAL_MIB = 64 << 10, 4 << 20
MAX_FILES = 200_000
MAX_LEVELS = 32
MAX_PATH_BYTES = 1024
# The overhead of a file in a bundle: two headers, its path and the rest of a block.
HEADER_BYTES = 4096
MAX_NAME_CHARS = 300
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
# The latest modification time that a tar header can hold.
MAX_MTIME = (1 << 33) - 1
MAX_SKIPPED_NAMES = 100
# The maximum size of one read; tarfile reads a header in one piece.
MAX_READ_BYTES = 1 << 20


class BundleError(Exception):
    """A bundle cannot be unpacked. The message is for people."""


@dataclass(frozen=True)
class Limits:
    # Of one file, and of all files together.
    file: int
    total: int

    @property
    def bundle(self) -> int:
        """The maximum size of the bundle itself: with headers, and with files that cannot be compressed."""
        return self.total + self.total // 1000 + MAX_FILES * HEADER_BYTES


def bundle_limits(checkpoints: bool) -> Limits:
    file, total = (MAX_CHECKPOINT_FILE_MIB, MAX_CHECKPOINT_TOTAL_MIB) if checkpoints else (MAX_FILE_MIB, MAX_TOTAL_MIB)
    return Limits(file * MIB, total * MIB)


class Contents:
    """The number and the size of the files in a bundle so far."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.size = self.files = 0

    def add(self, size: int) -> str:
        """Count a file of this size. Returns why it cannot be in the bundle; empty if it can."""
        if size > self.limits.file:
            return f"it has {size_text(size)}, more than {size_text(self.limits.file)}"
        if self.size + size > self.limits.total:
            return f"with its {size_text(size)}, all files would have more than {size_text(self.limits.total)}"
        if self.files >= MAX_FILES:
            return f"there are more than {MAX_FILES} files"
        self.size += size
        self.files += 1
        return ""


def name_problem(name: str) -> str:
    """Why the name of a file in a bundle, its relative path, is refused; empty if it is allowed."""
    parts = name.split("/")
    if not name or name.startswith("/") or {"", ".", ".."} & set(parts):
        return "its name leads elsewhere"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    # Line ends, control sequences, and characters that change the direction of text.
    if not name.isprintable():
        return "its name has characters that cannot be shown"
    if len(parts) > MAX_LEVELS:
        return f"it is more than {MAX_LEVELS} levels deep"
    if size > MAX_PATH_BYTES or any(len(part.encode()) > 255 for part in parts):
        return f"its name has more than {MAX_PATH_BYTES} bytes, or 255 in one part"
    return ""


def printable_name(name: str) -> str:
    """The name of a file as a message shows it: a job may have put control characters into it."""
    beginning = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."
    return beginning if beginning.isprintable() else ascii(beginning)


# Packing, in a node.


class FixedSizeReader:
    """A file for tarfile, which may grow or shrink meanwhile: a read returns exactly `size` bytes, if need be zeros."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
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


# Unpacking, on the controller.


class ChunkedReader:
    """A compressed stream for tarfile, which refuses large reads: a header of gigabytes must not fill the memory."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.file = file
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= MAX_READ_BYTES:
            raise BundleError(f"the bundle has a header of more than {size_text(MAX_READ_BYTES)}")
        return self.file.read(size)


def unpack(bundle: str, target: Path, limits: Limits, change: bool = True) -> int:
    """Extract the new and the changed files to a directory, each completely or not at all; return their number.

    change: False only counts. Raises BundleError before anything is extracted, if the bundle is damaged or has a file
    that the rules refuse.
    """
    try:
        with gzip.open(bundle) as file, tarfile.open(fileobj=ChunkedReader(file), mode="r:") as tar:  # type: ignore[call-overload]
            changed = [member for member in checked_members(tar, limits) if differs(target / member.name, member)]
            # Before Python 3.11.4, tarfile has no filters. What they refuse, checked_members has refused.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            if change and changed:
                target.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(prefix=".", suffix=".fetching", dir=target) as new:
                    for member in changed:
                        tar.extract(member, new)
                        (target / member.name).parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
                        Path(new, member.name).replace(target / member.name)
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError) as error:
        raise BundleError(f"the bundle is damaged: {error}") from error
    except OSError as error:
        raise BundleError(f"{error.filename2 or error.filename or target}: {reason(error)}") from error
    return len(changed)


def checked_members(tar: tarfile.TarFile, limits: Limits) -> list[tarfile.TarInfo]:
    """The members of a bundle that are entries of an archive. Raises BundleError for one that is refused."""
    members, contents = [], Contents(limits)
    for member in tar:
        problem = "" if member.isreg() and not member.issparse() else "it is not a regular file"
        problem = problem or name_problem(member.name) or ("" if member.size >= 0 else "it has a negative size")
        if problem := problem or contents.add(member.size):
            raise BundleError(f"the bundle has {printable_name(member.name)}, which was refused: {problem}")
        member.mtime = int(min(max(0, member.mtime), MAX_MTIME))
        first, *further = member.name.split("/")
        if first in ROOT_ENTRIES and not any(part.startswith(".") for part in further):
            members.append(member)
    return members


def differs(path: Path, member: tarfile.TarInfo) -> bool:
    """Whether a file is missing, or has another size or modification time than a member."""
    try:
        present = path.stat()
    except FileNotFoundError:
        return True
    return (present.st_size, int(present.st_mtime)) != (member.size, member.mtime)
