from __future__ import annotations

import pytest
from ansible_collections.argus.verl.plugins.module_utils.text import (
    duration,
    edits,
    misspelt,
    nearest,
    one_line,
    size_text,
    table,
    wrapped,
)


def test_a_table_aligns_columns_and_shows_none_as_a_dash() -> None:
    assert table(("node", "gpus"), [("worker-0", 4), ("head", None)]) == "NODE      GPUS\nworker-0  4\nhead      -"


def test_a_table_without_rows_has_a_header() -> None:
    assert table(("node", "gpus"), []) == "NODE  GPUS"


def test_a_table_wraps_wide_cells() -> None:
    assert table(("a", "b"), [("x", "one two three")], width=7) == "A  B\nx  one two\n   three"


def test_wrapped_cells_keep_their_lines() -> None:
    what = "is not fit to be trained on:\n- train: has no messages: 1 row\n\n- val: is too long for this table\n"
    assert wrapped(["dataset sums", what], 32) == [
        ["dataset sums", "is not fit to be trained on:"],
        ["", "- train: has no messages: 1 row"],
        ["", "- val: is too long for this"],
        ["", "table"],
    ]


def test_paths_and_commands_are_never_broken() -> None:
    assert wrapped(["/private/common/code/verl-0.9.1 x", ""], 10) == [
        ["/private/common/code/verl-0.9.1", ""],
        ["x", ""],
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0:00"),
        (0, "0:00"),
        (59.9, "0:59"),
        (60, "1:00"),
        (65, "1:05"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (7265, "2:01:05"),
        (90_000, "25:00:00"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (12 << 20, "12 MiB"),
        ((1 << 30) - 1, "1024 MiB"),
        (1 << 30, "1.0 GiB"),
        (1.5 * (1 << 30), "1.5 GiB"),
        (1023 << 30, "1023.0 GiB"),
        (1 << 40, "1.0 TiB"),
        (2100 << 30, "2.1 TiB"),
    ],
)
def test_sizes(size: float, text: str) -> None:
    assert size_text(size) == text


def test_one_line() -> None:
    assert one_line("  two\n\tlines  and\r\nblanks. ") == "two lines and blanks"
    assert one_line("a long text", limit=6) == "a long"
    assert one_line(ValueError("not\nvalid.")) == "not valid"


def test_a_hint_names_the_nearest_known_name() -> None:
    assert nearest("trainer_override", ["trainer_overrides", "workload"]) == 'did you mean "trainer_overrides"?'
    assert nearest("Workload", ["workload"]) == 'did you mean "workload"?'
    assert nearest("dataset", ["DataSet", "model"]) == 'did you mean "DataSet"?'


def test_there_is_no_hint_without_a_similar_name() -> None:
    assert nearest("xyz", ["trainer_overrides", "workload"]) == ""
    assert nearest("x", []) == ""


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("", "", 0),
        ("same", "same", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("abc", "abcd", 1),
        ("abc", "bc", 1),
        ("abc", "axc", 1),
        ("abc", "acb", 1),
        ("abcd", "badc", 2),
        ("abc", "cab", 2),
        ("kitten", "sitting", 3),
    ],
)
def test_edits(one: str, other: str, count: int) -> None:
    assert edits(one, other) == edits(other, one) == count


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        # One edit is a mistake in any name, two only in one of 12 characters or more.
        ("jobspecs", "jobspec", True),
        ("jobspecst", "jobspec", False),
        ("xesume_frox", "resume_from", False),
        ("xluster_namx", "cluster_name", True),
        ("xlusterxnamx", "cluster_name", False),
        ("CLUSTER_NAMES", "cluster_name", True),
        ("my_cluster_name", "cluster_name", False),
        ("x", "jobspec", False),
    ],
)
def test_a_hint_for_a_name_that_is_almost_certainly_misspelt(name: str, known: str, hint: bool) -> None:
    assert misspelt(name, ["other", known]) == (f'did you mean "{known}"?' if hint else "")
    assert misspelt(name, []) == ""
