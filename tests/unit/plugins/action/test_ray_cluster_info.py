from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import ray_cluster_info
from ansible_collections.argus.verl.plugins.plugin_utils import action as actions
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import SECONDS, ProgramError

GONE = ProgramError("container head is restarting", node_is_gone=True)
DENIED = ProgramError("the user may not use docker")
READY = {
    "complete": True,
    "missing": [],
    "awaited": [],
    "problem": "",
    "nodes": [{"node_ip": "10.0.0.1"}],
    "changed": False,
}
EXPECTED = [{"name": "head", "head": True, "cpus": 0}, {"name": "worker-0", "absent": "no machine"}]


class Head:
    """A head whose answers are given, one for each call of the program, and then the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: dict[str, Any] | ProgramError) -> None:
        self.answers = list(answers)
        self.waits: list[float] = []
        monkeypatch.setattr(actions.ActionBase, "run", lambda *_arguments: {})
        monkeypatch.setattr(ray_cluster_info, "PAUSE_SECONDS", 0.05)
        monkeypatch.setattr(ray_cluster_info.ActionModule, "ask", self.answer)

    def answer(self, verb: str, request: dict[str, Any], seconds: float, needs_node: bool) -> dict[str, Any]:
        assert (verb, needs_node, seconds) == ("nodes", True, SECONDS + request["wait_timeout"])
        self.waits.append(request["wait_timeout"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ProgramError):
            raise answer
        return answer

    def ask(self, **arguments: Any) -> dict[str, Any]:
        action = ray_cluster_info.ActionModule.__new__(ray_cluster_info.ActionModule)
        given = {"node": {"name": "head"}, "expected": EXPECTED, **arguments}
        action._task = SimpleNamespace(args=given, check_mode=False, async_val=0)
        return action.run()


def test_a_head_that_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    start = time.time()
    answer = Head(monkeypatch, READY).ask(earlier={"began": start - 60, "problem": ""})
    assert answer == {**READY, "began": start - 60, "waited": pytest.approx(60, abs=5)}


def test_a_head_that_restarts_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, GONE, GONE, READY)
    assert head.ask(wait_timeout="9")["complete"] is True
    assert len(head.waits) == 3 and 9 >= head.waits[0] > head.waits[2] > 8


def test_the_time_begins_again_when_a_node_has_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    none = {**READY, "complete": False, "awaited": ["head", "worker-0"]}
    one = {**none, "awaited": ["worker-0"]}
    expected = [{"name": "head", "head": True}, {"name": "worker-0"}]
    head = Head(monkeypatch, one, READY)
    assert head.ask(expected=expected, wait_timeout=9)["complete"]
    assert head.waits == [pytest.approx(9, abs=0.1)] * 2
    # Not for those that have joined earlier, and not without one.
    head = Head(monkeypatch, one, READY)
    assert not head.ask(expected=expected, wait_timeout=9, earlier={"began": time.time(), **one})["complete"]
    assert not Head(monkeypatch, none, READY).ask(expected=expected, wait_timeout=9)["complete"]
    assert not Head(monkeypatch, one, READY).ask(expected=expected)["complete"]


@pytest.mark.parametrize(
    ("answer", "arguments", "again"),
    [
        (GONE, {}, False),
        (GONE, {"wait_timeout": 0.2}, True),
        (DENIED, {"wait_timeout": 9}, False),
        # Without the head, no other node can join.
        (GONE, {"wait_timeout": 9, "expected": [{"name": "head", "head": True, "absent": "x"}, {"name": "b"}]}, False),
    ],
)
def test_without_an_answer_no_node_is_as_expected(
    monkeypatch: pytest.MonkeyPatch, answer: ProgramError, arguments: dict[str, Any], again: bool
) -> None:
    head = Head(monkeypatch, answer)
    state = head.ask(**arguments)
    assert (len(head.waits) > 1) == again
    assert (state["complete"], state["problem"], "failed" in state) == (False, str(answer), False)
    assert state["missing"] == [row[0] for row in state["rows"]] and len(state["missing"]) == 2
    assert state["nodes"] == state["jobs"] == []


def test_nothing_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    state = Head(monkeypatch, GONE).ask(expected=[])
    assert (state["rows"], state["problem"]) == ([], str(GONE))


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        *((name, name) for name in ("10.0.0.1", "fd00::1")),
        *((name, "") for name in ("$(id)", "10.0.0.1;id", "fe80::1%$(id)", "head", "", None, 7.5, ["10.0.0.1"])),
    ],
)
def test_an_address_is_one(monkeypatch: pytest.MonkeyPatch, told: object, shown: str) -> None:
    answer = Head(monkeypatch, {**READY, "nodes": [{"node_ip": told}]}).ask()
    assert answer["nodes"] == [{"node_ip": shown}]
