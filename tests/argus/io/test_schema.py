"""Every stored value has the type of its field, or there is one error that names the field."""

from __future__ import annotations

from typing import Any

import pytest

from argus.archive.failures import Failure, FailureKind
from argus.archive.status import Attempt, Status
from argus.io.schema import MalformedError, parse


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ([], "it is not a mapping"),
        ({"attempt": True}, "attempt: is not a whole number"),
        ({"exit_code": 1.5}, "exit_code: is not a whole number"),
        ({"exit_code": 10**400}, "exit_code: is not between -9007199254740992 and 9007199254740992"),
        ({"started_at": "now"}, "started_at: is not a number"),
        ({"attempts": {}}, "attempts: is not a list"),
        ({"attempts": [7]}, "attempts: it is not a mapping"),
        ({"tags": []}, "tags: is not a mapping"),
        ({"failure": {"lines": "abc"}}, "failure: lines: is not a list"),
        ({"state": 7}, "state: is not text"),
    ],
)
def test_a_malformed_status(stored: Any, problem: str) -> None:
    with pytest.raises(MalformedError) as error:
        parse(Status, stored)
    assert str(error.value) == problem


def test_values_are_typed() -> None:
    stored = {
        "state": "FAILED",
        "attempt": 2,
        "attempts": [{"attempt": 1, "state": "FAILED", "later": "a key of another version"}],
        "tags": {"a": "b", "c": 7, "d": None, "e": 1.5},
        "started_at": 7,
        "exit_code": -9,
        "failure": {"kind": "killed", "lines": ["a"], "reason": None},
        "reason": None,
        "later": {"of": ["another", "version"]},
    }
    status = parse(Status, stored)
    assert (status.state, status.attempt, status.tags) == ("FAILED", 2, stored["tags"])
    assert status.attempts == (Attempt(1, "FAILED"),)
    assert status.failure == Failure(FailureKind.KILLED, "", ("a",))
    assert (status.started_at, status.exit_code, status.reason) == (7, -9, "")
    assert parse(Status, {}) == Status()
