# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a source tree.

It may belong to a user who is not trusted with what this process can read: no link leads out of it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO

from .errors import SourceError

# Opens a file for reading.
Opener = Callable[[], IO[bytes]]
# verl is required; the others are included if the source tree has them.
PACKAGES = ("verl", "recipe", "examples")
# A snapshot is for code. A sparse file has any size.
MOST_BYTES = 4 << 30
# The beginning of the identity of a directory, of which its SHA-256 is known.
CONTENT = "content "
# Control characters, surrogates of names that are not UTF-8, and characters that change the direction of text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LONGEST_PATH = 4096


def is_plain_path(name: str) -> bool:
    """Whether a text is a relative path in its normal form, without characters that cannot be shown."""
    parts = name.split("/")
    return len(name) <= LONGEST_PATH and not {"", ".", ".."} & {*parts} and not UNPRINTABLE.search(name)


def is_ignored(name: str) -> bool:
    """Whether tools create a file with this relative path in a source tree, such as the cache of an import."""
    return any(part in (".git", "__pycache__") or part.endswith((".pyc", ".egg-info")) for part in name.split("/"))


@dataclass(frozen=True)
class Content:
    """The files of a source by their relative paths, to be opened one after the other, and facts for the manifest."""

    files: Iterable[tuple[str, Opener]]
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Tree:
    """The files of a directory as they were read: their SHA-256 by relative path, and their size in bytes."""

    path: Path
    hashes: Mapping[str, str]
    size: int

    @classmethod
    def read(cls, path: Path, names: Iterable[str]) -> Tree:
        """The files with these names, or an error if one leads out of the directory. path: the real one."""
        hashes, size = {}, 0
        for name in names:
            with open_within(f"{path}/{name}", path) as file:
                size += os.fstat(file.fileno()).st_size
                if size > MOST_BYTES:
                    what = f"has files of more than {MOST_BYTES >> 30} GiB, which is the limit of a snapshot."
                    raise SourceError(path, what, "Move data and models out of it.")
                hashes[name] = hashlib.file_digest(file, "sha256").hexdigest()
        return cls(path, hashes, size)

    @property
    def identity(self) -> str:
        return content_identity(self.hashes)

    def files(self) -> Iterator[tuple[str, Opener]]:
        """The files as they are now."""
        return ((name, partial(open_within, f"{self.path}/{name}", self.path)) for name in self.hashes)


def content_identity(hashes: Mapping[str, str]) -> str:
    """A text for the names and the content of files, equal for equal trees at different paths."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return f"{CONTENT}{hashlib.sha256(lines.encode()).hexdigest()}"


def package_files(directory: Path) -> list[str]:
    """The relative paths of the files of the packages, in order."""
    return sorted(name for package in PACKAGES for name in tree_files(directory, package))


def tree_files(directory: Path, below: str = "", without: str = "") -> Iterator[str]:
    """The files below a subdirectory, relative to the directory, without ignored files.

    without: directories with this name are left out, too.
    """
    for parent, directories, names in os.walk(directory / below, onerror=_unless_missing):
        directories[:] = sorted(name for name in directories if name != without and not is_ignored(name))
        for name in directories:
            if os.path.islink(f"{parent}/{name}"):
                raise special_file(f"{parent}/{name}")
        for name in sorted(name for name in names if not is_ignored(name)):
            path = Path(parent, name)
            # A link to a file is followed: a snapshot must not change with a file outside of it.
            if not path.is_file():
                raise special_file(path)
            relative = path.relative_to(directory).as_posix()
            if not is_plain_path(relative):
                what = f"the name {relative!r} has characters that cannot be shown."
                raise SourceError(directory, what, "Rename the file, or remove it.")
            yield relative


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def open_within(path: str, root: Path) -> BufferedReader:
    """A regular file below a directory, opened for reading; links are followed if they do not lead out of it.

    The kernel says where the file really is, after it was found and before it is opened: opening a FIFO waits, and
    opening a device can do anything.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found, real = os.fstat(place), os.readlink(f"/proc/self/fd/{place}")
        if not real.startswith(f"{root}/"):
            what = f"leads out of {root}, to {real}."
            raise SourceError(path, what, "Replace it by a copy of its destination, or remove it.")
        if not stat.S_ISREG(found.st_mode):
            raise special_file(path)
        if found.st_nlink > 1 and found.st_uid != os.stat(root).st_uid:
            # The owner of the source may not be able to read it.
            what = f"is a hard link to a file of user id {found.st_uid}, who does not own {root}."
            raise SourceError(path, what, "Replace it by a copy, or remove it.")
        return open(f"/proc/self/fd/{place}", "rb")
    finally:
        os.close(place)


def special_file(path: object) -> SourceError:
    what = "is a link to a directory, a broken link or a special file, and would be missing."
    return SourceError(path, what, "Replace it by a copy of its destination, or remove it.")


def source_directory(path: Path, shared_root: Path | None) -> Path:
    """The real path of a directory that the user named; not on the shared root, where only nodes open files."""
    real = path.expanduser().resolve()
    if shared_root and real.is_relative_to(shared_root.resolve()):
        raise SourceError(path, "leads to the shared root through a link.", f"Give its path below {shared_root}.")
    return real
