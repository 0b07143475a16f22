from __future__ import annotations

import os
from pathlib import Path

import pytest

from argus.jobs.listing import (
    LEAST_BYTES,
    LEAST_FILES,
    root_problem,
)


def measured(
    flags: int = 0, blocks: int = 1000, free: int = 1000, files: int = 100, free_files: int = 100
) -> os.statvfs_result:
    return os.statvfs_result((4096, 4096, blocks, free, free, files, free_files, free_files, flags, 255))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (measured(), ""),
        (measured(flags=os.ST_RDONLY | os.ST_NOSUID, free=0), "The shared root is mounted read-only: /srv"),
        (measured(flags=os.ST_NOSUID), ""),
        (measured(free=LEAST_BYTES // 4096), ""),
        (measured(free=LEAST_BYTES // 4096 - 1), "The shared root is full: /srv has 1020 KiB free"),
        (measured(free=0), "The shared root is full: /srv has 0 KiB free"),
        (measured(free_files=LEAST_FILES), ""),
        (measured(free_files=LEAST_FILES - 1), "The shared root is full: /srv has 15 inodes free"),
        # What such a file system does not count.
        (measured(blocks=0, free=0), ""),
        (measured(files=0, free_files=0), ""),
    ],
)
def test_what_is_measured(found: os.statvfs_result, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _root: found)
    assert root_problem(Path("/srv")) == expected


def test_a_real_one(tmp_path: Path) -> None:
    assert root_problem(tmp_path) == ""
    assert root_problem(tmp_path / "none").startswith("The shared root cannot be examined: ")
