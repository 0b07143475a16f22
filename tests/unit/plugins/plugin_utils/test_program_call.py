"""The program is run by real commands, with an engine that runs them on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible.plugins.become import BecomeBase
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError, parse_answer
from program_machine import Caller, Connection, node_in, refuse

from argus.jobs.bundle import Limits, unpack


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return node_in(tmp_path)


def test_a_node_that_is_down_is_replaced_by_a_container_of_its_image(node: Node) -> None:
    refuse(node, "Error response from daemon: Container head is not running")
    assert Caller(node).call_verb("status", {}).result["jobs"][0]["submission_id"] == "sft-1"
    arguments = (Path(node.shared_root) / "runs").read_text().split()
    assert {"--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--pull=never"} <= set(arguments)
    assert arguments[arguments.index("--user") + 1] == "5:6"


def test_a_container_does_not_answer_where_only_the_node_can(node: Node) -> None:
    refuse(node, "Error response from daemon: Container head is not running")
    with pytest.raises(ProgramError, match="container head is not running"):
        Caller(node).call_verb("status", {}, only_running_node=True)
    assert not (Path(node.shared_root) / "runs").exists()
    refuse(node, "Error response from daemon: Container head is paused")
    # One that does not answer may answer later, and a verb may run beside it.
    with pytest.raises(ProgramError) as error:
        Caller(node).call_verb("status", {})
    assert error.value.may_answer_later
    assert Caller(node).call_verb("status", {}, only_running_node=True, outside_node=True).result["jobs"]


def test_an_answer_has_nothing_that_ansible_acts_on() -> None:
    for out in ("", "[]", "{}", "null", '{"changed": true, "findings": {}, "result": []}', "[" * 100_000):
        with pytest.raises(ProgramError):
            parse_answer(Node("head"), "status", 0, out, "")
    # A node at its limit of processes.
    with pytest.raises(ProgramError, match="limit of processes"):
        parse_answer(Node("head"), "submit", 134, "", "what(): Resource temporarily unavailable")
    result = {"jobs": [], "ansible_facts": {"a": 1}, "warnings": ["x"], "_ansible_no_log": True}
    text = json.dumps({"changed": 1, "findings": [], "result": result, "ansible_facts": {}})
    answer = parse_answer(Node("head"), "status", 0, text, "")
    assert (answer.changed, answer.result) == (False, {"jobs": []})


LIMITS = Limits(1 << 20, 1 << 20)


class Machine(Caller):
    """Has a temporary directory of its own.

    swap: what a job does to the file of the output when the verb has ended, where both have one user.
    """

    def __init__(self, node: Node, swap: Callable[[Path], Any] = lambda _file: None) -> None:
        super().__init__(node)
        self.temporary, self.swap = Path(node.shared_root) / "tmp", swap
        self.temporary.mkdir(exist_ok=True)
        self.modes: set[int] = set()

    def _low_level_execute_command(self, command: str, in_data: bytes) -> dict[str, Any]:
        done = super()._low_level_execute_command(f"export TMPDIR={self.temporary}; {command}", in_data)
        for file in self.temporary.glob("*"):
            self.modes.add(file.lstat().st_mode & 0o777)
            if "stat" in command:
                self.swap(file)
        return done


def fetch(machine: Machine, node: Node, submission_id: str = "sft-1", most: int = LIMITS.bundle) -> Answer:
    """The answer of `fetch`, whose output is then in the file "here" of the controller."""
    here = Path(node.shared_root) / "here"
    return machine.fetch({"submission_id": submission_id}, str(here), most, 60)


def unpacked(node: Node) -> int:
    return unpack(f"{node.shared_root}/here", Path(node.shared_root) / "artifacts", LIMITS)


@pytest.mark.parametrize("text", ["", "Error response from daemon: No such container: head"])
def test_a_file_comes_from_a_node_or_from_a_container_in_its_place(node: Node, text: str) -> None:
    refuse(node, text)
    machine = Machine(node)
    answer = fetch(machine, node)
    assert (answer.accepted, answer.result) == (True, {"archive": f"{node.shared_root}/jobs/sft-1", "skipped": []})
    assert unpacked(node) > 0
    # Only its user reads it, and nothing of it stays.
    assert (machine.modes, [*machine.temporary.iterdir()]) == ({0o600}, [])
    arguments = Path(node.shared_root) / "runs"
    assert not text or "--log-driver=none" in arguments.read_text().split()


class Become(BecomeBase):  # type: ignore[misc]
    """Another user, as sudo prints before what a command prints."""

    def build_become_command(self, cmd: str, shell: Any) -> str:
        self.success = "BECOME-SUCCESS-x"
        return f"echo {self.success}; OWNER=root; {cmd}"


def test_a_file_of_another_user(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the user who runs the program, and only that user reads it."""
    monkeypatch.setattr(Connection, "become", Become())
    assert fetch(Machine(node), node).accepted
    assert unpacked(node) > 0


def test_a_file_has_a_limit_before_it_is_fetched(node: Node) -> None:
    (Path(node.shared_root) / "jobs" / "sft-1" / "logs" / "noise").write_bytes(os.urandom(1 << 17))
    machine = Machine(node)
    with pytest.raises(ProgramError, match="64 KiB"):
        fetch(machine, node, most=1 << 16)
    assert [*machine.temporary.iterdir()] == []
    # A refusal, and no answer.
    answer = fetch(machine, node, "sft-2")
    assert not answer.accepted and [finding.key for finding in answer.findings] == ["submission_id"]
    for text in ("Error response from daemon: Container head is paused", "killed"):
        refuse(node, text)
        with pytest.raises(ProgramError) as error:
            fetch(machine, node)
        assert error.value.may_answer_later
    assert [*machine.temporary.iterdir()] == [] and not (Path(node.shared_root) / "here").exists()
    machine.temporary.rmdir()
    with pytest.raises(ProgramError, match="no room"):
        fetch(machine, node)


CHANGED = "gpu-0: another process has changed"


@pytest.mark.parametrize(
    ("swap", "reason"),
    [
        (lambda file: (file.unlink(), file.symlink_to("/dev/zero")), "gpu-0: .* was not copied"),
        (lambda file: (file.unlink(), os.mkfifo(file)), CHANGED),
        (lambda file: os.truncate(file, 1 << 40), CHANGED),
        (lambda file: os.truncate(file, 3), CHANGED),
    ],
    ids=["link", "fifo", "longer", "shorter"],
)
def test_a_file_that_a_job_replaces_is_neither_waited_for_nor_read_on(
    node: Node, swap: Callable[[Path], Any], reason: str
) -> None:
    machine = Machine(node, swap)
    with pytest.raises(ProgramError, match=reason):
        fetch(machine, node)
    assert [*machine.temporary.iterdir()] == []
