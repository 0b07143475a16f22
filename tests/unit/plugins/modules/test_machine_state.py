"""The real module, on temporary directories and with an engine that only keeps a list of networks."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.cluster.directories import DIRECTORIES
from ansible_collections.argus.verl.plugins.modules import machine_state

ENGINE = """#!/bin/sh
# "network ls" lists the networks with the label of the filter; "create" adds one, "rm" removes those with the ids.
LABEL=label=argus.verl.cluster=mvp
case "$2" in
  ls) cat "$NETWORKS/own" $([ "$5=$6" = "--filter=$LABEL" ] || echo "$NETWORKS/foreign") | sed 's/.*/id-& &/' ;;
  create) [ "$3=$4" = "--$LABEL" ] && echo "$5" >> "$NETWORKS/own" ;;
  rm) shift 2; for id; do sed -i "0,/^${id#id-}$/{/^${id#id-}$/d}" "$NETWORKS/own"; done ;;
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
            "state_dir": str(self.token.parent.parent),
            "shared_root": str(self.shared_root),
            "user": f"{os.getuid()}:{os.getgid()}",
            **changes,
        }

    def answer(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        """Run the module in this process."""
        arguments = self.arguments(**changes) | {"_ansible_check_mode": check, "_ansible_diff": True}
        output = io.StringIO()
        with patch_module_args(arguments), contextlib.redirect_stdout(output), pytest.raises(SystemExit):
            machine_state.main()
        return dict(json.loads(output.getvalue()))

    def run(self, check: bool = False, **changes: Any) -> dict[str, Any]:
        answer = self.answer(check, **changes)
        assert not answer.get("failed"), answer
        return answer

    def error(self, **changes: Any) -> str:
        answer = self.answer(**changes)
        assert answer.get("failed"), answer
        return str(answer["msg"])

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
    assert machine.run(check=True)["changed"]
    assert not machine.token.exists() and list(machine.shared_root.iterdir()) == []
    assert machine.networks["own"].read_text() == ""
    shown = machine.ansible("-vvv", "--diff")
    token = machine.token.read_text()
    assert len(token) == 64 and int(token, 16)
    assert machine.token.stat().st_mode & 0o777 == 0o400
    assert token not in shown
    assert all((machine.shared_root / name).is_dir() for name in DIRECTORIES)
    assert machine.networks["own"].read_text() == "mvp-ray\n"

    assert not machine.run()["changed"]
    assert machine.token.read_text() == token
    # The registry is only on the machine of the head.
    assert not (machine.token.parent / "jobs").exists()
    # The token of the cluster replaces it: with two tokens the nodes do not find each other.
    result = machine.run(token="beef" * 16)
    assert result["changed"] and machine.token.read_text() == "beef" * 16 not in json.dumps(result)


def test_absent_removes_the_state_and_keeps_data(machine: Machine) -> None:
    machine.run()
    (machine.shared_root / "jobs" / "job-1").mkdir()
    # Docker makes two networks for two processes that ask at the same moment, and then finds the name ambiguous.
    machine.networks["own"].write_text("mvp-ray\nmvp-ray\nmvp-ray-2\n")
    nodes = machine.token.parent / "nodes"
    (nodes / "worker-0").mkdir(parents=True)
    # Tasks before this one remove nodes, and in check mode they do not.
    answer = machine.run(check=True, state="absent")
    assert answer["changed"] and answer["left"] == []
    assert answer["diff"]["before"].splitlines()[-1] == str(machine.token.parent)
    assert machine.token.exists() and "mvp-ray\n" in machine.networks["own"].read_text()
    answer = machine.run(state="absent")
    assert answer["changed"] and answer["left"] == [str(nodes)] and list(nodes.parent.iterdir()) == [nodes]
    assert machine.networks["own"].read_text() == "mvp-ray-2\n"
    (nodes / "worker-0").rmdir()
    nodes.rmdir()
    assert machine.run(state="absent")["changed"]
    assert not machine.token.parent.exists()
    assert (machine.shared_root / "jobs" / "job-1").is_dir()
    assert not machine.run(state="absent")["changed"]


def test_only_the_nodes_user_can_read_what_it_has_and_nobody_else_can_list_it(machine: Machine) -> None:
    machine.run(head_storage="rocksdb")
    state = machine.token.parent
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (state, *state.iterdir())}
    assert modes == {"mvp": 0o711, "auth_token": 0o400, "jobs": 0o750, "tables": 0o700}
    # As an earlier release left it.
    state.chmod(0o755)
    assert machine.run(check=True)["diff"]["after"] == f"{state}\n"
    assert machine.run()["diff"]["after"] == f"{state}\n"
    assert stat.S_IMODE(state.stat().st_mode) == 0o711
    assert not machine.run(head_storage="rocksdb")["changed"]
    # Tables of a head that keeps none are removed, and a rotation replaces the token.
    before = machine.token.read_text()
    for check in (True, False):
        assert machine.run(check=check, head_storage="memory")["diff"]["after"] == f"{state / 'tables'}\n"
        assert (state / "tables").exists() is check
        assert machine.run(check=check, rotate=True)["diff"]["after"] == f"{machine.token}\n"
        assert (machine.token.read_text() == before) is check
    assert len(machine.token.read_text()) == 64
    assert sorted([path.name for path in state.iterdir()]) == ["auth_token", "jobs"]


