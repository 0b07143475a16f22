"""When jobs have to end because the machines of their cluster are taken away."""

from __future__ import annotations

import pytest

from argus.ray import departures


def test_jobs_are_stopped_some_minutes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = departures.ending_environment(1_795_358_505, 2.5)
    assert environment == {
        "ARGUS_VERL_STOP_AT": "1795358355",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1795358355",
    }
    monkeypatch.setenv(departures.STOP_AT, environment[departures.STOP_AT])
    assert departures.stop_at() == 1_795_358_355
    assert departures.ending_problem(1_795_358_354.9) == ""
    assert "are stopped at 14:39 UTC on 2026-11-22" in departures.ending_problem(1_795_358_355)


@pytest.mark.parametrize("text", ["", "soon", "nan"])
def test_what_is_no_time_stops_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(departures.STOP_AT, text)
    assert departures.stop_at() is None and departures.ending_problem(1e12) == ""
