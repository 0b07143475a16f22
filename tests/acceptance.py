"""The acceptance list of docs/from_compose.md: its commands, and what the tests have seen of each line."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field

from system import ENVIRONMENT, HEAD, INVENTORY, REPO, SHARED_ROOT

PAGE = REPO / "docs" / "from_compose.md"
ROW = re.compile(r"^\| (?P<number>\d\.\d) \| (?P<expected>.+?) \| `(?P<command>[^`]+)` \|$", re.MULTILINE)


@dataclass
class Line:
    expected: str
    command: str
    seen: list[str] = field(default_factory=list)


LINES = {row["number"]: Line(row["expected"], row["command"]) for row in ROW.finditer(PAGE.read_text())}


def typed(number: str, submission_id: str = "") -> str:
    """The output of the command of a line, as a person types it, with the names of the tests' cluster."""
    command = LINES[number].command.replace("<id>", submission_id).replace("mvp-ray-head", HEAD)
    command = command.replace("shared/", f"{SHARED_ROOT}/").replace(
        "ansible-playbook", f"ansible-playbook -i {INVENTORY}"
    )
    # Ray's command line writes its answers as log lines to the standard error when there is no terminal.
    done = subprocess.run(
        command.split(),
        cwd=REPO,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def seen(number: str, evidence: str) -> None:
    """Record that a line holds, with its evidence."""
    LINES[number].seen.append(evidence)
