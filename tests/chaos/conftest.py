"""Faults are made in a real cluster, and what they did becomes the table of docs/faults.md."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from faults import BEHIND, FUSE, RUNS, record
from shared_cluster import submit
from system import SHARED_ROOT

__all__ = ["submit"]
DISK = "16G"


@pytest.fixture(autouse=True, scope="session")
def fuse() -> Iterator[None]:
    """The shared root as a file system of FUSE over a disk of its own, where there is one. It is empty at first."""
    if not shutil.which(FUSE):
        yield
        return
    for directory in (BEHIND, SHARED_ROOT):
        directory.mkdir(parents=True, exist_ok=True)
    image = BEHIND.with_suffix(".img")
    subprocess.run(["truncate", "--size", DISK, str(image)], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(BEHIND)], check=True)
    subprocess.run([FUSE, "-o", "allow_other,nonempty", str(BEHIND), str(SHARED_ROOT)], check=True)
    try:
        yield
    finally:
        for mounted in (SHARED_ROOT, BEHIND):
            # The process that serves the one holds the other for a moment.
            subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def pytest_runtest_teardown() -> None:
    for run in RUNS:
        print(run)
    if os.environ.get("CHAOS_PAGE"):
        record()
    RUNS.clear()
