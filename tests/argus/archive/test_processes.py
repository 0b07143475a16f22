"""Processes beside a job: real ones, of a small launcher."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from real_processes import alive

from argus.archive.archive import Archive
from argus.archive.program import Program, Runner, wait

LAUNCHER = """
import os, subprocess, sys, time

verb, archive, *arguments = sys.argv[2:]
with open(os.path.join(archive, "calls"), "a") as calls:
    calls.write(" ".join([verb, *arguments]) + os.linesep)
if verb == "hang":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with open(os.path.join(archive, "child"), "w") as file:
        file.write(str(child.pid))
    time.sleep(60)
print("output", flush=True)
sys.exit("it failed")
"""


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "one")
    archive.reserve()
    archive.write_text("config/program/__main__.py", LAUNCHER)
    return archive


def program_of(archive: Archive) -> Program:
    return Program(str(archive.path / "config" / "program"))


def calls(archive: Archive) -> list[str]:
    return (archive.path / "calls").read_text().splitlines()


def test_a_verb_in_the_background(archive: Archive) -> None:
    process = Runner(archive, program_of(archive)).start("evidence", "start")
    assert process.wait(30) == 1
    assert calls(archive) == ["evidence start"]


def test_a_verb_that_is_waited_for(archive: Archive) -> None:
    Runner(archive, program_of(archive)).run("end", seconds=30)
    assert calls(archive) == ["end"]


def test_a_verb_that_hangs_is_killed_with_its_children(archive: Archive) -> None:
    started = time.monotonic()
    process = Runner(archive, program_of(archive)).start("hang")
    while not (archive.path / "child").exists() or not (archive.path / "child").read_text():
        assert time.monotonic() - started < 30
        time.sleep(0.02)
    child = int((archive.path / "child").read_text())
    assert alive(child)
    with pytest.raises(subprocess.TimeoutExpired):
        wait(process, 0.05)
    assert process.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 5
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not alive(child)


def test_errors_of_rays_client_go_to_the_stewards_log(archive: Archive) -> None:
    (archive.path / "logs" / "steward.log").write_text("earlier\n")
    Runner(archive, program_of(archive)).run_ray_client("submit", 2)
    assert calls(archive) == ["submit 2"]
    assert (archive.path / "logs" / "steward.log").read_text() == "earlier\noutput\nit failed\n"


@pytest.mark.parametrize("kind", ["fifo", "directory"])
def test_something_else_in_place_of_the_log_does_not_stop_a_verb(archive: Archive, kind: str) -> None:
    log = archive.path / "logs" / "steward.log"
    os.mkfifo(log) if kind == "fifo" else log.mkdir()
    Runner(archive, program_of(archive)).run_ray_client("submit", 2)
    assert calls(archive) == ["submit 2"]
