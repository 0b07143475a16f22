# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entrypoint of a job, on a worker: prechecks, the trainer, its log, and the evidence around it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from . import evidence
from .archive import FAILED, RUNNING, STOPPED, SUCCEEDED, Archive

PRECHECK_FAILED = 65  # sysexits' EX_DATAERR: the job's input is not what it says
# Asked of a Python started exactly as the trainer will be: same environment, same working directory.
PRECHECK = """
import importlib.util, json
verl = importlib.util.find_spec("verl")
marker = importlib.util.find_spec("mvp_marker")
values = {}
if marker:
    exec(open(marker.origin).read(), values)
print(json.dumps({"verl_file": verl and verl.origin, "marker": values.get("MARKER")}))
"""
EVIDENCE_SECONDS = 60
# Ray gives a stopped job RAY_JOB_STOP_WAIT_TIME_S seconds (a constant of ours, in the job's environment).
STOP_SECONDS = 10
# How long the last of the trainer's output may take to be written.
PUMP_SECONDS = 10


class Launcher:
    """Runs one job from its plan: ``config/plan.json``, written by the module that submitted it."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.plan: dict[str, Any] = archive.read_json("config/plan.json")
        self.trainer: subprocess.Popen[bytes] | None = None
        self.stopped_by: int | None = None
        self.kill_timer: threading.Timer | None = None
        self.log = archive.driver_log.open("ab", buffering=0)

    def say(self, line: str) -> None:
        self.write(f"{line}\n".encode())

    def write(self, data: bytes) -> None:
        """To Ray's own log and to the archive, at once: Ray's is gone with the node."""
        # A full shared root must not end the pump: the trainer would stand still at its full pipe.
        with contextlib.suppress(OSError):
            self.log.write(data)
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def precheck(self, environment: dict[str, str]) -> str:
        """Print where verl comes from; what is wrong with it, or nothing."""
        done = subprocess.run(
            [sys.executable, "-c", PRECHECK], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return f"Python cannot look for verl: {done.stderr.strip()}"
        # An image may greet at every start of a Python: the answer is the last line.
        found = json.loads(done.stdout.splitlines()[-1])
        self.say(f"MVP_PRECHECK_VERL_FILE={found['verl_file']}")
        self.say(f"MVP_PRECHECK_MARKER={found['marker']}")
        code_path = self.plan["code_path"]
        if not found["verl_file"] or not Path(found["verl_file"]).is_relative_to(code_path):
            return (
                f"verl would be imported from {found['verl_file']}, not from the snapshot {code_path}; "
                "something stands before it on PYTHONPATH"
            )
        if found["marker"] != self.plan["code_id"]:
            return f"the snapshot's marker says {found['marker']!r}, not {self.plan['code_id']!r}; stage it again"
        return ""

    def stop(self, signum: int, _frame: object) -> None:
        """SIGTERM from Ray (`ray job stop`): pass it on to everything that the trainer started here."""
        self.stopped_by = signum
        if self.trainer:
            kill_group(self.trainer, signal.SIGTERM)
            # A trainer that is deaf to it would be left behind when Ray kills this process.
            self.kill_timer = threading.Timer(STOP_SECONDS, kill_group, (self.trainer, signal.SIGKILL))
            self.kill_timer.start()

    def train(self, environment: dict[str, str]) -> int:
        """Run the trainer to its end; its exit code, negative for a signal."""
        command = [sys.executable, "-m", self.plan["module"], *self.plan["overrides"]]
        self.trainer = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if self.stopped_by:  # between the signal handler's look and the start
            kill_group(self.trainer, signal.SIGTERM)
        pump = threading.Thread(target=self.pump, args=(self.trainer.stdout,), daemon=True)
        pump.start()
        code = self.trainer.wait()
        if self.kill_timer:
            self.kill_timer.cancel()  # this process would wait for it
        # Data loaders and the like that outlive the trainer would keep its memory, its ports and the pipe.
        kill_group(self.trainer, signal.SIGKILL)
        # A process that has left the group may hold the pipe open for ever.
        pump.join(PUMP_SECONDS)
        return code

    def pump(self, output: IO[bytes]) -> None:
        while data := os.read(output.fileno(), 1 << 16):
            self.write(data)

    def evidence(self, moment: str) -> subprocess.Popen[bytes]:
        """Collect in the background; in a session of its own it outlives a launcher that is killed."""
        command = [sys.executable, str(self.archive.path / "config" / "launcher"), "evidence", str(self.archive.path)]
        return subprocess.Popen(
            [*command, moment],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def run(self) -> int:
        """The job; returns the exit code for Ray."""
        signal.signal(signal.SIGTERM, self.stop)
        environment = {**os.environ, **self.plan["driver_env"]}
        driver = {"host": socket.gethostname(), "pid": os.getpid()}
        self.archive.set_status(RUNNING, started_at=time.time(), driver=driver)
        self.archive.write_json("config/versions.json", versions())
        problem = self.precheck(environment)
        start = None
        if self.stopped_by:
            code = 128 + self.stopped_by
        elif problem:
            self.say(f"The job ends before it starts: {problem}")
            code = PRECHECK_FAILED
        else:
            start = self.evidence("start")
            code = self.train(environment)
        # Ray may kill a stopped job's launcher any moment: the state first, the evidence then.
        self.end(code, problem)
        wait(self.evidence("end"))
        if start:
            wait(start)
        self.archive.close()
        return code if code >= 0 else 128 - code

    def end(self, code: int, problem: str) -> None:
        """Write down how the job ended, first of all that still has to be done."""
        steps = [int(entry["step"]) for entry in self.archive.metrics()]
        details: dict[str, Any] = {"ended_at": time.time(), "exit_code": code, "steps": max(steps, default=0)}
        if self.stopped_by:
            self.archive.set_status(STOPPED, **details, reason=f"signal {self.stopped_by}")
        elif code == 0:
            if not steps:
                # A run resumed exactly at the end of its last epoch trains nothing, and calls that success.
                details["reason"] = "the trainer ended well without a single step: was it resumed at its end?"
                self.say(details["reason"])
            self.archive.set_status(SUCCEEDED, **details)
        else:
            self.archive.set_status(FAILED, **details, reason=problem or f"the trainer ended with exit code {code}")


def versions() -> dict[str, str]:
    """Python and every package of the image that the job runs on, by name."""
    packages = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return {"python": platform.python_version(), **dict(sorted(packages.items(), key=lambda item: item[0].lower()))}


def kill_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(EVIDENCE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_group(process, signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """`run ARCHIVE`, or `evidence ARCHIVE MOMENT`."""
    if len(arguments) == 3 and arguments[0] == "evidence":
        evidence.collect(Archive(arguments[1]), arguments[2])
        return 0
    if len(arguments) == 2 and arguments[0] == "run":
        return Launcher(Archive(arguments[1])).run()
    sys.stderr.write("usage: launcher run ARCHIVE | launcher evidence ARCHIVE MOMENT\n")
    return 64
