"""Builds, processes and users for the tests of staging."""

from __future__ import annotations

import contextlib
import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

from argus.staging.lock import Progress
from argus.staging.options import StagingError
from argus.staging.store import Build, BuildRequest, Built

# Processes that inherit the definitions of this one.
FORK = multiprocessing.get_context("fork")
NOBODY = 65534


def build(directory: Path, _progress: Progress) -> Built:
    (directory / "train.parquet").write_text("rows")
    (directory / "more").mkdir()
    (directory / "more" / "val.parquet").write_text("")
    return Built({"source": "here"})


def no_build(_directory: Path, _progress: Progress) -> Built:
    raise AssertionError("built again")


def asked(target: Path, how: Build = build, **details: object) -> BuildRequest:
    return BuildRequest("rl_dataset", target.name, target, how, **details)  # type: ignore[arg-type]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
