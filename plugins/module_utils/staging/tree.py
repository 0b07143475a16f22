# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads the files of a source tree, and fills the directory of a snapshot with them.

Files that other snapshots already have become hard links to theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .errors import StagingError
from .files import directories_of, entries_below, file_sha256, is_ignored, parallel_map
from .lock import Progress
from .manifest import MANIFEST, read_manifest

# verl is required; the others are included if the source tree has them.
PACKAGES = ("verl", "recipe", "examples")
# Source files are far smaller; their content stays in memory until it is written.
LARGE_BYTES = 1 << 20
# How many of the newest snapshots are searched for equal files.
NEIGHBOURS = 4


class Store:
    """The files of the newest snapshots, by content."""

    def __init__(self, snapshots: Path | None) -> None:
        manifests = snapshots.glob(f"[!.]*/{MANIFEST}") if snapshots else ()
        found = sorted(manifests, key=changed_at, reverse=True)[:NEIGHBOURS]
        self.files: dict[str, tuple[str, int, int]] = {}
        for file in found:
            # A broken manifest is reported when its own snapshot is verified.
            with contextlib.suppress(StagingError):
                manifest = read_manifest(file.parent)
                for name, entry in manifest.files.items() if manifest else ():
                    if entry.mtime_ns is not None:
                        path = f"{file.parent}/{name}"
                        self.files.setdefault(entry.sha256, (path, entry.size, entry.mtime_ns))

    def link(self, sha256: str, target: str) -> bool:
        """Makes the target a hard link to a file with this content; False if there is none."""
        if sha256 not in self.files:
            return False
        path, size, mtime_ns = self.files[sha256]
        try:
            stat = os.stat(path)
            # A file that was changed by hand must not spread.
            if (stat.st_size, stat.st_mtime_ns) != (size, mtime_ns):
                return False
            os.link(path, target)
        except OSError:
            # A file of another user, too many links, or a file system without hard links.
            return False
        return True


def changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
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

    @classmethod
    def of(cls, path: str) -> FileSnapshot:
        with open(path, "rb", buffering=0) as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > LARGE_BYTES:
                return cls(stat.st_size, stat.st_mtime_ns, file_sha256(path))
            content = file.read()
        return cls(len(content), stat.st_mtime_ns, hashlib.sha256(content).hexdigest(), content)

    def write(self, source: str, target: str) -> None:
        """Writes the content that was read from the source to the target."""
        if self.content is not None:
            write(target, self.content)
            return
        shutil.copyfile(source, target)
        stat = os.stat(source)
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed_meanwhile(source)


class Tree:
    """A directory that is being filled, with the hashes of its files."""

    def __init__(self, directory: Path, store: Store, progress: Progress) -> None:
        self.directory = directory
        self.store = store
        self.progress = progress
        self.hashes: dict[str, str] = {}

    def add(self, source: Path, files: Mapping[str, FileSnapshot], to: str = "") -> None:
        """Adds files, as hard links where another snapshot has the same content."""
        targets = {name: f"{to}/{name}" if to else name for name in files}
        for _depth, level in itertools.groupby(directories_of(targets.values()), key=lambda path: path.count("/")):
            parallel_map(lambda path: (self.directory / path).mkdir(exist_ok=True), list(level))

        def add(name: str) -> None:
            target, file = f"{self.directory}/{targets[name]}", files[name]
            # An overlay replaces a file that exists.
            if targets[name] in self.hashes:
                os.unlink(target)
            if not self.store.link(file.sha256, target):
                file.write(f"{source}/{name}", target)
            self.progress.add(file.size)

        # In random order: the kernel lets only one thread at a time change a directory.
        parallel_map(add, sorted(files, key=lambda name: files[name].sha256))
        self.hashes |= {targets[name]: file.sha256 for name, file in files.items()}

    def put(self, name: str, content: bytes) -> None:
        """Writes one of our own files beside the packages."""
        write(f"{self.directory}/{name}", content)
        self.hashes[name] = hashlib.sha256(content).hexdigest()


def write(target: str, content: bytes) -> None:
    """Creates the file read-only: on a network file system that saves a call for each file."""
    with open(target, "wb", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o444)) as file:
        file.write(content)


def changed_meanwhile(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nothing writes to it.")


def read_packages(directory: Path, *, within: bool = False) -> dict[str, FileSnapshot]:
    """The files of the packages; with `within`, a link that leaves the directory is an error."""
    names = package_files(directory)
    if within:
        outside = [name for name in names if not (directory / name).resolve().is_relative_to(directory.resolve())]
        if outside:
            what = f"{', '.join(outside)} points out of the repository."
            raise StagingError("repository", what, "Do not stage a repository that you do not trust.")
    return read_files(directory, names)


def read_files(directory: Path, names: Sequence[str]) -> dict[str, FileSnapshot]:
    return dict(zip(names, parallel_map(lambda name: FileSnapshot.of(f"{directory}/{name}"), names), strict=True))


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
            raise StagingError(
                entry.path,
                "is a link to a directory, a broken link or a special file, and would be missing.",
                "Replace it by a copy of its destination, or remove it.",
            )
        yield prefix + name


def content_sha256(files: Mapping[str, FileSnapshot]) -> str:
    """One hash of the names and the content of files, equal for equal trees at different paths."""
    return sha256_of({name: file.sha256 for name, file in files.items()})


def sha256_of(hashes: Mapping[str, str]) -> str:
    lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
