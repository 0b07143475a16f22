from __future__ import annotations

import pytest

from argus.common.text import (
    LEAST_COLUMN,
    duration,
    filled,
    sentence,
    table,
)


def test_a_table_aligns_columns_and_shows_none_as_a_dash() -> None:
    assert table(("node", "gpus"), [("worker-0", 4), ("head", None)]) == "NODE      GPUS\nworker-0  4\nhead      -"


def test_the_widest_columns_of_a_table_are_wrapped() -> None:
    header, rows = ("name", "what"), [("worker-0", "one two three four five six seven"), ("head", "x")]
    assert table(header, rows, width=43) == table(header, rows)
    narrow = ["NAME      WHAT", "worker-0  one two three four five", "          six seven", "head      x"]
    assert table(header, rows, width=8 + 2 + LEAST_COLUMN).splitlines() == narrow
    # A column would be narrower than the least one.
    assert table(header, rows, width=LEAST_COLUMN).splitlines() == narrow


COMMANDS = (
    "ansible-playbook -i inventories/prod playbooks/fetch.yml -e submission_id=grpo-1",
    'ansible-playbook playbooks/submit.yml -e \'set=["a=1", "b=2"]\' --check',
    "ansible-doc argus.verl.ray_job",
    "podman rm -fv mvp-ray-head",
    "-e allow_disruption=true",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_not_wrapped(command: str) -> None:
    lines = filled(f"run one of these: {command}, or wait", 24, "  ").splitlines()
    assert any(line.startswith(f"  {command},") for line in lines)


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("one two three", 9, "one two\n  three"),
        ("Reason:   one two three", 18, "Reason:   one two\n          three"),
        ("Fetch:    ansible-playbook x.yml -e a=b", 18, "Fetch:    ansible-playbook x.yml -e a=b"),
        # A line of a log, and a table.
        ("  one two three", 9, "  one two three"),
        ("x" * 30, 9, "x" * 30),
    ],
)
def test_sentences_are_wrapped(line: str, width: int | None, expected: str) -> None:
    assert sentence(line, width) == expected


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (59.9, "0:59"),
        (65, "1:05"),
        (3600, "1:00:00"),
        (7265, "2:01:05"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
