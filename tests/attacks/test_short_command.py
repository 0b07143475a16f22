"""The command argus where jobs and other users have left files: real shells, and Ansible itself."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
ARGUS = [sys.executable, str(REPO / "bin" / "argus_command.py")]
SHELLS = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}
PWNED = "touch pwned"
NAMES = [
    *(f"$({PWNED})", f"`{PWNED}`", f"a;{PWNED};", f"grpo-2;{PWNED}", f"*(e:{PWNED}:)", f"a*(e:'{PWNED}':)"),
    *("{{ 7*7 }}", f"$[$({PWNED})]", "a b", "-rf", "grpo-1\nx", "${HOME}", "~root", "*", "!!"),
]


def type_into(shell: str, directory: Path, keys: str) -> None:
    """Type keys into a shell with a terminal, until it exits."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(directory), "TERM": "dumb"}
    process, terminal = pty.fork()
    if not process:
        os.chdir(directory)
        os.execvpe(shell, [shell, *SHELLS[shell]], environment)  # noqa: S606
    os.write(terminal, keys.encode())
    # At its end, the terminal is gone.
    with contextlib.suppress(OSError):
        while select.select([terminal], [], [], 60)[0] and os.read(terminal, 4096):
            pass
    os.close(terminal)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_offers_ids_and_runs_no_names(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed: make setup-dev")
    for name in [*NAMES, "grpo-20260101-abcd"]:
        (tmp_path / "shared" / "jobs" / name).mkdir(parents=True)
    (tmp_path / f"x$({PWNED}).yaml").touch()
    script = subprocess.run([*ARGUS, "completion", shell], capture_output=True, text=True, check=True).stdout
    (tmp_path / "completion").write_text(f'argus() {{ printf "%s\\n" "$*" >>calls; }}\n{script}')
    lines = ["argus dr\t", "argus stop \t", "argus stop a\t\t", "argus submit x\t", "argus stop grpo-1\t\t", "exit"]
    type_into(shell, tmp_path, "".join(f"{line}\n" for line in [". ./completion", *lines]))
    calls = (tmp_path / "calls").read_text().splitlines()
    expected = ["drain", "stop grpo-20260101-abcd", "stop a", f"submit x$({PWNED}).yaml"]
    assert [call.rstrip() for call in calls[:4]] == expected
    assert not (tmp_path / "pwned").exists()


def test_settings_in_an_archive_run_nothing(tmp_path: Path) -> None:
    fetched = tmp_path / "artifacts" / "grpo-1"
    fetched.mkdir(parents=True)
    (fetched / "hosts").write_text(f"#!/bin/sh\n{PWNED}\necho '{{}}'\n")
    (fetched / "hosts").chmod(0o755)
    (fetched / "ansible.cfg").write_text("[defaults]\ninventory = hosts\n")
    command = [*ARGUS, "nodes", "--", "--list-hosts"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(command, cwd=fetched, env=environment, capture_output=True, text=True, check=True)
    assert "hosts (" in done.stdout and f"{fetched / 'ansible.cfg'} is ignored" in done.stderr
    assert not (fetched / "pwned").exists()
    # That of the user counts.
    subprocess.run(command, cwd=fetched, env=environment | {"ANSIBLE_CONFIG": "ansible.cfg"}, check=True)
    assert (fetched / "pwned").exists()


def test_what_is_typed_is_no_template(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "ansible-playbook"
    stub.write_text("#!/bin/sh\nprintf '%s\\0' \"$@\" >>calls\n")
    stub.chmod(0o755)
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    evil = "{{ 7*7 }}"
    headed = "#jinja2:variable_start_string:'[%',variable_end_string:'%]'\n[% 7*7 %]"
    command = [str(tmp_path / "bin" / "python3"), ARGUS[1]]
    for verb in (
        ["logs", "grpo-1", "--rank", evil, "--attempt", headed],
        ["submit", evil, f"a.b={evil}", "--tag", f"{evil}={evil}"],
    ):
        subprocess.run([*command, *verb], cwd=tmp_path, check=True)
    arguments = (tmp_path / "calls").read_text().split("\0")
    variables = [value for option, value in itertools.pairwise(arguments) if option == "-e"]
    shown = {"rank": "job_log_rank", "attempt": "job_log_attempt", "file": "jobspec", "set": "set"}
    message = ", ".join(f"'{name}': {variable}" for name, variable in shown.items())
    task = {"copy": {"content": f"{{{{ {{{message}}} | to_json }}}}", "dest": str(tmp_path / "seen")}}
    (tmp_path / "play.json").write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": [task]}]))
    variables.append(f"ansible_python_interpreter={sys.executable}")
    options = [part for value in variables for part in ("-e", value)]
    playbook = str(Path(sys.executable).with_name("ansible-playbook"))
    subprocess.run([playbook, "-i", "localhost,", "-c", "local", "play.json", *options], cwd=tmp_path, check=True)
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen == {"rank": evil, "attempt": headed, "file": evil, "set": [f"tags.{evil}={evil}", f"a.b={evil}"]}
