"""The program is run by real commands, with an engine that runs them on this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import program_call
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node, ProgramError, call, job_info
from program_machine import Action, node_in, refuse


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_in(tmp_path)


def test_a_node_that_runs_answers(node: Node) -> None:
    job = job_info(Action(), node, {"submission_id": "sft-1"})["job"]
    assert (job["submission_id"], job["state"]) == ("sft-1", "RUNNING")
    assert not (Path(node.shared_root) / "runs").exists()


def test_a_refusal_is_a_failure(node: Node) -> None:
    result = job_info(Action(), node, {"submission_id": "sft-2"})
    assert result["failed"] and result["msg"].startswith("There is no job 'sft-2'")
    assert not call(Action(), node, "status", {"submission_id": "sft-2"}).done


@pytest.mark.parametrize("text", ["No such container: head", "Container head is not running"])
def test_a_node_that_is_down_is_replaced_by_a_container_of_its_image(node: Node, text: str) -> None:
    refuse(node, f"Error response from daemon: {text}")
    assert job_info(Action(), node, {})["jobs"][0]["submission_id"] == "sft-1"
    arguments = (Path(node.shared_root) / "runs").read_text().split()
    assert {"--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--pull=never"} <= set(arguments)
    assert arguments[arguments.index("--user") + 1] == "5:6"


def test_a_container_does_not_answer_where_only_the_node_can(node: Node) -> None:
    refuse(node, "Error response from daemon: Container head is not running")
    with pytest.raises(ProgramError, match=r"^container head is not running on gpu-0\. cluster_up\.yml starts it$"):
        call(Action(), node, "status", {}, apart=False)
    assert not (Path(node.shared_root) / "runs").exists()


@pytest.mark.parametrize("text", ["Error response from daemon: Container head is paused", "killed"])
def test_a_node_without_an_answer_may_answer_later(node: Node, text: str) -> None:
    refuse(node, text)
    result = job_info(Action(), node, {})
    assert result["failed"] and result["head_is_gone"]


WRONG = ("", "[]", "{}", "null", '{"changed": true, "findings": {}, "result": []}', "[" * 100_000)


@pytest.mark.parametrize("out", WRONG)
def test_only_an_answer_is_read(out: str) -> None:
    with pytest.raises(ProgramError):
        program_call.answer(Node("head"), "status", 0, out, "")


def test_an_answer_has_nothing_that_ansible_acts_on() -> None:
    result = {"jobs": [], "ansible_facts": {"a": 1}, "warnings": ["x"], "_ansible_no_log": True}
    text = json.dumps({"changed": 1, "findings": [], "result": result, "ansible_facts": {}})
    answer = program_call.answer(Node("head"), "status", 0, text, "")
    assert (answer.changed, answer.result) == (False, {"jobs": []})


def test_a_node_without_a_container(tmp_path: Path) -> None:
    node = Node("w", directory="~/state/mvp/nodes/w", python="/opt/verl/bin/python3")
    command = (
        "env ARGUS_VERL_ENTER='~/state/mvp/nodes/w' /opt/verl/bin/python3 ~/state/mvp/program/current status --json"
    )
    assert node.command("status", "--json") == command
