from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_job import Setup
from real_processes import alive, until

from argus.hooks import redact, worker_secrets
from argus.hooks.redact import Redactor
from argus.launcher import torchrun

# Like torch.distributed.run, prints its arguments and starts one rank.
TORCH = """
import os, subprocess, sys
print("arguments", sys.argv[1:], os.environ.get("OMP_NUM_THREADS"), flush=True)
at = next(number for number, argument in enumerate(sys.argv) if argument.endswith("program"))
sys.exit(subprocess.run([sys.executable, "-u", *sys.argv[at:]], env={**os.environ, "RANK": "5"}).returncode)
"""


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Setup]:
    setup = Setup(tmp_path)
    distributed = setup.code_path / "torch" / "distributed"
    distributed.mkdir(parents=True)
    (distributed / "run.py").write_text(TORCH)
    yield setup
    for process in setup.started:
        process.kill()
        process.communicate()


def start(job: Setup, mode: str, verb: str, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
    job.policy = {"nnodes": 1, "gpus_per_node": 2, "cpus_per_node": 20, "launcher": "torchrun"}
    job.write_plan(mode)
    command = [sys.executable, str(job.program), "launch", verb, str(job.archive.path), *arguments]
    variables = {"PYTHONPATH": str(job.code_path), torchrun.PARENT_VARIABLE: str(os.getpid())}
    variables |= {"VERL_FILE_LOGGER_PATH": str(job.cwd / "metrics"), **env}
    process = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    job.started.append(process)
    return process


def run(job: Setup, mode: str, verb: str, *arguments: str, **env: str) -> tuple[int, str]:
    process = start(job, mode, verb, *arguments, **env)
    # Until the end of the output, which another process writes.
    output = process.communicate(timeout=60)[0]
    return process.returncode, output.decode()


def test_secrets_are_masked_in_the_output_of_a_rank(job: Setup) -> None:
    worker_secrets.store(job.archive.path, {"HF_TOKEN": "hf_secret"})
    # A later attempt resumes.
    job.archive.write_json("config/attempt-2.json", {"overrides": ["mode=secret", "resumed=1"]})
    code, output = run(job, "fail", "rank", "2", RANK="0", HF_TOKEN="hf_secret")
    assert "overrides ['mode=secret', 'resumed=1']" in output
    assert code == 0 and "hf_secret" not in output
    assert f"it is {redact.MASK} and {redact.MASK} of 9" in output


def test_no_rank_outlives_what_has_started_it(job: Setup) -> None:
    arguments = ("1", "0", "127.0.0.1", "29500", str(os.getpid()), "127.0.0.1")
    process = start(job, "idle", "ranks", *arguments)
    job.write_plan("wait")
    assert process.stdout
    while b"pids" not in (line := process.stdout.readline()):
        assert line
    trainer, child = map(int, line.split()[-2:])
    assert alive(trainer)
    process.kill()
    until(lambda: not alive(trainer))
    # It has the output open, for whose end the fixture waits.
    os.kill(child, signal.SIGKILL)


def test_torchrun_on_a_node(job: Setup) -> None:
    arguments = ("1", "0", "10.0.0.1", "29500", str(os.getpid()), "10.0.0.2")
    code, output = run(job, "train", "ranks", *arguments, OMP_NUM_THREADS="20")
    assert code == 0
    flags = ["--nnodes=1", "--nproc-per-node=2", "--node-rank=0", "--master-addr=10.0.0.1", "--master-port=29500"]
    flags += ["--max-restarts=0", "--local-addr=10.0.0.2", str(job.program), "launch", "rank"]
    flags += [str(job.archive.path), "1"]
    assert output.splitlines()[0] == f"arguments {flags} 10"
    lines = output.splitlines()[1:]
    assert len(lines) == 3 and all(line.startswith("(rank5 pid=") for line in lines)
    assert lines[0].endswith("""overrides ['mode=train', "note='a, b'"]""") and lines[2].endswith("trained")
    assert run(job, "fail", "ranks", *arguments)[0] == 3


def test_without_what_started_it_nothing_starts(job: Setup) -> None:
    assert run(job, "train", "ranks", "1", "0", "10.0.0.1", "29500", "1", "10.0.0.2") == (-signal.SIGKILL, "")
    assert run(job, "train", "rank", "1", RANK="0", **{torchrun.PARENT_VARIABLE: "1"}) == (-signal.SIGKILL, "")


def copied(tmp_path: Path, data: bytes, *secrets: str) -> bytes:
    (tmp_path / "written").write_bytes(data)
    reader = os.open(tmp_path / "written", os.O_RDONLY)
    with (tmp_path / "copied").open("wb") as output:
        torchrun.copy_lines(reader, output.fileno(), b"> ", Redactor(secrets))
    return (tmp_path / "copied").read_bytes()


def test_lines(tmp_path: Path) -> None:
    assert copied(tmp_path, b"one\ntwo\r50%\n\nend") == b"> one\n> two\r50%\n> \n> end\n"
    assert copied(tmp_path, b"a hf_secret\n\xff hf_secret", "hf_secret") == b"> a [secret]\n> \xff [secret]\n"
    # A line without an end is not kept for ever.
    long = b"x" * torchrun.MAX_LINE_BYTES
    assert copied(tmp_path, long + b"y\n") == b"> " + long + b"\n> y\n"
