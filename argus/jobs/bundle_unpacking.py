# SPDX-License-Identifier: Apache-2.0
"""Unpacks a bundle on the controller, which first checks everything in it again: jobs run in the node that sent it."""

from __future__ import annotations

import gzip
import tarfile
import tempfile
import zlib
from pathlib import Path

from ..common.text import size_text
from ..io.reading import reason
from .bundle import DIRECTORY_MODE, MAX_MTIME, ROOT_ENTRIES, BundleError, Contents, Limits, name_problem, printable_name

# The maximum size of one read; tarfile reads a header in one piece.
MAX_READ_BYTES = 1 << 20


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
    that the rules of `bundle` refuse.
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
