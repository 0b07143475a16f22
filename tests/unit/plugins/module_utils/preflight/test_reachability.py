from __future__ import annotations

from ansible_collections.argus.verl.plugins.module_utils.network.reach import Reached
from ansible_collections.argus.verl.plugins.module_utils.preflight.reachability import (
    failures,
    matrix_rows,
    ranges,
    reach_findings,
)

NAMES = ("a", "b", "c", "d")
FINE = Reached(0.214, {})
SILENT = Reached(None, {"timeout": [20000, 20001, 20010]})


def matrix(*bad: tuple[str, str], names: tuple[str, ...] = NAMES) -> dict[str, dict[str, Reached]]:
    return {
        source: {target: SILENT if (source, target) in bad else FINE for target in names if target != source}
        for source in names
    }


def found(*bad: tuple[str, str], names: tuple[str, ...] = NAMES) -> list[tuple[str, str]]:
    return [(finding.where, finding.what) for finding in reach_findings(matrix(*bad, names=names))]


def test_ports_as_ranges() -> None:
    assert ranges([20011, 20000, 20001, 20002, 20010, 20010]) == "20000-20002, 20010-20011"
    assert ranges([5]) == "5"
    assert ranges([]) == ""


def test_failures_by_kind() -> None:
    mixed = Reached(1.0, {"refused": [1, 2], "timeout": [], "unreachable": [4]})
    assert failures(mixed) == "refused: 1-2; no route: 4"
    assert failures(FINE) == ""


def test_matrix() -> None:
    header, rows = matrix_rows({"a": {"b": FINE}, "b": {"a": SILENT}})
    assert header == ["from \\ to", "a", "b"]
    assert rows == [["a", "-", "0.21 ms"], ["b", "no answer: 20000-20001, 20010", "-"]]
    # A machine that could not measure has a column, and an empty row.
    assert matrix_rows({"a": {"b": Reached(None, {})}})[1] == [["a", "-", "-"], ["b", "-", "-"]]


def test_all_reach_all() -> None:
    assert reach_findings(matrix()) == []
    assert reach_findings({}) == []


def test_machine_that_nobody_reaches_is_one_finding() -> None:
    bad = [(source, "c") for source in "abd"]
    assert found(*bad) == [("c", "no other machine reaches it: no answer: 20000-20001, 20010")]


def test_machine_that_reaches_nobody_is_one_finding() -> None:
    bad = [("c", target) for target in "abd"]
    assert found(*bad) == [("c", "it reaches no other machine: no answer: 20000-20001, 20010")]


def test_dead_machine_is_said_once() -> None:
    both = [("c", target) for target in "abd"] + [(source, "c") for source in "abd"]
    assert [where for where, _what in found(*both)] == ["c", "c"]


def test_one_bad_pair_and_one_direction() -> None:
    assert found(("a", "b")) == [("b", "a does not reach it: no answer: 20000-20001, 20010")]


def test_of_two_machines_nobody_knows_which_it_is() -> None:
    two = ("a", "b")
    assert [where for where, _what in found(("a", "b"), names=two)] == ["b"]
    assert [where for where, _what in found(("a", "b"), ("b", "a"), names=two)] == ["b", "a"]


def test_machine_that_nobody_reaches_does_not_make_others_mute() -> None:
    """Of three machines, a reaches b alone, and that is b's fault too."""
    three = ("a", "b", "c")
    bad = [("a", "b"), ("c", "b"), ("a", "c")]
    where = [(place, what.split(":")[0]) for place, what in found(*bad, names=three)]
    assert where == [("b", "no other machine reaches it"), ("a", "it reaches no other machine")]
    everything = [(source, target) for source in three for target in three if source != target]
    assert sorted(place for place, _what in found(*everything, names=three)) == ["a", "b", "c"]
