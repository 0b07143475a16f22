# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root, optionally with overlays of a user."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..common.shared_root import SNAPSHOTS
from .errors import StagingError
from .files import is_plain_path
from .git import Git
from .lock import Progress
from .manifest import MANIFEST, Manifest
from .options import NAME_WITH_CAPITALS, StageOptions, check_name, check_parent, check_shared_root
from .result import Staged, Status
from .sources import (
    MARKER,
    PATCH,
    DirectorySource,
    ReadSource,
    SnapshotSource,
    Source,
    is_elsewhere,
    read_verl_version,
    source_of,
)
from .store import Built, Request, remove, stage
from .tree import FileSnapshot, Store, Tree, content_sha256, hold, read_files, sha256_of, source_directory, tree_files
from .users import users

KIND = "snapshot"
# Our own files in a snapshot, beside its packages.
OWN_FILES = (MARKER, MANIFEST, PATCH)


@dataclass(frozen=True)
class Overlay:
    """A directory of a user that is added to a snapshot, where it may replace files."""

    path: Path
    to: str
    files: Mapping[str, FileSnapshot]

    @classmethod
    def of(cls, path: str, to: str) -> Overlay:
        source = Path(path).expanduser()
        if not source.is_dir():
            raise StagingError(f'overlay "{path}"', "is not a directory on this machine.", "Correct its path.")
        parts = PurePosixPath(to).parts
        if not parts or to.startswith("/") or ".." in parts or parts[0] in OWN_FILES:
            todo = "Give a relative path below the snapshot, such as recipe/mine or my_package."
            raise StagingError(f'overlay "{path}"', f'cannot be put at "{to}".', todo)
        if not is_plain_path("/".join(parts)):
            todo = "Give a relative path of printable characters."
            raise StagingError(f'overlay "{path}"', f"cannot be put at {to!r}.", todo)
        source = source_directory(source)
        return cls(source, "/".join(parts), read_files(source, list(tree_files(source, ""))))

    def held(self) -> Overlay:
        """The same, with its large files open."""
        return replace(self, files=hold(self.path, self.files))

    @property
    def identity(self) -> str:
        return f"{self.to}: {content_sha256(self.files)}"


def request(shared_root: Path, source: Source, code_id: str | None = None, overlays: Sequence[Overlay] = ()) -> Request:
    """The request to stage a snapshot."""
    identity = " + ".join((source.identity, *(overlay.identity for overlay in overlays)))
    default = source.code_id
    if overlays:
        default += f"-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    code_id = check_name("code_id", code_id or default, NAME_WITH_CAPITALS)
    snapshots = check_parent(shared_root, check_shared_root(shared_root) / SNAPSHOTS)
    if isinstance(source, SnapshotSource) and not overlays:
        raise StagingError(f'source "{source.label}"', "is a snapshot already.", "Add overlays, or omit it.")

    def build(directory: Path, progress: Progress) -> Built:
        # A repair must not link to the broken files, nor change the time of a file that other snapshots share.
        tree = Tree(directory, Store(None if (snapshots / code_id).exists() else snapshots), progress)
        content = source.read(progress)
        tree.add(content.files)
        for name, own in content.own.items():
            tree.put(name, own)
        for overlay in overlays:
            tree.add(overlay.held().files, overlay.to)
        tree.put(MARKER, f'MARKER = "{code_id}"\n'.encode())
        facts = {
            "code_id": code_id,
            "source": source.label,
            "identity": identity,
            "overlays": [{"path": str(overlay.path), "to": overlay.to} for overlay in overlays],
            "content_sha256": sha256_of({name: sha for name, sha in tree.hashes.items() if name not in OWN_FILES}),
            "verl_version": read_verl_version(directory.resolve()),
            **content.facts,
        }
        return Built(facts, tree.hashes)

    def differs(manifest: Manifest) -> str:
        if manifest.facts.get("identity") == identity:
            return ""
        version = manifest.facts.get("verl_version")
        return f"contains {manifest.source} (verl {version}), which differs from the present content of {source.label}."

    def size() -> int:
        known = [overlay.files for overlay in overlays]
        if isinstance(source, DirectorySource):
            known.append(source.files)
        elif isinstance(source, ReadSource):
            known.append(source.content.files)
        return sum(file.size for files in known for file in files.values())

    return Request(KIND, code_id, snapshots / code_id, build, differs, read_only=True, size=size)


@dataclass(frozen=True)
class Wanted:
    """A snapshot as the options of the module ask for it.

    Everything that lies on the shared root is read by the user who writes there. Everything else is read by Ansible's
    user, who may be root: the sources may be that user's alone, and so may be what git and pip need.
    """

    shared_root: Path
    source: str
    code_id: str | None
    overlays: Sequence[tuple[str, str]]
    git: Git

    def stage(self, options: StageOptions, work: Callable[[Callable[[], Staged]], dict[str, Any]]) -> dict[str, Any]:
        """The result of `work`, which is called with the staging itself, and does it as the user of the nodes."""
        directory = check_shared_root(self.shared_root) / SNAPSHOTS
        source = source_of(self.source, directory, self.git) if is_elsewhere(self.source, self.shared_root) else None
        overlays = [Overlay.of(*each) if is_elsewhere(each[0], self.shared_root) else None for each in self.overlays]

        def stage_it(options: StageOptions) -> Staged:
            return snapshot(
                self.shared_root,
                source or source_of(self.source, directory),
                self.code_id,
                [known or Overlay.of(*given) for known, given in zip(overlays, self.overlays, strict=True)],
                options,
            )

        if os.geteuid() != 0 or options.check or options.defer:
            return work(lambda: stage_it(options))
        # As long as it is not known that it is needed, nothing is fetched.
        result = work(lambda: stage_it(replace(options, defer=True)))
        if result.get("status") != Status.DEFERRED:
            return result
        source = source and ReadSource(source, source.read(Progress()))
        overlays = [overlay and overlay.held() for overlay in overlays]
        return work(lambda: stage_it(options))


def snapshot(
    shared_root: Path,
    source: Source,
    code_id: str | None = None,
    overlays: Sequence[Overlay] = (),
    options: StageOptions | None = None,
) -> Staged:
    """Stages a snapshot."""
    return stage(request(shared_root, source, code_id, overlays), options)


def remove_snapshot(shared_root: Path, code_id: str, *, check: bool = False) -> Staged:
    """Removes a snapshot unless jobs use it."""
    directory = check_parent(shared_root, check_shared_root(shared_root) / SNAPSHOTS)
    target = directory / check_name("code_id", code_id, NAME_WITH_CAPITALS)
    return remove(KIND, code_id, target, lambda: users(shared_root, target), check=check)
