from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import Run
from ansible_collections.argus.verl.plugins.module_utils.cluster.unmanaged_ray import (
    KIND_CONTAINER,
    KIND_PROCESSES,
    UnmanagedRay,
    UnmanagedRayError,
    UnmanagedRayOnMachine,
)
from real_processes import alive

OLD, OTHER, OURS, LABELLED = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)
ME = pwd.getpwuid(os.getuid()).pw_name


Add = Callable[..., None]


@pytest.fixture
def add(tmp_path: Path) -> Add:
    """Adds processes to the tree in the file "proc"."""

    def process(pid: int, title: str, container: str = "", environ: str = "") -> None:
        entry = tmp_path / "proc" / str(pid)
        entry.mkdir(parents=True)
        (entry / "cmdline").write_bytes(title.replace(" ", "\0").encode() + b"\0")
        (entry / "cgroup").write_text(f"12:cpu:/docker/{container}\n0::/\n" if container else "0::/user.slice\n")
        (entry / "environ").write_bytes(environ.encode())

    return process


def container(identifier: str, name: str, **changes: Any) -> dict[str, Any]:
    config = {"Cmd": ["sleep", "infinity"], "Entrypoint": None, "Labels": None, "User": "", **changes.pop("Config", {})}
    return {"Id": identifier, "Name": f"/{name}", "Config": config, **changes}


def docker(*containers: dict[str, Any], code: int = 0) -> Run:
    def run(argv: Sequence[str]) -> tuple[int, str, str]:
        assert argv[0] == "docker"
        if code:
            return code, "", "Cannot connect to the Docker daemon"
        listed = "".join(f"{one['Id']}\n" for one in containers)
        return 0, listed if argv[1] == "ps" else json.dumps(containers) * (argv[1:3] == ["container", "inspect"]), ""

    return run


def look(run: Run, directory: Path) -> dict[str, UnmanagedRay]:
    return {one.name: one for one in UnmanagedRayOnMachine("docker", run, directory / "proc").list_all()}


def test_a_container_of_an_earlier_system(add: Add, tmp_path: Path) -> None:
    add(50, "/opt/ray/gcs_server --port=6379", OLD)
    for number, title in enumerate(("ray::IDLE", "ray::DashboardAgent", "ray::RuntimeEnvAgent")):
        add(54 + number, title, OLD)
    add(52, "ray::WorkerDict.update_actor " + "x" * 100, OLD)
    add(53, "python3 -m verl.trainer.main_ppo a=b", OLD)
    labels = {"com.docker.compose.project.working_dir": "/home2/mvp"}
    old = container(OLD, "head", Config={"Labels": labels, "User": "ray"})
    work = ("python3 -m verl.trainer.main_ppo a=b", ("ray::WorkerDict.update_actor " + "x" * 100)[:80])
    expected = UnmanagedRay("head", KIND_CONTAINER, "/home2/mvp", work, [50, 52, 53, 54, 55, 56])
    assert look(docker(old), tmp_path) == {"head": expected}


@pytest.mark.parametrize(
    ("name", "config", "is_legacy"),
    [
        ("mvp-ray-head", {}, True),
        ("RAY_worker.0", {}, True),
        ("array-job", {}, False),
        ("x-ray2", {}, False),
        ("box", {"Cmd": ["bash", "-c", "ray start --head --block"]}, True),
        ("box", {"Entrypoint": ["ray"], "Cmd": ["start"]}, True),
        ("box", {"Cmd": None}, False),
    ],
)
def test_a_container_without_a_process_is_known_by_name_or_command(
    name: str, config: dict[str, Any], is_legacy: bool, add: Add, tmp_path: Path
) -> None:
    legacy = look(docker(container(OLD, name, Config={"User": "1000", **config})), tmp_path)
    assert list(legacy) == ([name] if is_legacy else [])
    assert not is_legacy or legacy[name].owner == "1000"


def test_what_is_of_this_collection_is_never_found(add: Add, tmp_path: Path) -> None:
    add(60, "/ray/raylet", OURS, "A=1\0ARGUS_VERL_CLUSTER=prod\0")
    add(61, "/ray/raylet", LABELLED)
    add(62, "/ray/raylet", "", "ARGUS_VERL_NODE_DIRECTORY=/home/x\0")
    marked = container(OURS, "gpu-ray-0")
    labelled = container(LABELLED, "mvp-ray-head", Config={"Labels": {"argus.verl.cluster": "mvp"}})
    assert look(docker(marked, labelled), tmp_path) == {}


def test_a_machine_without_an_engine_has_processes_only(add: Add, tmp_path: Path) -> None:
    add(70, "/venv/ray/core/gcs_server")
    add(71, "/venv/bin/python -u /venv/site-packages/ray/dashboard/agent.py")
    add(72, "vim notes")
    add(73, "ray::train()")
    (legacy,) = look(docker(code=127), tmp_path).values()
    assert (legacy.name, legacy.kind, legacy.owner) == (f"ray@{ME}", KIND_PROCESSES, ME)
    assert (legacy.pids, legacy.job_titles) == ([70, 71, 73], ("ray::train()",))
    with pytest.raises(UnmanagedRayError, match="Cannot connect"):
        look(docker(code=1), tmp_path)


def looping(trap: str, title: str = "ray::loop") -> int:
    """A child of another process than the test."""
    loop = f'(exec -a {title} bash -c "{trap}while :; do sleep 0.05; done") >/dev/null & echo $!'
    return int(subprocess.run(["setsid", "bash", "-c", loop], stdout=subprocess.PIPE, text=True, check=True).stdout)


@pytest.mark.parametrize("deaf", [False, True])
def test_processes_are_ended(deaf: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ansible_collections.argus.verl.plugins.module_utils.cluster.unmanaged_ray.KILL_GRACE_SECONDS", 0.3
    )
    pid = looping("trap '' TERM; " if deaf else "")
    # A process that has got the number of an ended one is left alone.
    other = looping("", "other")
    try:
        UnmanagedRayOnMachine("docker", docker()).remove(
            UnmanagedRay("ray@me", KIND_PROCESSES, "me", pids=(pid, other, 2**22 + 1))
        )
        assert alive(other) and not alive(pid)
    finally:
        os.kill(other, signal.SIGKILL)
