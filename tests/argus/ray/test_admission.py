"""One submission to Ray at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.ray.admission import (
    LOCK,
    POLL_SECONDS,
    one_at_a_time,
)


def test_a_second_submission_waits_for_the_first(tmp_path: Path) -> None:
    first = one_at_a_time(tmp_path)
    first.__enter__()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            first.__exit__(None, None, None)

    with one_at_a_time(tmp_path, sleep=sleep):
        assert slept == [POLL_SECONDS] * 3
    # It is free again.
    with one_at_a_time(tmp_path, sleep=sleep):
        assert len(slept) == 3


def test_the_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / LOCK).symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic"), one_at_a_time(tmp_path):
        pass
    assert not (tmp_path / "other").exists()
