"""Helpers for the tests of staging: requests, results as JSON, and processes that run at the same time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from argus.staging import snapshots, source_tree, store
from argus.staging.manifest import Manifest, Staged, read_manifest
from argus.staging.manifest import problems as file_problems
from argus.staging.options import StageOptions


def stage(request: store.BuildRequest, **options: bool) -> Staged:
    return store.stage(request, StageOptions(**options))


def manifest_json(target: Path) -> dict[str, Any]:
    """The manifest of a target as JSON."""
    manifest = read_manifest(target)
    assert manifest is not None, f"{target} does not exist"
    value: dict[str, Any] = json.loads(manifest.text())
    return value


def problems(target: Path, *, full: bool = False) -> dict[str, str]:
    """What is wrong with each file, as text."""
    return file_problems(target, read_manifest(target) or Manifest(), full=full)


def source_of(text: str, snapshots_directory: Path) -> source_tree.CodeSource:
    """A directory, or another snapshot."""
    if text.startswith("/"):
        return source_tree.directory(Path(text).resolve(), text)
    return snapshots.snapshot_source(snapshots_directory, text)


def overlay(path: Path, to: str) -> snapshots.Overlay:
    source = source_tree.overlay(path.resolve(), str(path))
    return source, snapshots.destination(source, to)


def snapshot(
    shared_root: Path,
    source: source_tree.CodeSource,
    code_id: str = "",
    overlays: Sequence[snapshots.Overlay] = (),
    **options: bool,
) -> Staged:
    return stage(snapshots.request(shared_root, source, code_id, overlays), **options)
