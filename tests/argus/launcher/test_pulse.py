from __future__ import annotations

import time
from pathlib import Path

import pytest

from argus.launcher.archive import HEARTBEAT_OF_STEWARD, Archive
from argus.launcher.pulse import has_steward


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "jobs" / "grpo-1")
    archive.reserve()
    return archive


def test_recent_heartbeat_is_enough(archive: Archive) -> None:
    archive.write_heartbeat(HEARTBEAT_OF_STEWARD, time=time.time(), host="head", pid=1)
    assert has_steward(archive, sleep=lambda _seconds: pytest.fail("nothing to wait for"))


def test_job_without_a_steward(archive: Archive) -> None:
    assert not has_steward(archive, sleep=lambda _seconds: pytest.fail("nothing to wait for"))


@pytest.mark.parametrize("skew", [-3600, 3600])
def test_steward_on_a_machine_with_another_time(archive: Archive, skew: float) -> None:
    beats = iter(range(1, 100))

    def sleep(_seconds: float) -> None:
        archive.write_heartbeat(HEARTBEAT_OF_STEWARD, time=time.time() + skew + next(beats), host="head", pid=1)

    archive.write_heartbeat(HEARTBEAT_OF_STEWARD, time=time.time() + skew, host="head", pid=1)
    assert has_steward(archive, sleep)


def test_steward_that_is_gone(archive: Archive) -> None:
    slept: list[float] = []
    archive.write_heartbeat(HEARTBEAT_OF_STEWARD, time=1.0, host="head", pid=1)
    assert not has_steward(archive, slept.append)
    # Longer than the longest pause of a steward.
    assert sum(slept) > 5
