"""Actions of staging with the real program, on a machine that is this one."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.action import stage
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import CURRENT, PROGRAM
from ansible_collections.argus.verl.plugins.plugin_utils import staging_call
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from hub import Hub, model
from program import write_program
from program_machine import node_in, refuse
from staging_task import run, task

from argus.common.identity import NODE


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setenv(NODE, "head")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "private").mkdir()
    return node_in(tmp_path / "private")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    lines: list[str] = []
    for module in (stage, staging_call):
        monkeypatch.setattr(module.display, "display", lambda line: lines.append(line))
    yield lines


def rows(count: int) -> str:
    return "".join(json.dumps({"q": f"{number} + 1?", "a": number + 1}) + "\n" for number in range(count))


DATASET: dict[str, Any] = {
    "name": "sums",
    "columns": {"prompt": "q", "ground_truth": "a"},
    "data_source": "openai/gsm8k",
    "val_rows": 1,
    "files": {"train": ["raw/*.jsonl"]},
}


def test_files_of_the_controller_from_first_to_last(tmp_path: Path, node: Node, shown: list[str]) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "a.jsonl").write_text(rows(3))
    (raw / "b.jsonl").write_text(rows(2))
    planned, sent = run("datasets", node, DATASET, check=True)
    assert (planned["changed"], planned["status"], sent) == (True, "staged", [])
    made, sent = run("datasets", node, DATASET)
    assert (made["status"], made["rows"], sent) == ("staged", {"train": 4, "val": 1}, ["0/a.jsonl", "1/b.jsonl"])
    assert len(shown) == 2 and all(line.startswith("sums: ") and "a.jsonl, b.jsonl of " in line for line in shown)
    # Another time and place, the same content: nothing is sent.
    raw = raw.rename(tmp_path / "other")
    os.utime(raw / "a.jsonl", (1, 1))
    moved = {**DATASET, "files": {"train": [f"{raw}/*.jsonl"]}, "from": "controller"}
    for verify in ("quick", "full"):
        again, sent = run("datasets", node, moved, verify=verify)
        assert (again["changed"], again["status"], sent) == (False, "exists", [])
    (raw / "a.jsonl").write_text(rows(4))
    changed, sent = run("datasets", node, moved)
    assert changed["failed"] and str(raw / "a.jsonl") in changed["findings"][0]["what"] and sent == []
    # Who does not have the files can still stage the inventory.
    shutil.rmtree(raw)
    assert run("datasets", node, moved)[0]["status"] == "exists"
    (finding,) = run("datasets", node, {**moved, "name": "others"})[0]["findings"]
    assert finding["where"] == "dataset others" and finding["what"].startswith("files.train: ")


WRONG: dict[str, list[Any]] = {
    "models": [{"name": "x", "sauce": "tiny", "source": ["a"]}, "tiny", {"name": "y", "source": "tiny", "exclude": {}}],
    "datasets": [
        {"name": ["x"], "files": {"train": [1, {}]}, "columns": "prompt"},
        {"name": "x", "files": "a.jsonl", "val_rows": "many"},
        {"name": "x", "tiny": True, "columns": {"promt": "a"}},
        None,
        {"name": "x", "files": {"train": ["a", "/b"]}},
    ],
    "snapshots": [{"sauce": "a"}, {"source": "verl==0.9.1", "overlays": [1]}, 7, {"code_id": {}, "state": "absent"}],
    "user_code": [{"a": 1}, 7],
}


def test_options_of_all_items_are_checked_before_any_is_staged(node: Node, shown: list[str]) -> None:
    good = {"name": "good", "tiny": True}
    result, action = task(node, **{**WRONG, "datasets": [*WRONG["datasets"], good]})
    assert result["failed"] and not result["changed"] and action.sent_files == result["staged"] == []
    assert not Path(node.shared_root, "datasets").exists()
    places = {finding["where"] for finding in result["findings"]}
    assert places >= {"model x: sauce", "model x: source", "model y: exclude", "model tiny"}
    assert places >= {"dataset x: files", "dataset x: val_rows", "dataset x: columns.promt"}
    assert places >= {"snapshot number 1: sauce", "snapshot 7"}
    (todo,) = (finding["todo"] for finding in result["findings"] if "columns.promt" in finding["where"])
    assert '"prompt"' in todo


class Calls(stage.ActionModule):
    """The action with one model, and a node that gives these answers in turn."""

    def __init__(self, *answers: Any) -> None:
        self._task = SimpleNamespace(check_mode=False, args={}, diff=False)
        self.task_arguments = {**dict.fromkeys(("hf_endpoint", "hf_token", "repair", "verify"), ""), "report": False}
        self.node = Node("h", "m-0")
        self.answers = list(answers)

    def one(self) -> dict[str, Any]:
        result = self.result([self.staged("model", self.model, {"name": "m"})])
        return {**result, **result["staged"][0]}

    def call(self, *_arguments: Any, **_more: Any) -> staging_call.Answer:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return staging_call.Answer(True, answer.get("status") == "staged", [], answer)


BEGUN = {"status": "deferred", "reference": "/tmp/argus-verb-x", "path": "/private/common/models/m", "progress": None}
LOST = AnsibleConnectionFailure("ssh: connect to host m-0 port 22: No route to host")
DOWN = staging_call.ProgramError("container h is not running on m-0. cluster_up.yml starts it", node_is_gone=True)


@pytest.mark.parametrize("error", [LOST, DOWN])
def test_an_item_whose_node_does_not_answer_is_refused(error: Exception) -> None:
    result = Calls(error).one()
    assert result["failed"] and "unreachable" not in result
    assert "m-0" in result["msg"] and "m-0" in result["findings"][0]["what"]


@pytest.mark.parametrize("error", [LOST, DOWN])
def test_polls_that_are_not_answered_are_repeated(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    sleep = lambda seconds: now.append(now[-1] + seconds)  # noqa: E731
    monkeypatch.setattr(staging_call, "time", SimpleNamespace(monotonic=lambda: now[-1], sleep=sleep))
    result = Calls(BEGUN, error, BEGUN, error, {"status": "staged"}).one()
    assert (result["status"], result["changed"], result["findings"]) == ("staged", True, [])
    many = int(staging_call.UNANSWERED_SECONDS / staging_call.PAUSE_SECONDS)
    assert Calls(BEGUN, *[error] * many, {"status": "staged"}).one()["status"] == "staged"
    given_up = Calls(BEGUN, *[error] * (many + 2)).one()
    assert given_up["failed"] and "300 s" in given_up["msg"]


def test_progress_is_shown_once(shown: list[str]) -> None:
    report = {"host": "h", "pid": 1, "what": "downloading org/m", "done": 1 << 20, "total": 4 << 20, "time": 2.0}
    begun = {**BEGUN, "progress": {**report, "started_at": 1.0}}
    assert Calls(begun, begun, {**BEGUN, "progress": "forged"}, {"status": "exists"}).one()["changed"] is False
    assert len(shown) == 1 and shown[0].startswith("m: downloading org/m on h, 1 MiB of 4 MiB (25 %)")


def test_a_node_that_is_down_is_not_replaced(node: Node) -> None:
    refuse(node, "Error response from daemon: Container 1 is not running")
    result, _action = task(node, models=[{"name": "x", "source": "tiny"}])
    assert result["failed"] and "is not running" in result["msg"]
    assert not Path(node.registry, "runs").exists()


def test_a_node_without_a_container_goes_on_after_a_call(tmp_path: Path, shown: list[str]) -> None:
    """Its program inherits the pipes of the machine's shell, which waits for all who have them."""
    state, root = tmp_path / "state", tmp_path / "private"
    node = Node("head", shared_root=str(root), directory=str(state / "nodes" / "head"), python=sys.executable)
    for directory in (state / PROGRAM / CURRENT, Path(node.directory), root):
        directory.mkdir(parents=True)
    write_program(state / PROGRAM / CURRENT)
    environment = {NODE: "head", "HF_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    (state / "nodes" / "head" / "node.json").write_text(json.dumps({"environment": environment}))
    with Hub() as hub:
        hub.add("org/name", model())
        # Longer than a call.
        hub.rate = sum(map(len, model().values())) / 20
        result, _sent = run("models", node, {"name": "m", "source": "org/name"}, hf_endpoint=hub.url)
    assert (result["status"], result["changed"]) == ("staged", True)
    assert shown and all(line.startswith("m: ") for line in shown)
    assert (root / "common/models/m/config.json").stat().st_uid == os.geteuid()
    assert not list(tmp_path.glob("argus-verb-*"))
