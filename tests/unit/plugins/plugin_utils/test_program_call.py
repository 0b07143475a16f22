"""The program is run by real commands, with an engine that runs them on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import program_call
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node, ProgramError, call, job_info

from argus.launcher.archive import Archive

# "exec" runs the program, or says what $STATE has; "run" shows its arguments and runs what follows the image.
ENGINE = """#!/bin/sh
case "$1" in
  exec) [ -s "{directory}/refusal" ] && {{ cat "{directory}/refusal" >&2; exit 1; }}
        shift 4; exec {python} {program} "$@" ;;
  image) [ "$3" = here ] ;;
  run) echo "$@" >> "{directory}/runs"; while [ "$1" != here ]; do shift; done; shift 2; exec {python} {program} "$@" ;;
esac
"""


class Connection:
    transport = "ssh"

    class _shell:  # noqa: N801
        tmpdir = "/tmp/argus-test"

        @staticmethod
        def join_path(*parts: str) -> str:
            return "/".join(parts)


class Action:
    """Runs commands here, as a machine does."""

    _connection = Connection

    def _low_level_execute_command(self, command: str, in_data: bytes) -> dict[str, Any]:
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    def _transfer_file(self, _local: str, _remote: str) -> None:
        pass

    def _fixup_perms2(self, _paths: object) -> None:
        pass


@pytest.fixture
def node(tmp_path: Path) -> Node:
    archive = Archive(tmp_path / "jobs" / "sft-1")
    archive.reserve()
    archive.set_status("RUNNING", workload="sft")
    engine = tmp_path / "engine"
    program = tmp_path / "program.py"
    program.write_text("import sys\nfrom argus.cli import main\nsys.exit(main(sys.argv[1:]))\n")
    engine.write_text(ENGINE.format(directory=tmp_path, python=sys.executable, program=program))
    engine.chmod(0o755)
    root = str(tmp_path)
    return Node("head", "gpu-0", "mvp", str(engine), ("absent", "here"), "5:6", root, root, "http://127.0.0.1:1", root)


def refuse(node: Node, text: str) -> None:
    (Path(node.shared_root) / "refusal").write_text(text)


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
