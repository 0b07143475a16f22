"""Items that take longer than a call; tests/commands runs the action in Ansible."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.action import stage
from ansible_collections.argus.verl.plugins.plugin_utils import program_answer, staging_call
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node


class Calls(stage.ActionModule):
    """The action with one model, and a node that gives these answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self._task = SimpleNamespace(check_mode=False, args={}, diff=False)
        self.task_arguments = {**dict.fromkeys(("hf_endpoint", "hf_token", "repair", "verify"), ""), "report": False}
        self.node = Node("h", "m-0")
        self.answers = list(answers)

    def one(self) -> dict[str, Any]:
        result = self.task_result([self.try_staging("model", self.stage_model, {"name": "m"})])
        return {**result, **result["staged"][0]}

    def call_verb(self, *_arguments: Any, **_more: Any) -> program_answer.Answer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return program_answer.Answer(True, answer.get("status") == "staged", [], answer)


BEGUN = {"status": "deferred", "reference": "/tmp/argus-verb-x", "path": "/private/common/models/m", "progress": None}
LOST = AnsibleConnectionFailure("ssh: connect to host m-0 port 22: No route to host")
DOWN = program_answer.ProgramError("container h is not running on m-0. cluster_up.yml starts it", may_answer_later=True)


@pytest.mark.parametrize("error", [LOST, DOWN])
def test_polls_that_are_not_answered_are_repeated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    sleep = lambda seconds: now.append(now[-1] + seconds)  # noqa: E731
    monkeypatch.setattr(staging_call, "time", SimpleNamespace(monotonic=lambda: now[-1], sleep=sleep))
    result = Calls(BEGUN, error, BEGUN, error, {"status": "staged"}).one()
    assert (result["status"], result["changed"], result["findings"]) == ("staged", True, [])
    many = int(staging_call.MAX_SILENCE_SECONDS / staging_call.RETRY_PAUSE_SECONDS)
    assert Calls(BEGUN, *[error] * many, {"status": "staged"}).one()["status"] == "staged"
    given_up = Calls(BEGUN, *[error] * (many + 2)).one()
    assert given_up["failed"] and "300 s" in given_up["msg"]
    # The first call is not repeated, and the play goes on.
    refused = Calls(error).one()
    assert refused["failed"] and "unreachable" not in refused and "m-0" in refused["findings"][0]["problem"]


def test_progress_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    monkeypatch.setattr(staging_call.display, "display", shown.append)
    report = {"host": "h", "pid": 1, "step": "downloading org/m", "done": 1 << 20, "total": 4 << 20, "time": 2.0}
    begun = {**BEGUN, "progress": {**report, "started_at": 1.0}}
    assert Calls(begun, begun, {**BEGUN, "progress": "forged"}, {"status": "exists"}).one()["changed"] is False
    assert len(shown) == 1 and shown[0].startswith("m: downloading org/m on h, 1 MiB of 4 MiB (25 %)")
