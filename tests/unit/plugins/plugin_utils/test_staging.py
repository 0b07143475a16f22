"""Staging on a node that does not answer; tests/training has real runs that are followed."""

from __future__ import annotations

from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.plugin_utils.staging import FollowedStaging

DEFERRED = {"status": "deferred", "path": "/private/models/m"}
GONE = {"module_stdout": "", "module_stderr": "", "rc": 137, "failed": True}
LOST = AnsibleConnectionFailure("container h is not running on m. cluster_up.yml starts it")


class Task:
    check_mode = False
    async_val = 0
    resolved_action = "argus.verl.hf_model"


class Staging(FollowedStaging):  # type: ignore[misc]
    """The action with a node that gives these answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self._task = Task()
        self.answers = list(answers)

    def _execute_module(self, *_arguments: Any, **_more: Any) -> dict[str, Any]:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)


@pytest.mark.parametrize(
    ("answers", "what", "todo"),
    [
        ([GONE], "h cannot be reached (exit code 137).", "cluster_up.yml brings the cluster up"),
        ([DEFERRED, GONE], "h cannot be reached (exit code 137).", "cluster_up.yml brings the cluster up"),
        ([LOST], f"h cannot be reached: {LOST}.", "Then run it again"),
        ([DEFERRED, LOST], f"h cannot be reached: {LOST}.", "Then run it again"),
    ],
)
def test_an_item_whose_node_does_not_answer_fails_with_a_finding(answers: list[Any], what: str, todo: str) -> None:
    result = Staging(*answers).stage({"name": "m"}, {"inventory_hostname": "h"})
    assert (result["failed"], result["msg"]) == (True, f"{what} {todo}")
    assert (result["finding"]["what"], result["finding"]["todo"]) == (what, todo)


def test_an_answer_is_the_result() -> None:
    assert Staging({"changed": False}).stage({}, {"inventory_hostname": "h"}) == {"changed": False}
