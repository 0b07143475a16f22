"""Evidence of one node, and its sweep, with real processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from argus.archive.archive import JOB_VARIABLE
from argus.evidence import node
from argus.evidence.node import Process
from argus.hooks import worker_secrets
from argus.io.control_group import oom_kills

SLEEP = "import time; print('ready', flush=True); time.sleep(60)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"
START = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def job(tmp_path: Path) -> str:
    """An id that no other test has, whatever runs at the same time."""
    return f"sft-{os.getpid()}-{tmp_path.name}"


@pytest.fixture
def start() -> Iterator[START]:
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str, **variables: str) -> subprocess.Popen[bytes]:
        """A process that has printed `ready`."""
        process = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **variables}, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def fake_process(proc: Path, pid: int, environ: bytes, status: str | None, cmdline: bytes = b"") -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "environ").write_bytes(environ)
    (proc / str(pid) / "cmdline").write_bytes(cmdline)
    if status is not None:
        (proc / str(pid) / "status").write_text(status)


def test_processes_as_the_kernel_lists_them(tmp_path: Path) -> None:
    status = "Name:\tx\nState:\tS (sleeping)\nPPid:\t1\nVmRSS:\t    4096 kB\nThreads:\t3\n"
    mark = b"A=1\0ARGUS_VERL_JOB=sft-1\0B=a=b\0"
    fake_process(tmp_path, 20, mark, status, b"ray::Worker.train()" + b"\0" * 20)
    fake_process(tmp_path, 3, mark, status.replace("VmRSS", "Other"), b"python3\0-m\0verl\0")
    fake_process(tmp_path, 4, b"ARGUS_VERL_JOB=sft-10\0", status)
    fake_process(tmp_path, 6, mark, status.replace("S (sleeping)", "Z (zombie)"))
    # It ended while it was inspected.
    fake_process(tmp_path, 7, mark, None)
    (tmp_path / "8").mkdir()
    fake_process(tmp_path, os.getpid(), mark, status)
    assert node.job_processes("sft-1", tmp_path) == [
        Process(3, 1, "S (sleeping)", 0, 3, "python3 -m verl"),
        Process(20, 1, "S (sleeping)", 4, 3, "ray::Worker.train()"),
    ]
    assert node.process_environment(tmp_path / "20") == {"A": "1", "ARGUS_VERL_JOB": "sft-1", "B": "a=b"}


def test_a_process_that_gives_no_stack_does_not_hold_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text('#!/bin/sh\n[ "$4" = 10 ] && exec sleep 60\necho "$*"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    run = node.command_output
    monkeypatch.setattr(node, "command_output", lambda *command: run(*command, seconds=1))
    commands = ("python3 -m verl", "ray::Worker.train()", "/bin/sleep 60")
    left = [Process(pid, 1, "S", 0, 1, command) for pid, command in enumerate(commands, start=10)]
    assert node.dump_stacks(left) == "Process 10: py-spy did not answer within 15 s\n\ndump --nonblocking --pid 11\n"


LOGS = {
    "raylet.err": "",
    "raylet.out": "raylet\n",
    "gcs_server.out": "no business of a job\n",
    "worker-0a1b-02000000-78.err": "NCCL WARN hf_secret\nnothing\n[Gloo] connect\n",
    "worker-0a1b-03000000-79.err": "of another job\n",
    "runtime_env_setup-02000000.log": "set up\n",
}


def test_the_evidence_of_a_node(tmp_path: Path, job: str, start: START, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "jobs" / job
    archive.mkdir(parents=True)
    worker_secrets.store(archive, {"MY_KEY": "hf_secret"})
    logs = tmp_path / "logs"
    logs.mkdir()
    for name, text in LOGS.items():
        (logs / name).write_text(text)
    log_names = node.log_paths
    monkeypatch.setattr(node, "log_paths", lambda ids, since: log_names(ids, since, logs))
    process = start(SLEEP, **{JOB_VARIABLE: job, "MY_KEY": "hf_secret", "HF_TOKEN": "other", "NOTE": "plain"})
    entries = node.collect(str(archive), "debug/stamp-worker-0", ["02000000"], 0.0, with_packages=False)
    directory = archive / "debug" / "stamp-worker-0"
    names = [entry["file"].removeprefix("debug/stamp-worker-0/") for entry in entries]
    assert names[:3] == ["processes.json", "stacks.txt", "environment.json"]
    own_logs = ("raylet.out", "runtime_env_setup-02000000.log", "worker-0a1b-02000000-78.err")
    assert names[8:] == ["communication.txt", *(f"logs/{name}" for name in own_logs)]
    assert [entry["pid"] for entry in json.loads((directory / "processes.json").read_text())] == [process.pid]
    environment = json.loads((directory / "environment.json").read_text())[str(process.pid)]
    assert (environment["MY_KEY"], environment["HF_TOKEN"], environment["NOTE"]) == ("[secret]", "[secret]", "plain")
    said = [line.partition(": ")[2] for line in (directory / "communication.txt").read_text().splitlines()]
    assert said == ["NCCL WARN [secret]", "[Gloo] connect"]
    for path in directory.rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == (0o750 if path.is_dir() else 0o640)
    node.collect(str(archive), "debug/stamp-worker-0", ["02000000"], 0.0, with_packages=True)
    assert f"pytest=={pytest.__version__}\n" in (directory / "packages.txt").read_text()


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "shm"
    path.mkdir()
    monkeypatch.setattr(node, "SHM", path)
    monkeypatch.setattr(node, "TERM_TIMEOUT_SECONDS", 0.2)
    return path


def test_processes_that_a_job_left_are_ended(job: str, start: START, shm: Path) -> None:
    deaf, polite = start(DEAF, **{JOB_VARIABLE: job}), start(SLEEP, **{JOB_VARIABLE: job})
    other = start(SLEEP, **{JOB_VARIABLE: f"{job}-other"})
    unmarked = start(SLEEP)
    # It ends by itself, and is not killed.
    start("import time; print('ready', flush=True); time.sleep(0.2)", **{JOB_VARIABLE: job})
    result = node.sweep_node(job, [], patience=1)
    assert result["killed"] == {
        process.pid: f"{sys.executable} -c {code}" for process, code in ((deaf, DEAF), (polite, SLEEP))
    }
    assert (result["left"], result["shm_removed"]) == ([], [])
    assert (deaf.wait(5), polite.wait(5)) == (-signal.SIGKILL, -signal.SIGTERM)
    assert other.poll() is unmarked.poll() is None


def test_the_shared_memory_of_a_job_goes_with_its_processes(job: str, start: START, shm: Path) -> None:
    killed, alive = start(SLEEP, **{JOB_VARIABLE: job}), start(SLEEP)
    ended, foreign = (subprocess.Popen(["true"]) for _number in range(2))
    assert ended.wait() == foreign.wait() == 0
    for process in (killed, alive, ended, foreign):
        (shm / f"torch_{process.pid}_1234_0").touch()
    for name in ("torch_x", "psm_1234", f"nccl-{ended.pid}"):
        (shm / name).touch()

    # Nobody waits for the one that the sweep kills: its parent may be slow, and it is a zombie until then.
    result = node.sweep_node(job, [ended.pid, alive.pid], patience=0)
    assert Path(f"/proc/{killed.pid}").exists()
    assert sorted(result["shm_removed"]) == sorted(f"torch_{pid}_1234_0" for pid in (killed.pid, ended.pid))
    assert {path.name for path in shm.iterdir()} == {
        *(f"torch_{process.pid}_1234_0" for process in (alive, foreign)),
        *("torch_x", "psm_1234", f"nccl-{ended.pid}"),
    }


OOM_FILES = [
    ("0::/\n", "memory.events", "low 0\noom 1\noom_kill 3\n"),
    ("0::/system.slice/job\n", "system.slice/job/memory.events", "oom_kill 3\n"),
    ("5:cpu:/docker/c\n4:memory:/docker/c\n0::/docker/c\n", "memory/memory.oom_control", "under_oom 0\noom_kill 3\n"),
]


@pytest.mark.parametrize(("groups", "file", "text"), OOM_FILES)
def test_processes_that_the_kernel_ended_for_lack_of_memory(tmp_path: Path, groups: str, file: str, text: str) -> None:
    (tmp_path / "cgroup").write_text(groups)
    assert oom_kills(tmp_path / "cgroup", tmp_path / "fs") == 0
    (tmp_path / "fs" / file).parent.mkdir(parents=True)
    (tmp_path / "fs" / file).write_text(text)
    assert oom_kills(tmp_path / "cgroup", tmp_path / "fs") == 3
    assert oom_kills(tmp_path / "none", tmp_path / "fs") == 0
