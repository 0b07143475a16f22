from __future__ import annotations

import itertools
import re

import pytest

from argus.common.text import (
    LEAST_COLUMN,
    duration,
    filled,
    nearest,
    one_line,
    sentence,
    size_text,
    table,
)


def test_a_table_aligns_columns_and_shows_none_as_a_dash() -> None:
    assert table(("node", "gpus"), [("worker-0", 4), ("head", None)]) == "NODE      GPUS\nworker-0  4\nhead      -"


def test_a_table_without_rows_has_a_header() -> None:
    assert table(("node", "gpus"), []) == "NODE  GPUS"


def test_a_table_wraps_wide_cells() -> None:
    assert table(("a", "b"), [("x", "one two three")], cell=7) == "A  B\nx  one two\n   three"


def test_wrapped_cells_keep_their_lines_and_paths() -> None:
    what = "is not fit:\n- train: has no messages\n\n- /private/common/code/verl-0.9.1 x"
    assert table(("a", "b"), [("sums", what)], cell=22).splitlines()[1:] == [
        "sums  is not fit:",
        "      - train: has no messages",
        "",
        "      -",
        "      /private/common/code/verl-0.9.1",
        "      x",
    ]


def test_the_widest_columns_of_a_table_are_wrapped() -> None:
    header, rows = ("name", "what"), [("worker-0", "one two three four five six seven"), ("head", "x")]
    assert table(header, rows, width=43) == table(header, rows)
    narrow = ["NAME      WHAT", "worker-0  one two three four five", "          six seven", "head      x"]
    assert table(header, rows, width=8 + 2 + LEAST_COLUMN).splitlines() == narrow
    # A column would be narrower than the least one.
    assert table(header, rows, width=LEAST_COLUMN).splitlines() == narrow


@pytest.mark.parametrize(
    ("lengths", "width", "expected"),
    [
        ((4, 70), 30, [4, 24]),
        ((4, 70), 200, [4, 70]),
        ((60, 40), 60, [29, 29]),
        ((4, 30, 70), 80, [4, 30, 42]),
    ],
)
def test_how_wide_columns_are(lengths: tuple[int, ...], width: int, expected: list[int]) -> None:
    row = [" ".join("x" * (length // 2 + 1))[:length] for length in lengths]
    header, first, *_further = table(["h" * 3] * len(lengths), [row], width=width).splitlines()
    assert header.count("HHH") == len(lengths)
    begins = [0, *(match.end() for match in re.finditer(" {2,}", first)), len(first) + 2]
    shown = [end - begin - 2 for begin, end in itertools.pairwise(begins)]
    # A line breaks before or behind a word of one letter.
    assert all(limit - 1 <= part <= limit for part, limit in zip(shown, expected, strict=True))


COMMANDS = (
    "ansible-playbook -i inventories/prod playbooks/fetch.yml -e submission_id=grpo-1",
    "cluster_up.yml -e rotate_token=true -e allow_disruption=true",
    'ansible-playbook playbooks/submit.yml -e \'set=["a=1", "b=2"]\' --check',
    "docker image prune",
    "ansible-doc argus.verl.ray_job",
    "docker logs mvp-ray-head",
    "podman rm -fv mvp-ray-head",
    "-e allow_disruption=true",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_not_wrapped(command: str) -> None:
    lines = filled(f"run one of these: {command}, or wait", 24, "  ").splitlines()
    assert any(line.startswith(f"  {command},") for line in lines)


def test_a_very_long_line_is_wrapped_without_looking_for_commands() -> None:
    lines = filled(f"{'word ' * 2000}docker image prune", 24).splitlines()
    assert max(map(len, lines)) <= 24


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("one two three", 9, "one two\n  three"),
        ("one two three", None, "one two three"),
        ("Reason:   one two three", 18, "Reason:   one two\n          three"),
        ("Fetch:    ansible-playbook x.yml -e a=b", 18, "Fetch:    ansible-playbook x.yml -e a=b"),
        # A line of a log, and a table.
        ("  one two three", 9, "  one two three"),
        ("one two\nthree four", 9, "one two\nthree four"),
        ("x" * 30, 9, "x" * 30),
    ],
)
def test_sentences_are_wrapped(line: str, width: int | None, expected: str) -> None:
    assert sentence(line, width) == expected


def test_sentences_are_not_wider_than_people_read() -> None:
    assert max(map(len, sentence("word " * 60, 300).splitlines())) == 119


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
