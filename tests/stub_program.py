"""A run of ansible-playbook in which the program gives prepared answers: its tasks, each with a head of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from system import REPO

# "ENGINE exec -i CASE PROGRAM VERB --json" gives the next answer, and the last one forever.
ENGINE = f"""#!{sys.executable} -IS
import json, pathlib, sys
case = pathlib.Path(sys.argv[0]).parent / sys.argv[3]
request = json.loads(sys.stdin.readline())
with (case / "calls").open("a") as calls:
    calls.write(json.dumps([sys.argv[5], request]) + "\\n")
first, *more = sorted(case.glob("*.json"))
answer = json.loads(first.read_text())
if more:
    first.unlink()
if isinstance(answer, str):
    sys.exit(answer)
print(json.dumps({{"changed": False, "findings": [], "result": {{}}, **answer}}))
sys.exit(bool(answer.get("refused")))
"""
GONE = "Error response from daemon: No such container: head"


@dataclass(frozen=True)
class Case:
    """A task, and what its head answers: changed, findings, result and refused of a verb, or an engine's error."""

    action: str
    arguments: Mapping[str, Any]
    answers: Sequence[Mapping[str, Any] | str]
    check: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The result of the task, the lines that it showed, and the verbs that it called with their requests."""

    result: dict[str, Any]
    shown: list[str]
    calls: list[tuple[str, dict[str, Any]]]


def run(directory: Path, cases: Mapping[str, Case], *arguments: str, **environment: str) -> dict[str, Outcome]:
    engine, results = directory / "engine", directory / "results"
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    tasks: list[dict[str, Any]] = []
    for name, case in cases.items():
        (directory / name).mkdir()
        for number, answer in enumerate(case.answers):
            (directory / name / f"{number:02}.json").write_text(json.dumps(answer))
        node = {"name": name, "engine": str(engine), "machine": "box", "shared_root": "/private"}
        task = {f"argus.verl.{case.action}": {"node": node, **case.arguments}, "check_mode": case.check}
        tasks.append({"name": name, "vars": case.variables, "register": name, "ignore_errors": True, **task})
        tasks[-1]["ignore_unreachable"] = True
    content = "{{ {" + ", ".join(f"'{name}': {name}" for name in cases) + "} | to_json }}"
    tasks.append({"name": "results", "ansible.builtin.copy": {"content": content, "dest": str(results)}})
    groups = {"ray": ["localhost"], "head": ["localhost"], "workers": []}
    play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks, "vars": {"ansible_connection": "local"}}
    (directory / "play.yml").write_text(json.dumps([play]))
    inventory = {name: {"hosts": dict.fromkeys(hosts)} for name, hosts in groups.items()}
    (directory / "hosts.yml").write_text(json.dumps(inventory))
    interpreter = f"ansible_python_interpreter={sys.executable}"
    environ = {**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_STDOUT_CALLBACK": "default"}
    done = subprocess.run(
        ["ansible-playbook", "-i", "hosts.yml", "play.yml", "-e", interpreter, *arguments],
        env={**environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "300", **environment},
        cwd=directory,
        text=True,
        capture_output=True,
        check=False,
    )
    assert results.exists(), done.stdout + done.stderr
    parts = re.split(r"^TASK \[(\w+)\] \**\n", done.stdout, flags=re.MULTILINE)
    shown = dict(zip(parts[1::2], parts[2::2], strict=True))
    registered = json.loads(results.read_text())
    outcomes = {}
    for name in cases:
        # Ansible, not the action, shows the result.
        lines = re.split(r"^(?:ok|changed|fatal): \[localhost", shown[name], maxsplit=1, flags=re.MULTILINE)[0]
        file = directory / name / "calls"
        calls = [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        outcomes[name] = Outcome(registered[name], lines.splitlines(), calls)
    return outcomes
