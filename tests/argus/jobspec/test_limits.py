from __future__ import annotations

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


def billion_laughs(levels: int) -> Any:
    value: Any = ["x"] * 9
    for _level in range(levels):
        value = [value] * 9
    return value


def cycle() -> Any:
    value: dict[str, Any] = {}
    value["a"] = value
    return value


LARGE = [
    # The changes, and the beginning of the place.
    ({"trainer_overrides": nested(200_000)}, "trainer_overrides.0"),
    ({"tags": cycle()}, "tags.a.a"),
    ({"tags": billion_laughs(12)}, "jobspec"),
    ({"tags": [None] * 20_000}, "jobspec"),
    ({"tags": {"a": "x" * (1 << 20)}}, "jobspec"),
    ({"tags": ["x" * 1000] * 2000}, "jobspec"),
    ({"tags": {"a": "b\x1b[2J"}}, "tags.a"),
    ({"tags": {"a\x9b": "b"}}, "tags.a?"),
    ({"tags": {"a": "\ud800"}}, "tags.a"),
    ({"tags": {"a": b"x"}}, "tags.a"),
    ({"trainer_overrides": {"optim.lr": float("inf")}}, "trainer_overrides.optim.lr"),
]


@pytest.mark.parametrize(("changes", "where"), LARGE, ids=range(len(LARGE)))
def test_a_jobspec_that_is_no_plain_data_of_a_sane_size(changes: Any, where: str) -> None:
    (finding,), spec = parse_jobspec({**MINIMAL, **changes})
    assert spec is None
    assert finding.where.startswith(where)


def test_what_jobspecs_contain() -> None:
    values = {**MINIMAL, "tags": {"day": date(2026, 1, 1), "text": "a\n\tb ä 漢 \u202e", 1: None, "n": 1.5, "is": True}}
    assert limit_findings(values) == []
    assert limit_findings({**MINIMAL, "trainer_overrides": nested(30)}) == []
    assert limit_findings({**MINIMAL, "trainer_overrides": [f"a.b{index}=1" for index in range(5000)]}) == []
