"""When jobs have to end because the machines of their cluster are taken away."""

from __future__ import annotations

import pytest

from argus.launcher import ending


def test_jobs_are_stopped_some_minutes_before() -> None:
    environment = ending.environment(1_795_358_505, 2.5)
    assert environment == {
        "ARGUS_VERL_STOP_AT": "1795358355",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1795358355",
    }
    assert ending.stop_at(environment) == 1_795_358_355
    assert ending.problem(1_795_358_354.9, environment) == ""
    assert "are stopped at 14:39 UTC on 2026-11-22" in ending.problem(1_795_358_355, environment)


def test_machines_that_stay() -> None:
    assert ending.environment(None, 5) == {}
    assert ending.stop_at({}) is None
    assert ending.problem(1e12, {}) == ""


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf"])
def test_what_is_no_time_stops_nothing(text: str) -> None:
    assert ending.stop_at({ending.STOP_AT: text}) is None
