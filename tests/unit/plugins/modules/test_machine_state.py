"""The real module, on temporary directories and with an engine that only keeps a list of networks."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.modules import machine_state
from ansible_collections.argus.verl.plugins.modules.machine_state import DIRECTORIES, missing_directories, write_token

ENGINE = """#!/bin/sh
# "network ls" with a filter lists networks with the label; "create" adds one, "rm" removes one.
case "$2" in
  ls) grep -h . "$NETWORKS/own" $([ "$5" = --filter ] || echo "$NETWORKS/foreign") ;;
  create) echo "$5" >> "$NETWORKS/own" ;;
  rm) sed -i "/^$3$/d" "$NETWORKS/own" "$NETWORKS/foreign" ;;
esac
true
"""


SHOWN = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}


class Machine:
    def __init__(self, path: Path) -> None:
        self.token = path / "state" / "mvp" / "auth_token"
        self.shared_root = path / "shared"
        self.shared_root.mkdir()
        self.engine = path / "engine"
        self.engine.write_text(ENGINE)
        self.engine.chmod(0o755)
        self.networks = {name: path / name for name in ("own", "foreign")}
        for file in self.networks.values():
            file.touch()
        self.path = path

    def arguments(self, **changes: Any) -> dict[str, Any]:
        return {
            "cluster": "mvp",
            "network": "mvp-ray",
            "engine": str(self.engine),
            "token_file": str(self.token),
            "shared_root": str(self.shared_root),
            "user": f"{os.getuid()}:{os.getgid()}",
            **changes,
        }

    def run(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        """Run the module in this process."""
        arguments = self.arguments(**changes) | {"_ansible_check_mode": check, "_ansible_diff": True}
        output = io.StringIO()
        with patch_module_args(arguments), contextlib.redirect_stdout(output), pytest.raises(SystemExit) as ended:
            machine_state.main()
        assert ended.value.code == 0, output.getvalue()
        return dict(json.loads(output.getvalue()))

    def ansible(self, *options: str) -> str:
        """Run the module with Ansible, and return everything that it prints."""
        command = ["ansible", "localhost", "-i", "localhost,", "-c", "local", "-m", "argus.verl.machine_state"]
        variables = ["-e", f"ansible_python_interpreter={sys.executable}", "-a", json.dumps(self.arguments())]
        done = subprocess.run(
            [*command, *variables, *options], env={**os.environ, **SHOWN}, text=True, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("NETWORKS", str(tmp_path))
    return Machine(tmp_path)


def test_everything_is_created_once_and_the_token_is_never_shown(machine: Machine) -> None:
    shown = machine.ansible("-vvv", "--diff")
    token = machine.token.read_text()
    assert len(token) == 64 and int(token, 16)
    assert machine.token.stat().st_mode & 0o777 == 0o400
    assert token not in shown
    assert all((machine.shared_root / name).is_dir() for name in DIRECTORIES)
    assert machine.networks["own"].read_text() == "mvp-ray\n"

    assert not machine.run()["changed"]
    assert machine.token.read_text() == token


def test_changes_are_listed_in_the_diff(machine: Machine) -> None:
    after = machine.run()["diff"]["after"].splitlines()
    assert after[:3] == ["network mvp-ray", str(machine.token), str(machine.shared_root / "datasets")]
    before = machine.run(state="absent")["diff"]["before"].splitlines()
    assert before == ["network mvp-ray", str(machine.token.parent)]


def test_check_mode_reports_and_changes_nothing(machine: Machine) -> None:
    assert machine.run(check=True)["changed"]
    assert not machine.token.exists()
    assert list(machine.shared_root.iterdir()) == []
    assert machine.networks["own"].read_text() == ""


def test_another_machine_gets_the_token_of_the_cluster(machine: Machine) -> None:
    result = machine.run(token="c0ffee" * 8)
    assert machine.token.read_text() == "c0ffee" * 8
    assert "c0ffee" * 8 not in json.dumps(result)
    # It replaces an existing one: with two tokens the nodes do not find each other.
    assert machine.run(token="beef" * 16)["changed"]
    assert machine.token.read_text() == "beef" * 16


def test_absent_removes_the_state_and_keeps_data(machine: Machine) -> None:
    machine.run()
    (machine.shared_root / "jobs" / "job-1").mkdir()
    assert machine.run(check=True, state="absent")["changed"]
    assert machine.token.exists()
    assert machine.networks["own"].read_text() == "mvp-ray\n"
    assert machine.run(state="absent")["changed"]
    assert not machine.token.parent.exists()
    assert machine.networks["own"].read_text() == ""
    assert (machine.shared_root / "jobs" / "job-1").is_dir()
    assert not machine.run(state="absent")["changed"]


def test_network_of_another_owner_is_used_and_not_removed(machine: Machine) -> None:
    machine.networks["foreign"].write_text("mvp-ray\n")
    machine.run()
    assert machine.networks["own"].read_text() == ""
    machine.run(state="absent")
    assert machine.networks["foreign"].read_text() == "mvp-ray\n"


@pytest.mark.parametrize("network", ["host", None])
def test_network_of_the_host_is_not_created(machine: Machine, network: str | None) -> None:
    assert machine.run(network=network)["changed"]
    assert machine.networks["own"].read_text() == ""


def test_parent_directories_are_created_too(tmp_path: Path) -> None:
    missing = [str(path.relative_to(tmp_path)) for path in missing_directories(tmp_path)]
    assert missing.index("common") < missing.index("common/code") < missing.index("common/code/verl")
    assert len(missing) == len(set(missing))


def test_token_is_written_atomically(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "auth_token"
    write_token(file, "first", (os.getuid(), os.getgid()))
    write_token(file, "second", (os.getuid(), os.getgid()))
    assert file.read_text() == "second"
    assert [path.name for path in file.parent.iterdir()] == ["auth_token"]


def test_directory_that_cannot_be_written_is_an_error_with_advice(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    with patch_module_args(machine.arguments(token_file="/proc/none/auth_token")), pytest.raises(SystemExit):
        machine_state.main()
    answer = json.loads(capsys.readouterr().out)
    assert answer["failed"]
    assert answer["msg"].startswith("/proc/none: No such file or directory. Set ansible_become for a user that may")
    assert "cluster_state_dir" in answer["msg"]
