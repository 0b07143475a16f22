"""The acceptance list of docs/from_compose.md: every line is read, and a test of a training has to see it."""

from __future__ import annotations

import re

from acceptance import LINES
from system import REPO


def test_each_line_is_seen_by_a_training() -> None:
    trainings = "".join(file.read_text() for file in (REPO / "tests" / "training").glob("test_*.py"))
    assert list(LINES) == [*(f"1.{number}" for number in range(1, 8)), *(f"2.{number}" for number in range(1, 5))]
    assert set(re.findall(r'"([12]\.\d)"', trainings)) >= LINES.keys()
