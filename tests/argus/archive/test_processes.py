"""Processes beside a job: real ones, of a small launcher."""

from __future__ import annotations

import os
import signal
import subprocess

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


def runner_of(archive: Archive) -> Runner:
    archive.write_text("config/program/__main__.py", LAUNCHER)
    return Runner(archive, Program(str(archive.path / "config" / "program")))


def test_a_verb_that_hangs_is_killed_with_its_children(archive: Archive) -> None:
    process = runner_of(archive).start("hang")
    until(lambda: (archive.path / "child").exists() and (archive.path / "child").read_text())
    child = int((archive.path / "child").read_text())
    assert alive(child)
    with pytest.raises(subprocess.TimeoutExpired):
        wait(process, 0.05)
    assert process.returncode == -signal.SIGKILL
    until(lambda: not alive(child))


def test_errors_of_rays_client_go_to_the_stewards_log(archive: Archive) -> None:
    log = archive.path / "logs" / "steward.log"
    log.write_text("earlier\n")
    runner_of(archive).run_ray_client("submit", 2)
    assert log.read_text() == "earlier\noutput\nit failed\n"
    # Something else in its place does not stop a verb.
    log.unlink()
    os.mkfifo(log)
    runner_of(archive).run_ray_client("submit", 3)
    assert (archive.path / "calls").read_text() == "submit 2\nsubmit 3\n"
