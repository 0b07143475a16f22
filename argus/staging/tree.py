# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the files of a source tree, and fills the directory of a snapshot with them.

A source tree may belong to a user who is not trusted with what this process can read: no link leads out of it.
Files that other snapshots already have become hard links to theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import resource
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path, PurePosixPath

from ..common.text import size_text
from .copying import copy_content, new_file, write_all
from .errors import StagingError, changed_meanwhile
from .files import directories_of, entries_below, is_ignored, is_plain_path, parallel_map
from .lock import SAFELY, Progress
from .manifest import MANIFEST, Facts, read_manifest

# verl is required; the others are included if the source tree has them.
PACKAGES = ("verl", "recipe", "examples")
# Source files are far smaller; their content stays in memory until it is written.
LARGE_BYTES = 1 << 20
# A snapshot is for code. All of it is read before anything else happens, and a sparse file has any size.
LARGEST_TREE = 64 << 30
# Every process may have so many open files; more large ones than this need a higher limit.
MANY_FILES = 500
# How many of the newest snapshots are searched for equal files.
NEIGHBOURS = 4
READ_ONLY = 0o444
MOST_LINKS = 40


class Store:
    """The files of the newest snapshots, by the content that their manifests claim."""

    def __init__(self, snapshots: Path | None) -> None:
        manifests = snapshots.glob(f"[!.]*/{MANIFEST}") if snapshots else ()
        found = sorted(manifests, key=changed_at, reverse=True)[:NEIGHBOURS]
        self.files: dict[str, str] = {}
        for file in found:
            # A broken manifest is reported when its own snapshot is verified.
            with contextlib.suppress(StagingError):
                manifest = read_manifest(file.parent)
                for name, entry in manifest.files.items() if manifest else ():
                    self.files.setdefault(entry.sha256, f"{file.parent}/{name}")

    def link(self, file: FileSnapshot, target: str) -> bool:
        """Makes the target a hard link to a file with this content; False if there is none.

        Only the file itself tells: a job can write into a manifest whatever it likes.
        """
        if file.sha256 not in self.files:
            return False
        path = self.files[file.sha256]
        try:
            # Wherever it is: what is linked is a file of this user with this content.
            with FileIO(os.open(path, os.O_RDONLY | SAFELY), "r") as found:
                there = os.fstat(found.fileno())
                if there.st_mode != stat.S_IFREG | READ_ONLY or there.st_uid != os.geteuid() or not file.equals(found):
                    return False
                os.link(path, target, follow_symlinks=False)
                if os.path.samestat(there, os.lstat(target)):
                    return True
                # Another file has got this name meanwhile.
                os.unlink(target)
        except OSError:
            # A file that is gone, too many links, or a file system without hard links.
            pass
        return False


def changed_at(file: Path) -> int:
    try:
        return file.lstat().st_mtime_ns
    except OSError:
        # The snapshot is being removed.
        return 0


@dataclass(frozen=True)
class FileSnapshot:
    """A file as it was when it was read."""

    size: int
    mtime_ns: int
    sha256: str
    # None for a large file: it is read again, and must not have changed in between.
    content: bytes | None = field(default=None, repr=False)
    # A large file that stays open until it is written: its source may be out of reach for the process that writes.
    file: FileIO | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, path: str, root: Path, before_large: Callable[[int], None]) -> FileSnapshot:
        """before_large: called with the size of a large file before it is read, and may raise an error."""
        with open_source(path, root) as file:
            found = os.fstat(file.fileno())
            if found.st_size > LARGE_BYTES:
                before_large(found.st_size)
                digest = hashlib.file_digest(file, "sha256")
                return cls(found.st_size, found.st_mtime_ns, digest.hexdigest())
            content = file.read(found.st_size + 1) or b""
            if len(content) != found.st_size:
                raise changed_meanwhile(path)
        return cls.of_content(content, found.st_mtime_ns)

    @classmethod
    def of_content(cls, content: bytes, mtime_ns: int = 0) -> FileSnapshot:
        return cls(len(content), mtime_ns, hashlib.sha256(content).hexdigest(), content)

    def opened(self, path: str, root: Path) -> FileSnapshot:
        """The same; if it is large, with its file open."""
        if self.content is not None or self.file is not None:
            return self
        file = open_source(path, root)
        self._require_unchanged(file, path)
        return replace(self, file=file)

    def equals(self, other: FileIO) -> bool:
        """Whether another open file has this content."""
        if os.fstat(other.fileno()).st_size != self.size:
            return False
        if self.content is not None:
            return other.read(self.size + 1) == self.content
        return hashlib.file_digest(other, "sha256").hexdigest() == self.sha256

    def write(self, target: str) -> None:
        """Writes the content that was read to a new file, which is read-only.

        Created so: on a network file system that saves a call for each file.
        """
        with new_file(target, READ_ONLY) as file:
            # If the umask takes a permission away.
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) != READ_ONLY:
                os.fchmod(file.fileno(), READ_ONLY)
            if self.content is not None:
                write_all(file, self.content)
            elif self.file is not None:
                self.file.seek(0)
                copy_content(self.file, file, lambda _size: None)
                self._require_unchanged(self.file, target)

    def _require_unchanged(self, file: FileIO, name: str) -> None:
        found = os.fstat(file.fileno())
        if (found.st_size, found.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed_meanwhile(name)


@dataclass(frozen=True)
class Content:
    """Everything that a source has for a snapshot. own: files of ours beside the packages."""

    files: Mapping[str, FileSnapshot]
    facts: Facts = field(default_factory=dict)
    own: Mapping[str, bytes] = field(default_factory=dict)


class Tree:
    """A directory that is being filled, with the hashes of its files."""

    def __init__(self, directory: Path, store: Store, progress: Progress) -> None:
        self.directory = directory
        self.store = store
        self.progress = progress
        self.hashes: dict[str, str] = {}

    def add(self, files: Mapping[str, FileSnapshot], to: str = "") -> None:
        """Adds files, as hard links where another snapshot has the same content."""
        targets = {name: f"{to}/{name}" if to else name for name in files}
        for _depth, level in itertools.groupby(directories_of(targets.values()), key=lambda path: path.count("/")):
            parallel_map(lambda path: (self.directory / path).mkdir(exist_ok=True), list(level))

        def add(name: str) -> None:
            target, file = f"{self.directory}/{targets[name]}", files[name]
            # An overlay replaces a file that exists.
            if targets[name] in self.hashes:
                os.unlink(target)
            if not self.store.link(file, target):
                file.write(target)
            self.progress.add(file.size)

        # In random order: the kernel lets only one thread at a time change a directory.
        parallel_map(add, sorted(files, key=lambda name: files[name].sha256))
        self.hashes |= {targets[name]: file.sha256 for name, file in files.items()}

    def put(self, name: str, content: bytes) -> None:
        """Writes one of our own files beside the packages."""
        file = FileSnapshot.of_content(content)
        file.write(f"{self.directory}/{name}")
        self.hashes[name] = file.sha256


def source_directory(path: Path) -> Path:
    """The real path of a directory that the user named; an error if a link of another user decides where it leads."""
    todo = [*reversed(path.expanduser().absolute().parts[1:])]
    found, links = Path("/"), 0
    while todo:
        step = PurePosixPath(todo.pop())
        here = found / step
        if step == PurePosixPath(".."):
            found = found.parent
        elif not here.is_symlink():
            found = here
        else:
            owner, destination, links = here.lstat().st_uid, here.readlink(), links + 1
            if owner not in (0, os.geteuid()) or links > MOST_LINKS:
                what = f"leads through {here}, a link of user id {owner}."
                raise StagingError(path, what, f"Give the path without this link: it leads to {destination}.")
            found = Path("/") if destination.is_absolute() else found
            todo += reversed([part for part in destination.parts if part != "/"])
    return found


def open_within(path: str, root: Path) -> FileIO:
    """A regular file below a directory, opened for reading; links are followed as long as they do not lead out of it.

    The kernel says where the file really is, after it was found and before it is opened: opening a FIFO waits, and
    opening a device can do anything.
    """
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        found, real = os.fstat(place), os.readlink(f"/proc/self/fd/{place}")
        if not real.startswith(f"{root}/"):
            what = f"leads out of {root}, to {real}."
            raise StagingError(path, what, "Replace it by a copy of its destination, or remove it.")
        if not stat.S_ISREG(found.st_mode):
            raise special_file(path)
        return FileIO(os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC), "r")
    finally:
        os.close(place)


