from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import ray_node_drain
from ansible_collections.argus.verl.plugins.plugin_utils import action as actions
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import ProgramError


class Task:
    check_mode = False
    async_val = 0

    def __init__(self, **arguments: Any) -> None:
        self.args = {"worker": "gpu-1", "node_id": "a", "node": {"name": "head"}, **arguments}


class Head:
    """A head whose answers are given, one for each call of the program."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: tuple[list[str], float], **arguments: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.answers = list(answers)
        monkeypatch.setattr(ray_node_drain.display, "display", lambda text: self.lines.append(" ".join(text.split())))
        self.action = ray_node_drain.ActionModule.__new__(ray_node_drain.ActionModule)
        self.action._task = Task(**arguments)
        monkeypatch.setattr(self.action, "ask", self.answer)

    def answer(self, verb: str, request: dict[str, Any], seconds: float, needs_node: bool) -> dict[str, Any]:
        assert (verb, needs_node) == ("drain", True)
        assert (request["worker"], request["node_id"]) == ("gpu-1", "a")
        # Ray's command alone may take a minute.
        assert seconds >= 120 + request.get("wait_timeout", 0)
        self.asked.append(request)
        jobs, waited = self.answers.pop(0)
        if waited < 0:
            raise ProgramError("gone")
        return {"changed": len(self.asked) == 1, "jobs": jobs, "alive": True, "waited": waited}


@pytest.fixture(autouse=True)
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions.ActionBase, "run", lambda *_arguments: {})


def test_each_change_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, (["a", "b"], 0), (["b", "a"], 60.0), (["b"], 12.5), ([], 3.0), wait_timeout="3600")
    result = head.action.run()
    assert result == {"changed": True, "jobs": [], "alive": True, "waited": 75.5}
    assert head.lines == [
        "gpu-1 gets no new work. Waits for a, b, up to 3600 s. Ctrl-C ends only the waiting",
        "gpu-1 after 72 s: waits for b",
        "gpu-1 after 76 s: no job uses it",
    ]
    assert "wait_timeout" not in head.asked[0]
    assert [(call["held_by"], call["wait_timeout"]) for call in head.asked[1:]] == [
        (["a", "b"], 60.0),
        (["a", "b"], 60.0),
        (["b"], 60.0),
    ]


def test_waiting_ends_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(monkeypatch, (["a"], 0), (["a"], 60.0), (["a"], 10.0), wait_timeout=70)
    result = head.action.run()
    assert (result["failed"], result["waited"]) == (True, 70.0)
    assert "is still used after 70 s by a" in " ".join(head.lines[1].split())
    assert [call.get("wait_timeout") for call in head.asked] == [None, 60.0, 10.0]


@pytest.mark.parametrize(("jobs", "timeout", "check"), [([], 9, False), (["a"], 0, False), (["a"], 9, True)])
def test_nothing_is_waited_for(monkeypatch: pytest.MonkeyPatch, jobs: list[str], timeout: int, check: bool) -> None:
    head = Head(monkeypatch, (jobs, 0), wait_timeout=timeout)
    head.action._task.check_mode = check
    assert head.action.run()["jobs"] == jobs
    assert (len(head.asked), head.asked[0]["check"]) == (1, check)
    assert not any("gets no new work." in line for line in head.lines)


@pytest.mark.parametrize("before", [[], [(["a"], 0.0)]])
def test_head_that_goes_away(monkeypatch: pytest.MonkeyPatch, before: list[tuple[list[str], float]]) -> None:
    head = Head(monkeypatch, *before, ([], -1), wait_timeout=9)
    assert head.action.run()["msg"] == "gone"
