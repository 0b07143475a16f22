"""The state directory of a cluster: real files, real processes. test_machine_state.py has the module's side."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import (
    COMMAND_TEXT,
    PROGRAM_PATH,
    StateDirectory,
    StateError,
    program_of,
    read_token,
)
from ansible_collections.argus.verl.plugins.module_utils.privileges import User

NODES, OTHER = User(61000, 61000), User(1000, 1000)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@as_root
def test_another_user_of_the_nodes_gets_the_token_and_an_empty_registry(tmp_path: Path) -> None:
    state = StateDirectory(str(tmp_path), "mvp", check=False)
    token, jobs = tmp_path / "mvp" / "auth_token", tmp_path / "mvp" / "jobs"
    with state.open(create=True):
        assert state.provide_token(OTHER, "", rotate=False)
        text = token.read_text()
        assert state.provide_token(NODES, "", rotate=False) == [str(token)]
        assert state.provide_token(NODES, "", rotate=False) == []
        for user in (OTHER, NODES):
            assert state.provide_registry(user) == [str(jobs)]
        assert jobs.stat().st_uid == 61000
        (jobs / "grpo-1.json").write_text("{}")
        assert state.provide_registry(NODES) == []
        with pytest.raises(StateError, match=f"{jobs} belongs to 61000:61000"):
            state.provide_registry(OTHER)
    status = token.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (61000, 61000, 0o400)
    assert token.read_text() == text


@as_root
def test_what_is_not_ours_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "auth_token")
    with pytest.raises(StateError):
        read_token(tmp_path / "auth_token")
    victim, state = tmp_path / "victim", StateDirectory(str(tmp_path), "mvp", check=False)
    victim.mkdir()
    (tmp_path / "argus-1.zip").touch()
    with state.open(create=True):
        for name in ("jobs", "program"):
            (tmp_path / "mvp" / name).symlink_to(victim)
        with pytest.raises(StateError, match="mvp/jobs is not a directory"):
            state.provide_registry(NODES)
        with pytest.raises(StateError, match="mvp/program is a link"):
            state.provide_program(tmp_path / "argus-1.zip")
    assert victim.stat().st_uid == 0 and list(victim.iterdir()) == []
    os.chown(tmp_path / "mvp", 1000, 1000)
    with pytest.raises(StateError, match="uid 1000"), state.open():
        pass


def test_versions_of_the_program_stay_side_by_side(tmp_path: Path) -> None:
    state, path = StateDirectory(str(tmp_path), "mvp", check=False), tmp_path / "mvp" / "program"
    old, new = tmp_path / "argus-1.zip", tmp_path / "argus-2.zip"
    old.write_text("old")
    new.write_text("new")
    with state.open(create=True):
        assert state.provide_program(old) == [str(path / "argus-1.zip"), str(path / "argus")]
        assert state.provide_program(old) == []
        assert StateDirectory(str(tmp_path), "mvp", check=True).provide_program(new) == [str(path / "argus-2.zip")]
        assert program_of(tmp_path / "mvp") == "argus-1.zip"
        assert state.provide_program(new) == [str(path / "argus-2.zip")]
        assert program_of(tmp_path / "mvp") == "argus-2.zip"
        assert ((path / "current").read_text(), (path / "argus-1.zip").read_text()) == ("new", "old")
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.iterdir() if not file.is_symlink()}
        assert modes == {"argus": 0o555, "argus-1.zip": 0o444, "argus-2.zip": 0o444}
        assert state.remove() == ([str(path), str(tmp_path / "mvp")], [])
    assert not path.exists()


def test_the_command_of_a_node_takes_no_module_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('of a job')")
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "current").write_text("import json; print(json.dumps('ours'))")
    (tmp_path / "argus").write_text(COMMAND_TEXT.replace(PROGRAM_PATH, str(tmp_path / "program")))
    (tmp_path / "argus").chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    shown = subprocess.check_output([tmp_path / "argus"], env=environment, cwd=tmp_path, text=True)
    assert shown == '"ours"\n'
