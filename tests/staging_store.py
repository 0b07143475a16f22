"""Builds, processes, users, requests and results for the tests of staging."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from argus.staging import snapshots, source_tree, store
from argus.staging.lock import Progress
from argus.staging.manifest import Manifest, StageResult, file_problems, read_manifest
from argus.staging.options import StageOptions, StagingError
from argus.staging.store import BuildFunction, BuildRequest, BuildResult

# Processes that inherit the definitions of this one.
FORK = multiprocessing.get_context("fork")
NOBODY = 65534


def build(directory: Path, _progress: Progress) -> BuildResult:
    (directory / "train.parquet").write_text("rows")
    (directory / "more").mkdir()
    (directory / "more" / "val.parquet").write_text("")
    return BuildResult({"source": "here"})


def no_build(_directory: Path, _progress: Progress) -> BuildResult:
    raise AssertionError("built again")


def build_of(target: Path, how: BuildFunction = build, **details: object) -> BuildRequest:
    return BuildRequest("rl_dataset", target.name, target, how, **details)  # type: ignore[arg-type]


def siblings(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir())


def everything(directory: Path) -> dict[str, tuple[int, int]]:
    """Names, modes and modification times, to notice any change."""
    return {str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns) for path in directory.rglob("*")}


@contextlib.contextmanager
def process(work: Callable[[], object]) -> Iterator[BaseProcess]:
    child = FORK.Process(target=work)
    child.start()
    try:
        yield child
    finally:
        child.kill()
        child.join()


def until(condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def as_nobody(work: Callable[[], object]) -> object:
    """The result for a user other than root, or the text of the error; permissions do not stop root."""
    ours, theirs = FORK.Pipe(duplex=False)

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        try:
            theirs.send(work())
        except StagingError as error:
            theirs.send(str(error))

    with process(child):
        assert ours.poll(60)
        return ours.recv()


def stage(request: store.BuildRequest, **options: bool) -> StageResult:
    return store.stage(request, StageOptions(**options))


def manifest_json(target: Path) -> dict[str, Any]:
    """The manifest of a target as JSON."""
    manifest = read_manifest(target)
    assert manifest is not None, f"{target} does not exist"
    value: dict[str, Any] = json.loads(manifest.text())
    return value


def faults(target: Path, *, full: bool = False) -> dict[str, str]:
    """The problem of each file, as text."""
    return file_problems(target, read_manifest(target) or Manifest(), full=full)


def source_of(text: str, snapshots_directory: Path) -> source_tree.CodeSource:
    """A directory, or another snapshot."""
    if text.startswith("/"):
        return source_tree.verl_source(Path(text).resolve(), text)
    return snapshots.snapshot_source(snapshots_directory, text)


def overlay(path: Path, to: str) -> snapshots.Overlay:
    source = source_tree.overlay_source(path.resolve(), str(path))
    return source, snapshots.overlay_destination(source, to)


def snapshot(
    shared_root: Path,
    source: source_tree.CodeSource,
    code_id: str = "",
    overlays: Sequence[snapshots.Overlay] = (),
    **options: bool,
) -> StageResult:
    return stage(snapshots.build_request(shared_root, source, code_id, overlays), **options)
