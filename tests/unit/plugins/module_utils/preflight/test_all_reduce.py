from __future__ import annotations

from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.fabric.all_reduce import Bandwidth, Verdict, to_json
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import (
    all_reduce_findings,
    all_reduce_lines,
)

FINE, SLOW, FAILED = Bandwidth(10.0), Bandwidth(1.0), Bandwidth(None, "b 0: timeout")
PAIRS = {("a", "b"): SLOW, ("c", "d"): FINE, ("a", "c"): FINE, ("b", "d"): SLOW}


def answer(verdict: Verdict) -> dict[str, Any]:
    return {**to_json(verdict), "backend": "nccl", "processes": 32}


def results(verdict: Verdict) -> list[tuple[str, str, str]]:
    return [(finding.key, finding.severity, finding.where) for finding in all_reduce_findings(answer(verdict))]


def test_skipped_is_a_note() -> None:
    assert results(Verdict(FINE)) == all_reduce_findings({}) == all_reduce_lines({}) == []
    for why, severity in (({"skipped": "jobs use the workers"}, "note"), ({"msg": "the module crashed"}, "warning")):
        (finding,) = all_reduce_findings(why)
        assert finding.severity == severity and finding.problem.endswith(*why.values())


def test_slow_and_failing_nodes() -> None:
    assert results(Verdict(SLOW, PAIRS, bad=("b",), usual=10.0)) == [("collective.bandwidth", "warning", "b")]
    failing = {**PAIRS, ("b", "d"): FAILED}
    assert results(Verdict(FAILED, failing, bad=("b",)))[0] == ("collective.works", "error", "b")
    assert results(Verdict(FAILED)) == [("collective.works", "error", "all workers")]
    assert results(Verdict(SLOW, PAIRS, links=(("a", "b"),))) == [("collective.bandwidth", "warning", "b")]
    halves = {**PAIRS, ("a", "b", "c", "d"): FAILED}
    assert results(Verdict(FAILED, halves, group=("a", "b", "c", "d"))) == [("collective.works", "error", "a, b, c, d")]


def test_workers_that_take_no_part_are_named() -> None:
    hangs = Verdict(FINE, {("b",): Bandwidth(None, "no answer within 30 s"), ("a", "c"): FINE}, bad=("b",))
    assert results(hangs) == [("collective.works", "error", "b")]
    for measured in ({"skipped": "it needs two workers"}, answer(Verdict(FINE))):
        away = all_reduce_findings({**measured, "absent": ["d"]})[0]
        assert (away.severity, away.where) == ("note", "d")
