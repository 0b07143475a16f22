from __future__ import annotations

import pytest

from argus.common.text import (
    LEAST_COLUMN,
    duration,
    filled,
    nearest,
    sentence,
    table,
)


def test_a_table_aligns_columns_and_shows_none_as_a_dash() -> None:
    assert table(("node", "gpus"), [("worker-0", 4), ("head", None)]) == "NODE      GPUS\nworker-0  4\nhead      -"


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


def test_a_hint_names_the_nearest_known_name() -> None:
    assert nearest("trainer_override", ["trainer_overrides", "workload"]) == 'did you mean "trainer_overrides"?'
    assert nearest("Workload", ["workload"]) == 'did you mean "workload"?'
    assert nearest("dataset", ["DataSet", "model"]) == 'did you mean "DataSet"?'
