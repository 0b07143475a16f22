from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest
from jobs import MINIMAL

from argus.jobspec.limits import limit_findings
from argus.jobspec.parse import parse_jobspec


def nested(levels: int) -> Any:
    value: Any = "x"
    for _level in range(levels):
        value = [value]
    return value


def laughs(levels: int) -> Any:
    value: Any = ["x"] * 9
    for _level in range(levels):
        value = [value] * 9
    return value


def cycle() -> Any:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


LARGE = [
    ({"trainer_overrides": nested(200_000)}, "trainer_overrides.0", "is nested more than 32 levels deep"),
    ({"tags": cycle()}, "tags.a.a", "is nested more than 32 levels deep"),
    ({"tags": laughs(12)}, "jobspec", "has more than 10,000 values"),
    ({"tags": {"a": "x" * (1 << 20)}}, "jobspec", "has more than 1,048,576 characters"),
    ({"tags": ["x" * 1000] * 2000}, "jobspec", "has more than 1,048,576 characters"),
    ({"tags": {"a": "b\x1b[2J"}}, "tags.a", "contains the control character U+001B"),
    ({"tags": {"a\x9b": "b"}}, "tags.a?", "contains the control character U+009B"),
    ({"tags": {"a": "\ud800"}}, "tags.a", "contains the control character U+D800"),
    ({"tags": {"a": b"x"}}, "tags.a", "is a bytes"),
    ({"tags": {"a": float("nan")}}, "tags.a", "is nan"),
    ({"trainer_overrides": {"optim.lr": float("inf")}}, "trainer_overrides.optim.lr", "is inf"),
]


@pytest.mark.parametrize(("changes", "where", "what"), LARGE, ids=[what for _changes, _where, what in LARGE])
def test_a_jobspec_that_is_no_plain_data_of_a_sane_size(changes: Any, where: str, what: str) -> None:
    started = time.monotonic()
    findings, spec = parse_jobspec({**MINIMAL, **changes})
    assert time.monotonic() - started < 20
    assert spec is None
    (finding,) = findings
    assert finding.where.startswith(where)
    assert finding.problem == what
    assert finding.remedy


def test_what_jobspecs_contain() -> None:
    given = {**MINIMAL, "tags": {"day": date(2026, 1, 1), "text": "a\n\tb ä 漢 \u202e", 1: None, "n": 1.5, "is": True}}
    assert limit_findings(given) == []
    assert limit_findings({**MINIMAL, "trainer_overrides": nested(30)}) == []
    assert limit_findings({**MINIMAL, "trainer_overrides": [f"a.b{index}=1" for index in range(5000)]}) == []
