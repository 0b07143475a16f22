"""Every stored value has the type of its field, or there is one error that names the field."""

from __future__ import annotations

from typing import Any

import pytest

from argus.archive.failures import Failure, FailureKind
from argus.archive.status import Attempt, Status
from argus.io.schema import MalformedError, parse


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        ([], "it"),
        *(({"exit_code": value}, "exit_code:") for value in (True, 1.5, 10**400)),
        ({"started_at": "now"}, "started_at:"),
        *(({"attempts": value}, "attempts:") for value in ({}, [7])),
        ({"tags": []}, "tags:"),
        ({"failure": {"lines": "abc"}}, "failure: lines:"),
        ({"state": 7}, "state:"),
    ],
)
def test_a_malformed_status(stored: Any, place: str) -> None:
    with pytest.raises(MalformedError, match=f"^{place} (it )?is not "):
        parse(Status, stored)


def test_values_are_typed() -> None:
    stored = {
        "state": "FAILED",
        "attempt": 2,
        "attempts": [{"attempt": 1, "state": "FAILED", "later": "a key of another version"}],
        "tags": {"a": "b", "c": 7, "d": None, "e": 1.5},
        **{"started_at": 7, "exit_code": -9, "reason": None, "later": {"of": ["another", "version"]}},
        "failure": {"kind": "killed", "lines": ["a"], "reason": None},
    }
    status = parse(Status, stored)
    assert (status.state, status.attempt, status.tags) == ("FAILED", 2, stored["tags"])
    assert status.attempts == (Attempt(1, "FAILED"),)
    assert status.failure == Failure(FailureKind.KILLED, "", ("a",))
    assert (status.started_at, status.exit_code, status.reason) == (7, -9, "")
    assert parse(Status, {}) == Status()
