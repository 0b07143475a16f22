"""Faults are made in a real cluster, and what they did becomes the table of docs/faults.md."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from faults import FUSE, RUNS, record
from shared_cluster import submit
from system import SHARED_ROOT

__all__ = ["submit"]


@pytest.fixture(autouse=True, scope="session")
def fuse() -> Iterator[None]:
    """The shared root as a file system of FUSE, where there is one."""
    if not shutil.which(FUSE):
        yield
        return
    behind = SHARED_ROOT.with_name("behind")
    for directory in (behind, SHARED_ROOT):
        directory.mkdir(parents=True, exist_ok=True)
    subprocess.run([FUSE, "-o", "allow_other,nonempty", str(behind), str(SHARED_ROOT)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(SHARED_ROOT)], check=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("CHAOS_PAGE") and RUNS:
        record()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for run in RUNS:
        terminalreporter.line(str(run))
