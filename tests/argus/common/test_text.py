from __future__ import annotations

import pytest

from argus.common.text import MIN_COLUMN_WIDTH, duration, table, wrap_line, wrap_sentence


def test_the_widest_columns_of_a_table_are_wrapped() -> None:
    header, rows = ("name", "what"), [("worker-0", "one two three four five six seven"), ("head", None)]
    assert table(header, rows, width=43) == table(header, rows)
    narrow = ["NAME      WHAT", "worker-0  one two three four five", "          six seven", "head      -"]
    assert table(header, rows, width=8 + 2 + MIN_COLUMN_WIDTH).splitlines() == narrow
    # A column would be narrower than the least one.
    assert table(header, rows, width=MIN_COLUMN_WIDTH).splitlines() == narrow


COMMANDS = (
    'ansible-playbook playbooks/submit.yml -e \'set=["a=1", "b=2"]\' --check',
    "podman rm -fv mvp-ray-head",
    "-e allow_disruption=true",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_not_wrapped(command: str) -> None:
    lines = wrap_line(f"run one of these: {command}, or wait", 24, "  ").splitlines()
    assert any(line.startswith(f"  {command},") for line in lines)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("one two three four five", "one two three four\n  five"),
        ("Reason:   one two three", "Reason:   one two\n          three"),
        ("Fetch:    ansible-playbook x.yml -e a=b", "Fetch:    ansible-playbook x.yml -e a=b"),
        # A line of a log, and a table.
        ("  one two three four five", "  one two three four five"),
    ],
)
def test_sentences_are_wrapped(line: str, expected: str) -> None:
    assert wrap_sentence(line, 18) == expected


def test_durations() -> None:
    assert [duration(seconds) for seconds in (65, 3600)] == ["1:05", "1:00:00"]
