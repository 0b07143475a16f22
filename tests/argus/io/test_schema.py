"""Every stored value has the type of its field, or there is one error that names the field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from argus.archive.failures import Failure, FailureKind
from argus.archive.plan import Plan
from argus.archive.status import Attempt, Status
from argus.io.schema import MalformedError, json_text, parse


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ([], "it is not a mapping"),
        (None, "it is not a mapping"),
        ({"workload": 7}, "workload: is not text"),
        ({"attempt": "2"}, "attempt: is not a whole number"),
        ({"attempt": True}, "attempt: is not a whole number"),
        ({"exit_code": 1.5}, "exit_code: is not a whole number"),
        ({"exit_code": 10**400}, "exit_code: is not between -9007199254740992 and 9007199254740992"),
        ({"started_at": "now"}, "started_at: is not a number"),
        ({"attempts": {}}, "attempts: is not a list"),
        ({"attempts": [7]}, "attempts: it is not a mapping"),
        ({"attempts": [{"state": 7}]}, "attempts: state: is not text"),
        ({"tags": []}, "tags: is not a mapping"),
        ({"lineage": {"resumed_from": 7}}, "lineage: is not text"),
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


def test_a_state_of_another_version_is_no_state() -> None:
    assert parse(Status, {"state": "EXPLODED"}).state is None


def test_a_plan() -> None:
    plan = parse(Plan, {"overrides": ["a=1"], "entrypoint_resources": {"worker_node": 1}, "deadline": None})
    assert (plan.overrides, plan.entrypoint_resources, plan.deadline) == (("a=1",), {"worker_node": 1}, None)
    assert parse(Plan, json.loads(json_text(plan))) == plan
    for stored, problem in (
        ({"overrides": "a=1"}, "overrides: is not a list"),
        ({"overrides": [1]}, "overrides: is not text"),
        ({"driver_env": {"A": 1}}, "driver_env: is not text"),
        ({"transfer_queue": 1}, "transfer_queue: is not true or false"),
    ):
        with pytest.raises(MalformedError, match=f"^{problem}$"):
            parse(Plan, stored)
