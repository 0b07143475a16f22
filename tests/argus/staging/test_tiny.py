from __future__ import annotations

import re

from argus.staging.tiny import (
    problems,
)


def test_problems_are_the_same_at_every_call_and_have_their_answer() -> None:
    assert problems(20) == problems(40)[:20]
    for problem in problems(40):
        has, gets = map(int, re.findall(r"\d+", problem.question))
        assert problem.result == str(has + gets)
        assert problem.answer.endswith(f"\n#### {problem.result}")
