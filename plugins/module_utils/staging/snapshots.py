# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root, optionally with overlays of a user."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..shared_root import SNAPSHOTS
from .errors import StagingError
from .lock import Progress
from .manifest import MANIFEST, Manifest
from .options import NAME_WITH_CAPITALS, StageOptions, check_name, check_shared_root
from .result import Staged
from .sources import MARKER, PATCH, SnapshotSource, Source, read_verl_version
from .store import Built, Request, stage
from .tree import FileSnapshot, Store, Tree, content_sha256, read_files, sha256_of, tree_files

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
        return cls(source.resolve(), "/".join(parts), read_files(source, list(tree_files(source, ""))))

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
    snapshots = check_shared_root(shared_root) / SNAPSHOTS
    if isinstance(source, SnapshotSource) and not overlays:
        raise StagingError(f'source "{source.label}"', "is a snapshot already.", "Add overlays, or omit it.")

    def build(directory: Path, progress: Progress) -> Built:
        # A repair must not link to the broken files, nor change the time of a file that other snapshots share.
        tree = Tree(directory, Store(None if (snapshots / code_id).exists() else snapshots), progress)
        source_facts = source.fill(tree)
        for overlay in overlays:
            tree.add(overlay.path, overlay.files, overlay.to)
        tree.put(MARKER, f'MARKER = "{code_id}"\n'.encode())
        facts = {
            "code_id": code_id,
            "source": source.label,
            "identity": identity,
            "overlays": [{"path": str(overlay.path), "to": overlay.to} for overlay in overlays],
            "content_sha256": sha256_of({name: sha for name, sha in tree.hashes.items() if name not in OWN_FILES}),
            "verl_version": read_verl_version(directory),
            **source_facts,
        }
        return Built(facts, tree.hashes)

    def differs(manifest: Manifest) -> str:
        if manifest.facts.get("identity") == identity:
            return ""
        version = manifest.facts.get("verl_version")
        return f"contains {manifest.source} (verl {version}), which differs from the present content of {source.label}."

    return Request(KIND, code_id, snapshots / code_id, build, differs, read_only=True)


def snapshot(
    shared_root: Path,
    source: Source,
    code_id: str | None = None,
    overlays: Sequence[Overlay] = (),
    options: StageOptions | None = None,
) -> Staged:
    """Stages a snapshot."""
    return stage(request(shared_root, source, code_id, overlays), options)