def test_networks_that_are_not_ours(machine: Machine) -> None:
    for network in ("host", None):
        machine.run(network=network)
    machine.networks["foreign"].write_text("mvp-ray\n")
    machine.run()
    assert machine.networks["own"].read_text() == ""
    assert "network mvp-ray" not in machine.run(state="absent")["diff"]["before"]
    assert machine.networks["foreign"].read_text() == "mvp-ray\n"


def test_a_link_is_neither_followed_nor_written_and_no_token_lies_where_jobs_can_write(
    machine: Machine, tmp_path: Path
) -> None:
    machine.run()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "auth_token").write_text("another cluster's")
    machine.token.unlink()
    machine.token.symlink_to(victim / "auth_token")
    assert str(machine.token) in machine.error(rotate=True)
    directory = machine.token.parent
    directory.rename(tmp_path / "moved")
    directory.symlink_to(victim)
    for state in ("present", "absent"):
        assert str(directory) in machine.error(state=state)
    assert (victim / "auth_token").read_text() == "another cluster's"
    before = sorted(machine.shared_root.rglob("*"))
    for place in (machine.shared_root, machine.shared_root / "user" / "state"):
        assert "cluster_state_dir" in machine.error(state_dir=str(place))
    assert sorted(machine.shared_root.rglob("*")) == before


def test_absent_leaves_and_names_what_is_not_ours(machine: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    machine.run(head_storage="rocksdb")
    state = machine.token.parent
    (state / "jobs" / "grpo-1.json").write_text("{}")
    (state / ".auth_token.0123").write_text("of a run that was killed")
    (state / "notes.txt").write_text("of the operator")
    answer = machine.run(state="absent")
    removed = ["network mvp-ray", *(str(state / name) for name in (".auth_token.0123", "auth_token", "jobs", "tables"))]
    assert answer["diff"]["before"].splitlines() == removed
    assert answer["left"] == [f"{state}/notes.txt"]
    # Ansible returns the warning, or shows it, depending on what runs in this process.
    shown = json.dumps(answer) + capsys.readouterr().err
    assert f"{state} is kept: this collection did not create {state}/notes.txt" in shown
    assert [path.name for path in state.iterdir()] == ["notes.txt"]


def test_absent_follows_no_link_and_no_depth_is_too_much(machine: Machine, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "data").write_text("precious")
    machine.run(head_storage="rocksdb")
    jobs = machine.token.parent / "jobs"
    (jobs / "link").symlink_to(victim)
    directory = os.open(jobs, os.O_RDONLY)
    for _level in range(1500):
        os.mkdir("d", dir_fd=directory)
        below = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(directory)
    machine.run(state="absent")
    assert not jobs.parent.exists()
    assert (victim / "data").read_text() == "precious"


REFUSED: list[tuple[str, str, list[str]]] = [
    ("cluster", "cluster_name is", ["", "..", "../mvp", "mvp\n"]),
    ("state_dir", "cluster_state_dir is", ["", "/", "//", "state", "./state", "/var/lib/../..", "/tmp/a\nb"]),
    ("state_dir", "/proc/none: No such file", ["/proc/none"]),
    ("network", "cluster_network is", ["--driver=x"]),
    ("user", "user is ", ["root", "0", "1000", "1:-1", "a:b", "", "1:1:1"]),
]


@pytest.mark.parametrize(("name", "words", "values"), REFUSED)
def test_values_that_are_none_are_refused_before_anything_else(
    machine: Machine, name: str, words: str, values: list[str]
) -> None:
    machine.run()
    before = machine.token.read_text()
    machine.networks["own"].write_text("other-ray\nmvp-ray\n")
    for value in values:
        assert words in machine.error(**{name: value})
        if name not in ("user", "network") and value != "/proc/none":
            assert words in machine.error(state="absent", **{name: value})
    assert machine.token.read_text() == before
    assert machine.networks["own"].read_text() == "other-ray\nmvp-ray\n"
