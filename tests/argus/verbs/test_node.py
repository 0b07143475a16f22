"""Nodes that are processes: a real supervisor, and a program that stands in for Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_processes import alive, until

import argus
from argus.archive.program import Program
from argus.cluster.supervisor import NO_RESTART_FILE, rotate_log
from argus.common.node_process import MARK_VARIABLE, ORPHANED, RUNNING, STOPPED, NodeProcess, read_node_process
from argus.jobs.services import OperationError
from argus.verbs.node import NodeRequest, apply, stop

# It starts a process that leaves its session and its parent, as daemons do, and one that also drops the mark.
RAY = """
import os, signal, subprocess, sys, time
script = "import os,time; os.setsid(); open(f'{os.environ[\\"OUT\\"]}/{os.getpid()}','w').close(); time.sleep(600)"
print("ray begins", flush=True)
for environment in (dict(os.environ), {"OUT": os.environ["OUT"]}):
    subprocess.Popen(["/bin/sh", "-c", f'"{sys.executable}" -c "$0" & exit 0', script], env=environment).wait()
open(os.environ["OUT"] + "/ray", "w").write(str(os.getpid()))
time.sleep(600)
"""


class Scene:
    def __init__(self, root: Path) -> None:
        self.directory, self.out, self.tmp = root / "nodes" / "worker-0", root / "out", root / "tmp"
        self.out.mkdir()
        (root / "ray.py").write_text(RAY)
        self.request = dict[str, Any](
            directory=str(self.directory),
            working_directory=str(self.tmp),
            command=[sys.executable, str(root / "ray.py")],
            environment={MARK_VARIABLE: str(self.directory), "OUT": str(self.out), "SECRET": "it's"},
            specification="one",
            derived='{"A": "1"}',
        )

    def ask(self, **changes: Any) -> tuple[NodeProcess, bool]:
        result, changed = apply(NodeRequest(**{**self.request, **changes}))
        return NodeProcess(**result["node"]), changed

    def start(self, **changes: Any) -> NodeProcess:
        self.forget()
        node, changed = self.ask(**changes)
        assert changed
        self.wait()
        return node

    def wait(self) -> None:
        until(lambda: len(self.pids()) == 2 and (self.out / "ray").exists())

    def pids(self) -> set[int]:
        """The processes that have started, without Ray."""
        return {int(path.name) for path in self.out.iterdir() if path.name.isdigit()}

    @property
    def ray(self) -> int:
        return int((self.out / "ray").read_text())

    def of_ray(self, name: str) -> str:
        return Path(f"/proc/{self.ray}/{name}").read_text()

    def forget(self) -> None:
        for path in self.out.iterdir():
            path.unlink()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    program = tmp_path / "program"
    program.mkdir()
    (program / "__main__.py").write_text("from argus.__main__ import start\nstart()\n")
    (program / "argus").symlink_to(Path(argus.__file__).parent)
    monkeypatch.setattr(Program, "of_this_process", lambda: Program(str(program)))
    one = Scene(tmp_path)
    yield one
    stop(one.directory)
    assert not any(map(alive, one.pids()))


def test_a_node_runs_until_it_is_removed(scene: Scene) -> None:
    assert scene.ask(check=True) == (NodeProcess(), True)
    node = scene.start()
    assert (node.state, node.restarts, node.specification, node.derived) == (RUNNING, 0, "one", '{"A": "1"}')
    # It stays when the connection ends, and its command line has no secret.
    assert os.getsid(node.pid) == node.pid != os.getsid(0)
    assert Path(f"/proc/{node.pid}/cmdline").read_text().endswith(f"program\0node\0{scene.directory}\0")
    assert b"SECRET" not in Path(f"/proc/{node.pid}/environ").read_bytes()
    # Another program, or another run: a node that runs as asked is left alone.
    assert scene.ask() == (node, False)
    # Only one supervisor has a node.
    program = [sys.executable, Program.of_this_process().path, "node", str(scene.directory)]
    assert subprocess.run(program, check=False, capture_output=True).returncode == 1
    everything = {node.pid, scene.ray, *scene.pids()}
    assert all(map(alive, everything))
    assert scene.ask(state="absent", check=True) == (node, True)
    assert scene.ask(state="absent") == (NodeProcess(), True)
    assert not any(map(alive, everything))
    assert not scene.directory.parent.exists() and not scene.tmp.exists()
    assert scene.ask(state="absent") == (NodeProcess(), False)


def test_ray_gets_its_environment_and_what_a_step_of_slurm_has(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPUs, and what a module has set; what the inventory sets comes first."""
    step = {"CUDA_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "4", "LD_LIBRARY_PATH": "/site/lib"}
    other = {"LOADEDMODULES": "cuda", "HOME": "/home/operator", "TMPDIR": "/of-the-login-host"}
    for name, text in {**step, **other, "SLURM_JOB_ID": "7", "PATH": f"/site/bin:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, text)
    inventory = {"HIP_VISIBLE_DEVICES": "5", "PATH": "/opt/verl/bin:/usr/bin:/bin"}
    scene.start(environment={**scene.request["environment"], **inventory})
    environment = dict(entry.split("=", 1) for entry in scene.of_ray("environ").split("\0") if entry)
    assert {**step, "HIP_VISIBLE_DEVICES": "5", "SECRET": "it's"}.items() <= environment.items()
    assert environment["PATH"].startswith("/opt/verl/bin:/site/bin:")
    assert not {*other, "SLURM_JOB_ID"} & environment.keys()
    (files,) = (line.split() for line in scene.of_ray("limits").splitlines() if line.startswith("Max open files"))
    assert files[3] == files[4]
    assert Path(f"/proc/{scene.ray}/cwd").resolve() == scene.tmp.resolve()
    # No signal is blocked for it.
    (blocked,) = (line.split()[1] for line in scene.of_ray("status").splitlines() if "SigBlk" in line)
    assert int(blocked, 16) == 0
    # Other users read nothing, and a shell takes the environment over.
    assert {path.stat().st_mode & 0o777 for path in (scene.directory, scene.tmp)} == {0o700}
    shell = f'. "{scene.directory}/environment.sh"; echo "$SECRET ${MARK_VARIABLE}"'
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "it's \n"


def test_ray_that_ends_is_started_again_without_what_it_left(scene: Scene) -> None:
    before = scene.start()
    first, ray = scene.pids(), scene.ray
    scene.forget()
    os.kill(ray, signal.SIGKILL)
    scene.wait()
    assert not any(map(alive, first))
    after = read_node_process(scene.directory)
    assert (after.state, after.pid, after.restarts, after.exit_code) == (RUNNING, before.pid, 1, 137)
    assert after.started_at and before.started_at and after.started_at > before.started_at
    assert (scene.directory / "node.log").read_text().count("ray begins") == 2


def test_a_node_that_leaves_is_not_started_again(scene: Scene) -> None:
    scene.start()
    (scene.directory / NO_RESTART_FILE).touch()
    os.kill(scene.ray, signal.SIGKILL)
    until(lambda: read_node_process(scene.directory).state == STOPPED)
    assert not any(map(alive, scene.pids()))
    # It may come back.
    scene.start()
    assert not (scene.directory / NO_RESTART_FILE).exists()


def test_a_killed_supervisor_takes_ray_with_it_and_the_rest_is_found(scene: Scene) -> None:
    node = scene.start()
    ray, left = scene.ray, scene.pids()
    os.kill(node.pid, signal.SIGKILL)
    until(lambda: not alive(ray))
    assert read_node_process(scene.directory).state == ORPHANED
    again = scene.start()
    assert again.state == RUNNING and again.pid != node.pid
    # Of two processes one has dropped the mark: only a supervisor that lives would find it.
    (stray,) = filter(alive, left)
    os.kill(stray, signal.SIGKILL)


def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(scene: Scene) -> None:
    """Jobs of a process node have its user."""
    scene.start()
    assert stop(scene.directory)
    for name in ("state.json", "node.log", "lock", "node.json"):
        (scene.directory / name).unlink()
        os.mkfifo(scene.directory / name)
    assert read_node_process(scene.directory) == NodeProcess(STOPPED)
    assert scene.start().state == RUNNING


def test_what_cannot_start_is_refused(scene: Scene, tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"No such file.*node\.log"):
        scene.ask(command=["/nonexistent/ray"])
    scene.ask(state="absent")
    # A directory that is not ours.
    (tmp_path / "elsewhere").mkdir()
    scene.tmp.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OperationError, match=str(scene.tmp)):
        scene.ask()
    scene.ask(state="absent")
    assert scene.tmp.is_symlink() and (tmp_path / "elsewhere").is_dir()
    scene.ask(state="absent", working_directory="")


def test_sessions_end_with_the_last_node_of_the_host(scene: Scene) -> None:
    (scene.tmp / "ray" / "session").mkdir(parents=True)
    scene.start()
    assert not (scene.tmp / "ray").exists()
    other = scene.directory.with_name("head")
    other.mkdir()
    (scene.tmp / "ray").mkdir()
    scene.start(specification="two")
    assert (scene.tmp / "ray").is_dir()
    scene.ask(state="absent")
    assert scene.tmp.is_dir()
    scene.ask(state="absent", directory=str(other))
    assert not scene.tmp.exists()


def test_the_state_file_is_not_believed(scene: Scene) -> None:
    scene.directory.mkdir(parents=True)
    (scene.directory / "node.json").write_text('{"specification": "", "settings": "", "derived": ""}')
    for text in ("", "[]", "{", '{"started_at": "x", "restarts": 1, "exit_code": null}'):
        (scene.directory / "state.json").write_text(text)
        assert read_node_process(scene.directory) == NodeProcess(STOPPED)


def test_a_log_that_is_too_large_has_a_second_file(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    rotate_log(tmp_path, 4)
    log.write_text("abcd")
    rotate_log(tmp_path, 5)
    with log.open("a") as kept:
        assert log.read_text() == "abcd"
        rotate_log(tmp_path, 4)
        kept.write("after")
    assert ((tmp_path / "node.log.1").read_text(), log.read_text()) == ("abcd", "after")
