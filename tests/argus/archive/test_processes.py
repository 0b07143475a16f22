"""Processes beside a job: real ones, of a small launcher."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from real_processes import alive, until

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


def test_a_verb_that_hangs_is_killed_with_its_children(archive: Archive) -> None:
    process = Runner(archive, program_of(archive)).start("hang")
    until(lambda: (archive.path / "child").exists() and (archive.path / "child").read_text())
    child = int((archive.path / "child").read_text())
    assert alive(child)
    with pytest.raises(subprocess.TimeoutExpired):
        wait(process, 0.05)
    assert process.returncode == -signal.SIGKILL
    until(lambda: not alive(child))


def test_errors_of_rays_client_go_to_the_stewards_log(archive: Archive) -> None:
    (archive.path / "logs" / "steward.log").write_text("earlier\n")
    Runner(archive, program_of(archive)).run_ray_client("submit", 2)
    assert calls(archive) == ["submit 2"]
    assert (archive.path / "logs" / "steward.log").read_text() == "earlier\noutput\nit failed\n"


def test_something_else_in_place_of_the_log_does_not_stop_a_verb(archive: Archive) -> None:
    os.mkfifo(archive.path / "logs" / "steward.log")
    Runner(archive, program_of(archive)).run_ray_client("submit", 2)
    assert calls(archive) == ["submit 2"]
