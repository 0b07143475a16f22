from __future__ import annotations

import os
from pathlib import Path

import pytest

from argus.jobs.listing import MIN_FREE_BYTES, MIN_FREE_INODES, root_problem

BLOCKS = MIN_FREE_BYTES // 4096


@pytest.mark.parametrize(
    ("flags", "blocks", "free", "files", "free_files", "expected"),
    [
        (os.ST_NOSUID, 1000, BLOCKS, 100, MIN_FREE_INODES, ""),
        (os.ST_RDONLY | os.ST_NOSUID, 1000, 0, 100, 100, "The shared root is mounted read-only: /srv"),
        (0, 1000, BLOCKS - 1, 100, 100, "The shared root is full: /srv has 1020 KiB free"),
        (0, 1000, 1000, 100, MIN_FREE_INODES - 1, "The shared root is full: /srv has 15 inodes free"),
        # Such a file system does not count them.
        (0, 0, 0, 0, 0, ""),
    ],
)
def test_what_is_measured(
    flags: int, blocks: int, free: int, files: int, free_files: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, flags, 255))
    monkeypatch.setattr(os, "statvfs", lambda _root: statistics)
    assert root_problem(Path("/srv")) == expected


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    assert root_problem(tmp_path / "none").startswith("The shared root cannot be examined: ")
