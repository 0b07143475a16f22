# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Removes a model or a dataset, and what only it needs in the hub's cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .hub.cache import forget
from .hub.library import load_library
from .manifest import Manifest, read_manifest
from .result import Staged, Status
from .store import remove


@dataclass(frozen=True)
class Removal:
    """Something that may have been downloaded from the hub.

    hub_kind: the library's word for it. is_needed: whether something else still needs the commit of this manifest.
    """

    kind: str
    name: str
    target: Path
    cache: Path
    hub_kind: str
    is_needed: Callable[[Manifest], bool]


def remove_downloaded(removal: Removal, users: Callable[[Path], Sequence[str]], *, check: bool = False) -> Staged:
    """Removes the target unless jobs use it; `users` returns their submission ids."""
    manifest = None if check else read_manifest(removal.target)
    commit = manifest.commit if manifest else None
    if commit:
        # If the library is missing, this fails before anything is removed.
        load_library(removal.cache)
    removed = remove(removal.kind, removal.name, removal.target, lambda: users(removal.target), check=check)
    if manifest and commit and removed.status is Status.REMOVED and not removal.is_needed(manifest):
        forget(removal.cache, manifest.source, commit, removal.hub_kind)
    return removed
