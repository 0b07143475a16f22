"""When jobs have to end because the machines of their cluster are taken away."""

from __future__ import annotations

import pytest

from argus.ray import ending


def test_jobs_are_stopped_some_minutes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = ending.environment(1_795_358_505, 2.5)
    assert environment == {
        "ARGUS_VERL_STOP_AT": "1795358355",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1795358355",
    }
    monkeypatch.setenv(ending.STOP_AT, environment[ending.STOP_AT])
    assert ending.stop_at() == 1_795_358_355
    assert ending.problem(1_795_358_354.9) == ""
    assert "are stopped at 14:39 UTC on 2026-11-22" in ending.problem(1_795_358_355)


def test_machines_that_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ending.STOP_AT, raising=False)
    assert ending.environment(None, 5) == {}
    assert ending.stop_at() is None
    assert ending.problem(1e12) == ""


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf"])
def test_what_is_no_time_stops_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ending.STOP_AT, text)
    assert ending.stop_at() is None
