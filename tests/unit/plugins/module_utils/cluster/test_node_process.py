"""Nodes that are processes: a real supervisor, and a program that stands in for Ray."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster import node_process, supervisor
from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import (
    ORPHANED,
    RUNNING,
    STOPPED,
    FoundProcess,
    NodeProcess,
    ProcessError,
)
from real_processes import alive, until

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
        self.node = NodeProcess(root / "nodes" / "worker-0")
        self.out, self.tmp = root / "out", root / "tmp"
        self.out.mkdir()
        ray = root / "ray.py"
        ray.write_text(RAY)
        self.order = dict[str, Any](
            command=[sys.executable, str(ray)],
            environment={supervisor.MARK: str(self.node.directory), "OUT": str(self.out), "SECRET": "it's"},
            python=sys.executable,
            working_directory=str(self.tmp),
            specification="one",
            settings="{}",
            derived='{"A": "1"}',
        )

    def pids(self) -> set[int]:
        """The processes that have started, without Ray."""
        return {int(path.name) for path in self.out.iterdir() if path.name.isdigit()}

    def start(self) -> FoundProcess:
        found = self.node.start(self.order)
        until(lambda: len(self.pids()) == 2 and (self.out / "ray").exists())
        return found

    @property
    def ray(self) -> int:
        return int((self.out / "ray").read_text())

    def forget(self) -> None:
        for path in self.out.iterdir():
            path.unlink()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    one = Scene(tmp_path)
    yield one
    one.node.stop()
    for pid in one.pids():
        assert not alive(pid)


def test_a_node_runs_until_it_is_removed(scene: Scene) -> None:
    assert scene.node.look() == FoundProcess()
    found = scene.start()
    assert (found.state, found.restarts, found.specification, found.settings) == (RUNNING, 0, "one", "{}")
    assert found.derived == '{"A": "1"}'
    assert os.getsid(found.pid) == found.pid != os.getsid(0)
    everything = {found.pid, scene.ray, *scene.pids()}
    assert all(map(alive, everything))
    assert scene.node.remove(str(scene.tmp))
    assert not any(map(alive, everything))
    assert not scene.node.directory.parent.exists()
    assert not scene.tmp.exists()
    assert not scene.node.remove(str(scene.tmp))


def test_ray_gets_what_a_step_of_slurm_has(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its GPUs, and what a module has set; what the inventory sets comes first."""
    step = {"CUDA_VISIBLE_DEVICES": "2,3", "HIP_VISIBLE_DEVICES": "4", "LD_LIBRARY_PATH": "/site/lib"}
    other = {
        "SLURM_JOB_ID": "7",
        "LOADEDMODULES": "cuda",
        "BASH_FUNC_module%%": "() { :; }",
        "HOME": "/home/operator",
        "TMPDIR": "/of-the-login-host",
    }
    for name, text in {**step, **other, "PATH": f"/site/bin:{os.environ['PATH']}"}.items():
        monkeypatch.setenv(name, text)
    own = {"HIP_VISIBLE_DEVICES": "5", "PATH": "/opt/verl/bin:/usr/bin:/bin"}
    scene.order = {**scene.order, "environment": {**scene.order["environment"], **own}}
    scene.start()
    entries = Path(f"/proc/{scene.ray}/environ").read_text().split("\0")
    environment = dict(entry.split("=", 1) for entry in entries if entry)
    assert {**step, "HIP_VISIBLE_DEVICES": "5"}.items() <= environment.items()
    assert environment["PATH"].startswith("/opt/verl/bin:/site/bin:")
    assert not other.keys() & environment.keys()


