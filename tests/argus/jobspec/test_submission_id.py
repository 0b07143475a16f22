from __future__ import annotations

import re

import pytest
from jobs import jobspec

from argus.jobspec.spec import new_submission_id


@pytest.mark.parametrize("identifier", ["a", "0", "grpo-7b.try_2", "a" * 63])
def test_valid_submission_ids(identifier: str) -> None:
    assert jobspec(submission_id=identifier).submission_id == identifier


def test_a_number_is_a_valid_submission_id() -> None:
    assert jobspec(submission_id=17).submission_id == "17"


def test_new_submission_ids_are_valid_and_unique() -> None:
    names = {new_submission_id("grpo") for _ in range(20)}
    assert len(names) == 20
    for name in names:
        assert re.fullmatch(r"grpo-\d{8}-\d{6}-[0-9a-f]{4}", name)
        assert jobspec(submission_id=name).submission_id == name
