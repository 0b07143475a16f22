from __future__ import annotations

import time

import pytest

from argus.archive.archive import Archive
from argus.evidence import evidence
from argus.jobs.evidence import collect
from argus.jobs.services import OperationError


def test_a_node_that_hangs(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "collect", lambda _archive, _moment: time.sleep(30))
    alarms: list[int] = []
    monkeypatch.setattr("signal.alarm", alarms.append)
    with pytest.raises(OperationError, match=r"is incomplete: .* longer than 0.3 s"):
        collect(archive, timeout=0.3)
    assert alarms == [30]