def test_ray_gets_its_environment_and_all_files_that_it_may_open(scene: Scene) -> None:
    scene.start()
    environment = Path(f"/proc/{scene.ray}/environ").read_bytes().split(b"\0")
    assert {entry.partition(b"=")[0] for entry in environment if entry} - {b"LC_CTYPE"} == {
        b"ARGUS_VERL_NODE_DIRECTORY",
        b"OUT",
        b"SECRET",
    }
    limits = Path(f"/proc/{scene.ray}/limits").read_text()
    (files,) = (line.split() for line in limits.splitlines() if line.startswith("Max open files"))
    assert files[3] == files[4]
    assert Path(f"/proc/{scene.ray}/cwd").resolve() == scene.tmp.resolve()
    # No signal is blocked for it.
    (blocked,) = (
        line.split()[1] for line in Path(f"/proc/{scene.ray}/status").read_text().splitlines() if "SigBlk" in line
    )
    assert int(blocked, 16) == 0


def test_other_users_read_nothing(scene: Scene) -> None:
    scene.start()
    assert stat.S_IMODE(scene.node.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(scene.tmp.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in scene.node.directory.iterdir()} == {0o600}


def test_the_environment_can_be_read_by_a_shell(scene: Scene) -> None:
    scene.start()
    shell = f'. "{scene.node.directory}/environment.sh"; echo "$SECRET $OUT $ARGUS_VERL_NODE_DIRECTORY"'
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True, env={})
    assert done.stdout == f"it's {scene.out} \n"


def test_ray_that_ends_is_started_again_without_what_it_left(scene: Scene) -> None:
    before = scene.start()
    first, ray = scene.pids(), scene.ray
    scene.forget()
    os.kill(ray, signal.SIGKILL)
    until(lambda: len(scene.pids()) == 2 and (scene.out / "ray").exists())
    assert not any(map(alive, first))
    after = scene.node.look()
    assert (after.state, after.pid, after.restarts, after.exit_code) == (RUNNING, before.pid, 1, 137)
    assert after.started_at and before.started_at and after.started_at > before.started_at
    log = (scene.node.directory / "node.log").read_text()
    assert "Ray ended with exit code 137; it is started again in 0.1 s" in log
    assert log.count("ray begins") == 2


def test_a_node_that_leaves_is_not_started_again(scene: Scene) -> None:
    scene.start()
    (scene.node.directory / supervisor.LAST).touch()
    os.kill(scene.ray, signal.SIGKILL)
    until(lambda: scene.node.look().state == STOPPED)
    assert not any(map(alive, scene.pids()))
    # It may come back.
    scene.forget()
    scene.start()
    assert not (scene.node.directory / supervisor.LAST).exists()


def test_a_killed_supervisor_takes_ray_with_it_and_the_rest_is_found(scene: Scene) -> None:
    found = scene.start()
    ray, left = scene.ray, scene.pids()
    os.kill(found.pid, signal.SIGKILL)
    until(lambda: not alive(ray))
    assert scene.node.look().state == ORPHANED
    scene.forget()
    again = scene.start()
    assert again.state == RUNNING
    assert again.pid != found.pid
    # Of two processes one has dropped the mark: only a supervisor that lives would find it.
    assert sum(map(alive, left)) == 1
    for pid in filter(alive, left):
        os.kill(pid, signal.SIGKILL)


def test_a_stopped_node_has_files_but_no_process(scene: Scene) -> None:
    scene.start()
    assert scene.node.stop()
    assert scene.node.look().state == STOPPED
    assert not scene.node.stop()


def test_a_fifo_in_the_place_of_a_file_is_not_waited_for(scene: Scene) -> None:
    """Jobs of a process node have its user."""
    scene.start()
    assert scene.node.stop()
    for name in ("state.json", "node.log", "supervisor.log", ".node.json", ".supervisor.py"):
        (scene.node.directory / name).unlink(missing_ok=True)
        os.mkfifo(scene.node.directory / name)
    assert scene.node.look().state == STOPPED
    assert scene.node.last_words() == ""
    scene.forget()
    assert scene.start().state == RUNNING