def open_source(path: str, root: Path) -> FileIO:
    """The same for a source tree: also no hard link to a file that its owner may not be able to read."""
    file = open_within(path, root)
    found = os.fstat(file.fileno())
    if found.st_nlink > 1 and found.st_uid != os.stat(root).st_uid:
        file.close()
        what = f"is a hard link to a file of user id {found.st_uid}, who does not own {root}."
        raise StagingError(path, what, "Replace it by a copy, or remove it.")
    return file


def special_file(path: str) -> StagingError:
    what = "is a link to a directory, a broken link or a special file, and would be missing."
    return StagingError(path, what, "Replace it by a copy of its destination, or remove it.")


def read_packages(directory: Path) -> dict[str, FileSnapshot]:
    """The files of the packages in a directory."""
    return read_files(directory, package_files(directory))


def read_files(directory: Path, names: Sequence[str]) -> dict[str, FileSnapshot]:
    total = 0

    def before_large(size: int) -> None:
        nonlocal total
        total += size
        if total > LARGEST_TREE:
            what = f"has files of {size_text(total)} or more; a snapshot has at most {size_text(LARGEST_TREE)}."
            raise StagingError(directory, what, "Move data and models out of it.")

    return _for_each(names, lambda name: FileSnapshot.of(f"{directory}/{name}", directory, before_large))


def hold(directory: Path, files: Mapping[str, FileSnapshot]) -> dict[str, FileSnapshot]:
    """The same files, the large ones of them open."""
    if sum(file.content is None for file in files.values()) > MANY_FILES:
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _for_each([*files], lambda name: files[name].opened(f"{directory}/{name}", directory))


def _for_each(names: Sequence[str], read: Callable[[str], FileSnapshot]) -> dict[str, FileSnapshot]:
    return dict(zip(names, parallel_map(read, names), strict=True))


def package_files(directory: Path) -> list[str]:
    """The relative paths of the files of the packages, in order."""
    return sorted(name for package in PACKAGES for name in tree_files(directory, package))


def tree_files(directory: Path, below: str) -> Iterator[str]:
    """The files below a subdirectory, relative to the directory, without ignored files."""
    if not (directory / below).is_dir():
        return
    prefix = f"{below}/" if below else ""
    for name, entry in entries_below(directory / below, is_ignored):
        # A link to a file is followed: a snapshot must not change with a file outside of it.
        if not entry.is_file():
            raise special_file(entry.path)
        if not is_plain_path(name):
            what = f"the name {name!r} has characters that cannot be shown."
            raise StagingError(directory, what, "Rename the file, or remove it.")
        yield prefix + name


def content_sha256(files: Mapping[str, FileSnapshot]) -> str:
    """One hash of the names and the content of files, equal for equal trees at different paths."""
    return sha256_of({name: file.sha256 for name, file in files.items()})


def sha256_of(hashes: Mapping[str, str]) -> str:
    lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
