"""The program is run by real commands, with an engine that runs them on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import job_archive
from ansible_collections.argus.verl.plugins.plugin_utils import action
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from program_machine import Action, node_in, refuse


class Task:
    async_val = 0

    def __init__(self, node: Node, check_mode: bool = False) -> None:
        self.args = {
            "state": "examined",
            "submission_id": "sft-1",
            "node": {**asdict(node), "images": list(node.images)},
        }
        self.check_mode = check_mode


class Evidence(Action, job_archive.ActionModule):
    def __init__(self, task: Task) -> None:
        self._task = task


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(action.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setenv("ARGUS_VERL_NODE", "head")
    return node_in(tmp_path)


def files(node: Node) -> list[Any]:
    return list(Path(node.shared_root).glob("jobs/sft-1/debug/*"))


def test_a_node_collects(node: Node) -> None:
    result = Evidence(Task(node)).run()
    assert result["changed"] and result["files"] > 5 and files(node)
    name, count, nodes, _missing = result["row"]
    assert (name, count, nodes) == ("head", result["files"], ", ".join(result["nodes"]) or None)


def test_check_mode(node: Node) -> None:
    result = Evidence(Task(node, check_mode=True)).run()
    assert (result["changed"], result["files"], files(node)) == (True, 0, [])


@pytest.mark.parametrize("state", ["not running", "paused"])
def test_a_node_that_does_not_answer_is_a_failure(node: Node, state: str) -> None:
    refuse(node, f"Error response from daemon: Container head is {state}")
    result = Evidence(Task(node)).run()
    assert result["failed"] and f"container head is {state} on gpu-0" in result["msg"]
    assert result["row"] == ["head", 0, None, result["msg"]]
    assert files(node) == []
