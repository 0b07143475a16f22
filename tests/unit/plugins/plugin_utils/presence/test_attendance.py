from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.plugin_utils.presence.presence import (
    Presence,
    machine_problem,
    shortage_findings,
    silent_findings,
    task_problem,
)

ALL = Presence(("ray-head",), ("worker-0", "worker-1"), {})


def absent(*names: str, least: int | None = None) -> Presence:
    return Presence(ALL.heads, ALL.workers, dict.fromkeys(names, "gone"), least)


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, ""),
        ({"changed": True, "results": [{"changed": True}]}, ""),
        ({"unreachable": True, "msg": "Task failed: no route\nmore"}, "does not answer: no route"),
        ({"failed": True, "msg": "\n  pull denied \n"}, "pull denied"),
        ({"failed": True, "msg": "all items", "results": [{}, {"failed": True, "msg": "no space"}]}, "no space"),
        ({"results": [{"unreachable": True, "msg": "cut"}], "msg": "x"}, "cut"),
        ({"failed": True}, "without a message"),
        # The frame of ssh's warning about another host key.
        (
            {"failed": True, "msg": "by ssh: @@@\r\n@    WARNING: CHANGED!     @\r\n@@@\r\nIT IS"},
            "by ssh: WARNING: CHANGED!",
        ),
    ],
)
def test_problem_of_a_task(result: dict[str, Any] | None, problem: str) -> None:
    assert task_problem(result) == problem


def finding(problem: str, severity: str = ERROR) -> dict[str, str]:
    return Finding("gpu-1", problem, "do", severity).as_dict()


def test_problem_of_a_machine() -> None:
    assert machine_problem(None) == "was not probed in this run"
    assert machine_problem({"machine": {}, "findings": [finding("slow", WARNING)]}) == ""
    one = {"machine": {}, "findings": [finding("slow", WARNING), finding("7 GPUs")]}
    assert machine_problem(one) == "7 GPUs"
    assert machine_problem(one, excludes_failed=False) == ""
    assert machine_problem({"findings": [finding("a"), finding("b"), finding("c")]}).startswith("a, and 2 more")
    assert machine_problem({"unreachable": True, "msg": "x"}, excludes_failed=False) == "does not answer: x"


def test_findings_about_a_shortage() -> None:
    assert shortage_findings(ALL, "repair it") == []
    assert shortage_findings(absent("worker-0", least=1), "repair it") == []
    (shortage,) = shortage_findings(absent("worker-0"), "repair it")
    assert (shortage.where, shortage.problem, shortage.severity) == ("worker-0", "gone", ERROR)
    assert shortage.remedy.endswith(" -e cluster_min_workers=1")
    # Nothing helps without the head.
    assert shortage_findings(absent("ray-head"), "repair it")[0].remedy == "repair it"
    for least, severity in ((None, ERROR), (1, WARNING)):
        (silence,) = silent_findings({"gpu-1": "x"}, absent("worker-1", least=least))
        assert (silence.where, silence.problem) == ("gpu-1", "x")
        assert ("cluster_min_workers=1" in silence.remedy) == (severity == ERROR)
