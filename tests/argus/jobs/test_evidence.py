from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.evidence import evidence
from argus.jobs.nodes import collect
from argus.jobs.services import OperationError


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    return made


def collects(monkeypatch: pytest.MonkeyPatch, function: Callable[[], Any]) -> None:
    """Let a function collect in place of the launcher."""

    def collect(_archive: Archive, moment: str) -> Any:
        assert moment == "demand"
        return function()

    monkeypatch.setattr(evidence, "collect", collect)


def test_a_node_that_hangs(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    collects(monkeypatch, lambda: time.sleep(30))
    alarms: list[int] = []
    monkeypatch.setattr("signal.alarm", alarms.append)
    message = r"sft-1 is incomplete: collecting it took longer than 0.3 s. .*/debug has"
    with pytest.raises(OperationError, match=message):
        collect(archive, timeout=0.3)
    assert alarms == [30]
