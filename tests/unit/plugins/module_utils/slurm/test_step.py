"""The step of a job and the relay, as real processes."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.slurm import relay, step
from real_processes import alive, until

NUMBERS = itertools.count()
STEP, RELAY = str(step.__file__), str(relay.__file__)


class Job:
    def __init__(self, root: Path) -> None:
        self.number = f"{os.getpid()}{next(NUMBERS)}"
        self.directory = root / "state"
        environment = {"SLURM_JOB_ID": self.number, "ROCR_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "2,3"}
        environment = {**os.environ, **environment, "PYTHONPATH": "/nowhere"}
        self.step = subprocess.Popen([sys.executable, "-I", STEP, str(self.directory)], env=environment)

    def run(self, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-I", RELAY, self.number, *argv], input=stdin, capture_output=True, check=False, timeout=60
        )


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    one = Job(tmp_path)
    yield one
    one.step.kill()
    one.step.wait()


def test_a_command_has_the_relays_streams_and_its_exit_code(job: Job) -> None:
    data, long = os.urandom(300_000), "é" * 40_000
    done = job.run("sh", "-c", 'cat; echo "$0" >&2; exit 7', long, stdin=data)
    # A command longer than one packet.
    assert (done.returncode, done.stdout, done.stderr) == (7, data, f"{long}\n".encode())
    assert job.run("sh", "-c", "kill -9 $$").returncode == 137
    assert job.run("/nowhere/program").returncode == 127
    with pytest.raises(SystemExit):
        relay.connect_to_step("0", 0.2)
    environment = dict(line.split("=", 1) for line in job.run("env").stdout.decode().splitlines() if "=" in line)
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["SLURM_JOB_ID"]) == ("2,3", job.number)
    assert not {"ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "PYTHONPATH"} & environment.keys()
    # Two commands run at the same time: each waits for the other.
    names = [str(job.directory / "a"), str(job.directory / "b")]
    argv = [sys.executable, "-I", RELAY, job.number, "sh", "-c", "touch $1; while [ ! -e $2 ]; do sleep 0.02; done", ""]
    both = [subprocess.Popen([*argv, *order]) for order in (names, names[::-1])]
    assert [one.wait(30) for one in both] == [0, 0]


@pytest.mark.parametrize(
    ("environ", "amd", "expected"),
    [
        ({}, False, {}),
        ({"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "1"}, False, {"CUDA_VISIBLE_DEVICES": "1"}),
        ({"CUDA_VISIBLE_DEVICES": "1", "ROCR_VISIBLE_DEVICES": "1"}, True, {"HIP_VISIBLE_DEVICES": "1"}),
        ({"HIP_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "1"}, True, {"HIP_VISIBLE_DEVICES": "2"}),
        ({"HIP_VISIBLE_DEVICES": "2"}, False, {}),
    ],
)
def test_devices(environ: dict[str, str], amd: bool, expected: dict[str, str]) -> None:
    assert step.visible_devices(environ, amd) == expected


def test_what_a_command_leaves_stays_and_ends_with_the_job(job: Job, tmp_path: Path) -> None:
    """It leaves its session, its parent and the streams of the relay; one of the two does not listen to SIGTERM."""
    script = (
        "import os,sys,time,signal; os.setsid(); sys.argv[1] and signal.signal(15, lambda *_: open(sys.argv[1], 'w'))"
    )
    script += "; print(os.getpid(), flush=True); os.closerange(0, 3); time.sleep(600)"
    pids = []
    for marker in ("", str(tmp_path / "told")):
        line = f"{sys.executable} -c \"$0\" '{marker}' & "
        done = job.run("sh", "-c", f"{line} exit 0", script)
        pids.append(int(done.stdout))
    assert all(map(alive, pids))
    sessions = tmp_path / "sessions"
    sessions.mkdir()
    node = job.directory / "cluster" / "nodes" / "ray-head"
    node.mkdir(parents=True)
    (node / "node.json").write_text(json.dumps({"working_directory": str(sessions)}))
    job.step.terminate()
    until((tmp_path / "told").exists)
    until(lambda: not alive(pids[0]))
    # Sleeping again, after its handler.
    os.kill(pids[1], signal.SIGKILL)
    assert job.step.wait(30) == 0
    assert not job.directory.exists()
    assert not sessions.exists()


def test_a_directory_that_is_left_is_made_anew_and_a_link_is_refused(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir(mode=0o755)
    (left / "token").touch()
    step.create_directory(left)
    assert list(left.iterdir()) == [] and left.stat().st_mode & 0o777 == 0o700
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit, match="another user"):
        step.create_directory(tmp_path / "state")
    assert (tmp_path / "elsewhere").exists()
