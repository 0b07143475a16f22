"""One submission to Ray at a time."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from argus.ray.admission import ADMISSION_LOCK, POLL_INTERVAL_SECONDS, admission_lock


def test_a_second_submission_waits_for_the_first(tmp_path: Path) -> None:
    first, slept = contextlib.ExitStack(), 0.0
    first.enter_context(admission_lock(tmp_path))

    def sleep(seconds: float) -> None:
        nonlocal slept
        slept += seconds
        first.close()

    for _round in range(2):
        with admission_lock(tmp_path, sleep=sleep):
            assert slept == POLL_INTERVAL_SECONDS


def test_the_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / ADMISSION_LOCK).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"), admission_lock(tmp_path):
        pass
    assert not (tmp_path / "other").exists()
