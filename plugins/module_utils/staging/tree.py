# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root.

A tree comes from a release, a git repository, a directory or another snapshot, with overlays of a user's own put over
it. Files that other snapshots have already are hard links to them.
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
from .files import directories_of, each, entries_below, file_sha256, is_litter
from .lock import Progress
from .manifest import MANIFEST, manifest_of

# Without verl/ it is no snapshot; the others are taken along from a source tree that has them.
PACKAGES = ("verl", "recipe", "examples")
# Files of source code are smaller by far, and are kept until they are written.
LARGE_BYTES = 1 << 20
# In how many of the newest snapshots a file is looked for.
NEIGHBOURS = 4


class Store:
    """The files of the newest snapshots, by content."""

    def __init__(self, snapshots: Path | None) -> None:
        manifests = snapshots.glob(f"[!.]*/{MANIFEST}") if snapshots else ()
        found = sorted(manifests, key=changed_at, reverse=True)[:NEIGHBOURS]
        self.files: dict[str, tuple[str, int, int]] = {}
        for file in found:
            # A broken one is no neighbour; whoever asks for it is told.
            with contextlib.suppress(StagingError):
                for name, entry in (manifest_of(file.parent) or {}).get("files", {}).items():
                    if "mtime_ns" in entry:
                        path = f"{file.parent}/{name}"
                        self.files.setdefault(entry["sha256"], (path, entry["size"], entry["mtime_ns"]))

    def link(self, sha256: str, target: str) -> bool:
        """Whether the target is now a link to a file with this content."""
        if sha256 not in self.files:
            return False
        path, size, mtime_ns = self.files[sha256]
        try:
            stat = os.stat(path)
            # One that was changed by hand must not spread.
            if (stat.st_size, stat.st_mtime_ns) != (size, mtime_ns):
                return False
            os.link(path, target)
        except OSError:
            # Another user's, too many links, or a file system without any.
            return False
        return True


def changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        # It is being removed.
        return 0


@dataclass(frozen=True)
class Seen:
    """A file as it was read, once."""

    size: int
    mtime_ns: int
    sha256: str
    # Of a large one none: it is read again, and must not have changed meanwhile.
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, path: str) -> Seen:
        with open(path, "rb", buffering=0) as file:
            stat = os.fstat(file.fileno())
            if stat.st_size > LARGE_BYTES:
                return cls(stat.st_size, stat.st_mtime_ns, file_sha256(path))
            content = file.read()
        return cls(len(content), stat.st_mtime_ns, hashlib.sha256(content).hexdigest(), content)

    def write(self, source: str, target: str) -> None:
        """Write to the target what was read of the source."""
        if self.content is not None:
            write(target, self.content)
            return
        shutil.copyfile(source, target)
        stat = os.stat(source)
        if (stat.st_size, stat.st_mtime_ns) != (self.size, self.mtime_ns):
            raise changed_meanwhile(source)


class Tree:
    """A directory that is being filled, with the hashes of what is in it."""

    def __init__(self, directory: Path, store: Store, progress: Progress) -> None:
        self.directory = directory
        self.store = store
        self.progress = progress
        self.hashes: dict[str, str] = {}

    def take(self, source: Path, files: Mapping[str, Seen], to: str = "") -> None:
        """Put files there, each as a link to one of the same content where there is one."""
        targets = {name: f"{to}/{name}" if to else name for name in files}
        for _depth, level in itertools.groupby(directories_of(targets.values()), key=lambda path: path.count("/")):
            each(lambda path: (self.directory / path).mkdir(exist_ok=True), list(level))

        def take(name: str) -> None:
            target, seen = f"{self.directory}/{targets[name]}", files[name]
            # An overlay replaces what was there.
            if targets[name] in self.hashes:
                os.unlink(target)
            if not self.store.link(seen.sha256, target):
                seen.write(f"{source}/{name}", target)
            self.progress.add(seen.size)

        # In no order: into each directory the kernel lets one thread at a time.
        each(take, sorted(files, key=lambda name: files[name].sha256))
        self.hashes |= {targets[name]: seen.sha256 for name, seen in files.items()}

    def put(self, name: str, content: bytes) -> None:
        """A file of ours beside the packages."""
        write(f"{self.directory}/{name}", content)
        self.hashes[name] = hashlib.sha256(content).hexdigest()


def write(target: str, content: bytes) -> None:
    """Read-only from its beginning: on a network file system that is one call less for each file."""
    with open(target, "wb", buffering=0, opener=lambda path, flags: os.open(path, flags, 0o444)) as file:
        file.write(content)


def changed_meanwhile(source: object) -> StagingError:
    return StagingError(source, "changed while it was copied.", "Stage it again when nobody writes to it.")


def read_packages(directory: Path, *, within: bool = False) -> dict[str, Seen]:
    """The files of the packages that a snapshot takes; `within`: none may be a link to somewhere else."""
    names = package_files(directory)
    if within:
        outside = [name for name in names if not (directory / name).resolve().is_relative_to(directory.resolve())]
        if outside:
            what = f"{', '.join(outside)} points out of the repository."
            raise StagingError("repository", what, "Do not stage what you do not trust.")
    return read_files(directory, names)


def read_files(directory: Path, names: Sequence[str]) -> dict[str, Seen]:
    return dict(zip(names, each(lambda name: Seen.of(f"{directory}/{name}"), names), strict=True))


def package_files(directory: Path) -> list[str]:
    """The files of the packages that a snapshot takes, by their relative path, in order."""
    return sorted(name for package in PACKAGES for name in tree_files(directory, package))


def tree_files(directory: Path, below: str) -> Iterator[str]:
    """The files below a part of a directory, relative to the directory, without what tools leave."""
    if not (directory / below).is_dir():
        return
    prefix = f"{below}/" if below else ""
    for name, entry in entries_below(directory / below, is_litter):
        # A link to a file is followed: a snapshot must not change with what lies elsewhere.
        if not entry.is_file():
            raise StagingError(
                entry.path,
                "is a link to a directory, a broken link or a special file, and would be missing.",
                "Put there what it points at, or remove it.",
            )
        yield prefix + name


def content_sha256(files: Mapping[str, Seen]) -> str:
    """One hash over names and content of files, equal for equal trees wherever they lie."""
    return sha256_of({name: seen.sha256 for name, seen in files.items()})


def sha256_of(hashes: Mapping[str, str]) -> str:
    lines = (f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256("".join(lines).encode()).hexdigest()
