"""Every stored value has the type of its field, or there is one error that names the field."""

from __future__ import annotations

from typing import Any

import pytest

from argus.launcher.plan import Plan
from argus.launcher.schema import MalformedError, parse, seconds_of
from argus.launcher.status import Attempt, Status, StoredFailure


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ([], "it is not a mapping"),
        (None, "it is not a mapping"),
        ({"workload": 7}, "workload: is not text"),
        ({"attempt": "2"}, "attempt: is not a whole number"),
        ({"attempt": True}, "attempt: is not a whole number"),
        ({"attempt": 10**9}, "attempt: is not between 1 and 1000"),
        ({"attempt": 0}, "attempt: is not between 1 and 1000"),
        ({"exit_code": 1.5}, "exit_code: is not a whole number"),
        ({"exit_code": 10**400}, "exit_code: is not between -9007199254740992 and 9007199254740992"),
        ({"started_at": "now"}, "started_at: is not a number"),
        ({"started_at": float("nan")}, "started_at: is not between -9007199254740992 and 9007199254740992"),
        ({"ended_at": 1e12}, "ended_at: is not between -62135596800 and 253402300799"),
        ({"updated_at": "soon"}, "updated_at: is not a time (Invalid isoformat string: 'soon')"),
        ({"attempts": {}}, "attempts: is not a list"),
        ({"attempts": [7]}, "attempts: it is not a mapping"),
        ({"attempts": [{"state": 7}]}, "attempts: state: is not text"),
        ({"attempts": [{}] * 1001}, "attempts: has more than 1000 entries"),
        ({"attempts": [{}] * 10_001}, "attempts: has more than 10000 entries"),
        ({"tags": {"a": []}}, "tags: is not a plain value"),
        ({"tags": []}, "tags: is not a mapping"),
        ({"lineage": {"resumed_from": 7}}, "lineage: is not text"),
        ({"failure": {"lines": "abc"}}, "failure: lines: is not a list"),
        ({"state": 7}, "state: is not text"),
        ({"reason": "\ud800"}, "reason: has characters that no text has"),
        ({"reason": "\0"}, "reason: has characters that no text has"),
        ({"reason": "x" * 131_073}, "reason: has more than 131072 characters"),
    ],
)
def test_a_malformed_status(stored: Any, problem: str) -> None:
    with pytest.raises(MalformedError) as error:
        Status.from_json(stored)
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
    status = Status.from_json(stored)
    assert (status.state, status.attempt, status.tags) == ("FAILED", 2, stored["tags"])
    assert status.attempts == (Attempt(1, "FAILED"),)
    assert status.failure == {"kind": "killed", "reason": "", "lines": ["a"], "todo": ""}
    assert (status.started_at, status.exit_code, status.reason) == (7, -9, "")
    assert Status.from_json({}) == Status()


def test_a_state_of_another_version_is_no_state() -> None:
    assert Status.from_json({"state": "EXPLODED"}).state is None


def test_a_plan() -> None:
    plan = Plan.from_json({"overrides": ["a=1"], "entrypoint_resources": {"worker_node": 1}, "deadline": None})
    assert (plan.overrides, plan.entrypoint_resources, plan.deadline) == (("a=1",), {"worker_node": 1}, None)
    assert Plan.from_json(plan.to_json()) == plan
    for stored, problem in (
        ({"overrides": "a=1"}, "overrides: is not a list"),
        ({"overrides": [1]}, "overrides: is not text"),
        ({"retries": -1}, "retries: is not between 0 and 9007199254740992"),
        ({"driver_env": {"A": 1}}, "driver_env: is not text"),
        ({"entrypoint_resources": {"a": -1}}, "entrypoint_resources: is not between 0 and 9007199254740992"),
        ({"transfer_queue": 1}, "transfer_queue: is not true or false"),
    ):
        with pytest.raises(MalformedError, match=f"^{problem}$"):
            Plan.from_json(stored)


def test_seconds_of_a_time() -> None:
    assert seconds_of("1970-01-01T00:00:07Z") == seconds_of("1970-01-01T01:00:07+01:00") == 7
    # Not the zone of this machine.
    assert seconds_of("1970-01-01T00:00:07") == 7
    assert seconds_of("") == 0
    with pytest.raises(MalformedError):
        seconds_of("10000-01-01T00:00:00Z")


def test_a_key_that_is_missing() -> None:
    assert parse(StoredFailure, {}) == StoredFailure()
