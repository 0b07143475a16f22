from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.findings import (
    CELL_WIDTH,
    ERROR,
    WARNING,
    Finding,
    errors,
    findings_table,
)

FIRST = Finding("a", "small", "grow", WARNING)
SECOND = Finding("b", "gone", "bring it back", key="b.c")
THIRD = Finding("c", "wrong", "correct it")


def test_a_finding_is_an_error_without_a_key_by_default() -> None:
    assert (THIRD.severity, THIRD.key) == (ERROR, "")


def test_a_finding_travels_as_a_dictionary() -> None:
    assert SECOND.as_dict() == {
        "where": "b",
        "what": "gone",
        "todo": "bring it back",
        "severity": "error",
        "key": "b.c",
    }
    assert Finding(**SECOND.as_dict()) == SECOND


def test_errors_come_first_in_the_table() -> None:
    lines = findings_table([FIRST, SECOND, THIRD]).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["SEVERITY", "WHERE"],
        ["error", "b"],
        ["error", "c"],
        ["warning", "a"],
    ]
    assert lines[1].split(maxsplit=3) == ["error", "b", "gone", "bring it back"]


def test_the_key_is_not_in_the_table() -> None:
    assert "b.c" not in findings_table([SECOND])


def test_the_table_fits_a_terminal() -> None:
    long = Finding("x", "word " * 40, "todo " * 40)
    lines = findings_table([long]).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 2 * CELL_WIDTH + 20


@pytest.mark.parametrize("wrap", [list, tuple, iter])
def test_warnings_are_not_errors(wrap: type) -> None:
    assert errors(wrap([FIRST, SECOND, THIRD])) == [SECOND, THIRD]
    assert errors(wrap([FIRST])) == []
