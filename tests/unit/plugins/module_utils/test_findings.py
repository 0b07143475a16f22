from __future__ import annotations

from ansible_collections.argus.verl.plugins.module_utils.findings import WARNING, Finding, errors, findings_table
from ansible_collections.argus.verl.plugins.module_utils.text import nearest, table, wrapped


def test_table_aligns_columns_and_shows_what_is_not_known_as_a_dash() -> None:
    assert table(("node", "gpus"), [("worker-0", 4), ("head", None)]) == "NODE      GPUS\nworker-0  4\nhead      -"


def test_findings_table_has_errors_first() -> None:
    findings = [Finding("a", "small", "grow", WARNING), Finding("b", "gone", "bring it back")]
    lines = findings_table(findings).splitlines()
    assert [line.split()[0] for line in lines] == ["SEVERITY", "error", "warning"]
    assert errors(findings) == [findings[1]]


def test_lines_of_a_cell_stay_lines_and_long_ones_go_on_below() -> None:
    what = "is not fit to be trained on:\n- train: has no messages: 1 row\n\n- val: is too long for this table\n"
    assert wrapped(["dataset sums", what], 32) == [
        ["dataset sums", "is not fit to be trained on:"],
        ["", "- train: has no messages: 1 row"],
        ["", "- val: is too long for this"],
        ["", "table"],
    ]


def test_nearest_names_the_known_one_and_is_silent_when_there_is_none() -> None:
    assert nearest("trainer_override", ["trainer_overrides", "workload"]) == 'did you mean "trainer_overrides"?'
    assert nearest("Workload", ["workload"]) == 'did you mean "workload"?'
    assert nearest("xyz", ["trainer_overrides", "workload"]) == ""
