# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Snapshots: immutable copies of a verl source tree under the shared root.

A tree comes from a release, a git repository, a directory or another snapshot, with overlays of a user's own put over
it. Files that other snapshots have already are hard links to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .errors import StagingError
from .lock import Progress
from .manifest import MANIFEST
from .options import NAME_WITH_CAPITALS, Staged, check_name, check_shared_root
from .sources import MARKER, PATCH, SnapshotSource, Source, read_verl_version
from .store import Request, stage
from .tree import Seen, Store, Tree, content_sha256, read_files, sha256_of, tree_files

KIND = "snapshot"
# Below the shared root. Each directory in it can be put on PYTHONPATH as it is.
SNAPSHOTS = "common/code/verl"
# What a snapshot has beside its packages.
OWN = (MARKER, MANIFEST, PATCH)


@dataclass(frozen=True)
class Overlay:
    """A directory of a user's own, put into a snapshot at a place of its own or over what is there."""

    path: Path
    to: str
    files: Mapping[str, Seen]

    @classmethod
    def of(cls, path: str, to: str) -> Overlay:
        source = Path(path).expanduser()
        if not source.is_dir():
            raise StagingError(f'overlay "{path}"', "is no directory on this machine.", "Correct its path.")
        parts = PurePosixPath(to).parts
        if not parts or to.startswith("/") or ".." in parts or parts[0] in OWN:
            todo = "Give a relative path below the snapshot, such as recipe/mine or my_package."
            raise StagingError(f'overlay "{path}"', f'cannot be put at "{to}".', todo)
        return cls(source.resolve(), "/".join(parts), read_files(source, list(tree_files(source, ""))))

    @property
    def identity(self) -> str:
        return f"{self.to}: {content_sha256(self.files)}"


def request(shared_root: Path, source: Source, code_id: str | None = None, overlays: Sequence[Overlay] = ()) -> Request:
    """The snapshot that is to be there."""
    identity = " + ".join((source.identity, *(overlay.identity for overlay in overlays)))
    default = source.code_id
    if overlays:
        default += f"-{hashlib.sha256(identity.encode()).hexdigest()[:8]}"
    code_id = check_name("code_id", code_id or default, NAME_WITH_CAPITALS)
    snapshots = check_shared_root(shared_root) / SNAPSHOTS
    if isinstance(source, SnapshotSource) and not overlays:
        raise StagingError(f'source "{source.label}"', "is a snapshot already.", "Give it overlays, or leave it out.")

    def build(directory: Path, progress: Progress) -> dict[str, Any]:
        # A repair must not link to what is broken itself, nor change the time of a file that others have as well.
        tree = Tree(directory, Store(None if (snapshots / code_id).exists() else snapshots), progress)
        said = source.fill(tree)
        for overlay in overlays:
            tree.take(overlay.path, overlay.files, overlay.to)
        tree.put(MARKER, f'MARKER = "{code_id}"\n'.encode())
        return {
            "code_id": code_id,
            "source": source.label,
            "identity": identity,
            "overlays": [{"path": str(overlay.path), "to": overlay.to} for overlay in overlays],
            "content_sha256": sha256_of({name: sha for name, sha in tree.hashes.items() if name not in OWN}),
            "verl_version": read_verl_version(directory),
            **said,
            "hashes": tree.hashes,
        }

    def differs(manifest: Mapping[str, Any]) -> str:
        if manifest.get("identity") == identity:
            return ""
        return (
            f"holds {manifest.get('source')} (verl {manifest.get('verl_version')}), "
            f"which is not what {source.label} holds now."
        )

    return Request(KIND, code_id, snapshots / code_id, build, differs, read_only=True)


def snapshot(
    shared_root: Path, source: Source, code_id: str | None = None, overlays: Sequence[Overlay] = (), **how: bool
) -> Staged:
    """Make the snapshot once; `how` as for staging.stage."""
    return stage(request(shared_root, source, code_id, overlays), **how)
