# SPDX-License-Identifier: Apache-2.0
"""Removes a staged item that no job uses, and what was downloaded only for it."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path

from ..common.shared_root import HUB_CACHE
from .hub import delete_revision
from .lock import hold_lock
from .manifest import Manifest, read_manifest
from .options import StagingError, as_staging_errors
from .result import StageResult, Status
from .store import new_sibling, remove_leftovers, remove_leftovers_if_unlocked
from .usage import jobs_using


def remove(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> StageResult:
    """Removes an item. Raises StagingError if jobs use it, or if another kind of item is at its path."""
    result = partial(StageResult, kind, name, str(target))
    with as_staging_errors(target, "removed"):
        manifest = read_manifest(target)
        if manifest is None:
            if not check:
                remove_leftovers_if_unlocked(target)
            return result(Status.ABSENT)
        if manifest.kind != kind:
            raise StagingError(target, f"is of kind {manifest.kind}, not {kind}.", "Nothing was removed.")
        with contextlib.nullcontext() if check else hold_lock(target):
            # The previous holder of the lock may have done it.
            if not os.path.lexists(target):
                return result(Status.ABSENT)
            if jobs := jobs_using(shared_root, target):
                remedy = "Wait until these jobs have ended, or stop them (stop.yml)."
                raise StagingError(target, f"is used by {', '.join(jobs)}.", remedy)
            if not check:
                # The rename removes it at once, even if deleting its files fails.
                target.rename(new_sibling(target))
                remove_leftovers(target)
        return result(Status.REMOVED)


def remove_downloaded(shared_root: Path, kind: str, name: str, target: Path, *, check: bool = False) -> StageResult:
    """Removes an item that may come from the hub, and its commit from the cache unless another item needs that."""
    manifest = None if check else read_manifest(target)
    removed = remove(shared_root, kind, name, target, check=check)
    if not manifest or not manifest.commit or removed.status is not Status.REMOVED:
        return removed
    if not any(needs_commit(path, manifest) for path in target.parent.iterdir()):
        repo_type = "model" if kind == "model" else "dataset"
        delete_revision(shared_root / HUB_CACHE, manifest.source, manifest.commit, repo_type)
    return removed


def needs_commit(path: Path, manifest: Manifest) -> bool:
    """Whether the item at a path needs the commit of a manifest; it may also be a link that a user has made."""
    other = None
    # What was not staged has no manifest.
    with contextlib.suppress(StagingError):
        other = read_manifest(path)
    same = other is not None and (other.source, other.commit) == (manifest.source, manifest.commit)
    return same or path.resolve().name == manifest.commit