def test_only_one_supervisor_has_a_node(scene: Scene) -> None:
    found = scene.start()
    program = [sys.executable, str(scene.node.directory / "supervisor.py"), str(scene.node.directory)]
    assert subprocess.run(program, check=False).returncode == supervisor.LOCKED
    assert scene.node.look().pid == found.pid


def test_a_process_that_looks_for_nodes_spares_itself(scene: Scene) -> None:
    scene.start()
    # As a module that was started with the node's environment, below a shell that has it too.
    code = (
        "import sys; from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import NodeProcess;"
        "node = NodeProcess(sys.argv[1]); assert node.stop(); print('ended', node.look().state)"
    )
    shell = f'sleep 600 & "{sys.executable}" -c "{code}" "{scene.node.directory}"; kill $!; echo alive'
    environment = {**os.environ, supervisor.MARK: str(scene.node.directory)}
    done = subprocess.run(
        ["/bin/sh", "-c", shell], env=environment, capture_output=True, text=True, check=True, start_new_session=True
    )
    assert done.stdout == "ended stopped\nalive\n"


def test_ray_that_does_not_start_is_reported(scene: Scene) -> None:
    scene.order = {**scene.order, "command": ["/nonexistent/ray"]}
    with pytest.raises(ProcessError, match=r"(?s)Ray was not started: .*cannot be started: .*No such file.*node\.log"):
        scene.node.start(scene.order)


def test_a_python_that_cannot_be_run_is_reported(scene: Scene) -> None:
    with pytest.raises(ProcessError, match="ray_node_python /nonexistent cannot be run: No such file or directory"):
        scene.node.start({**scene.order, "python": "/nonexistent"})


def test_a_directory_that_is_not_ours_is_not_used(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    scene.tmp.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ProcessError, match="belongs to another user of this host, or is a link; remove it"):
        scene.node.start(scene.order)
    assert not scene.node.remove(str(scene.tmp)) or scene.tmp.is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


def test_sessions_of_another_node_of_the_cluster_are_kept(scene: Scene) -> None:
    scene.start()
    other = NodeProcess(scene.node.directory.parent / "head")
    other.directory.mkdir()
    (scene.tmp / "ray").mkdir()
    assert scene.node.neighbours() == ["head"]
    scene.forget()
    scene.node.start(scene.order)
    assert (scene.tmp / "ray").is_dir()
    assert scene.node.remove(str(scene.tmp))
    assert scene.tmp.is_dir()
    assert other.remove(str(scene.tmp))
    assert not scene.tmp.exists()


def test_sessions_of_an_earlier_ray_are_removed(scene: Scene) -> None:
    (scene.tmp / "ray" / "session").mkdir(parents=True)
    scene.start()
    assert not (scene.tmp / "ray").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pid": "1", "started_at": "x", "restarts": true, "settings": 1}'])
def test_the_state_file_is_not_believed(scene: Scene, text: str) -> None:
    scene.node.directory.mkdir(parents=True)
    (scene.node.directory / "state.json").write_text(text)
    assert scene.node.look() == FoundProcess(STOPPED)


def test_a_pid_that_another_process_has_now_is_not_killed(scene: Scene) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        assert not node_process.is_supervisor(other.pid, scene.node.directory)
        found = scene.start()
        state = json.loads((scene.node.directory / "state.json").read_text())
        assert node_process.is_supervisor(found.pid, scene.node.directory)
        assert not node_process.is_supervisor(found.pid, scene.node.directory.parent)
        assert state["pid"] == found.pid
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_other_rays_are_found_by_their_program(tmp_path: Path) -> None:
    for pid, line in {7: b"/opt/ray/raylet\0--x", 8: b"/x/gcs_server", 9: b"python\0raylet", 10: b"/y/raylet"}.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(line)
    (tmp_path / "11").mkdir()
    assert node_process.other_rays([10], tmp_path) == [
        f"raylet 7 of uid {os.getuid()}",
        f"gcs_server 8 of uid {os.getuid()}",
    ]
