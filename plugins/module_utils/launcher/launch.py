# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The entrypoint of an attempt, on a worker: prechecks, the trainer, its log, and the watch over it."""

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
from pathlib import Path
from typing import IO, Any

from . import attempts, evidence, failures, keep, redact
from .archive import FAILED, RUNNING, STOPPED, SUCCEEDED, Archive
from .log import Log, total_steps
from .plan import Plan

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
EVIDENCE_SECONDS = 150
# Ray gives a stopped job RAY_JOB_STOP_WAIT_TIME_S seconds (a constant of ours, in the job's environment).
STOP_SECONDS = 10
# How long the last of the trainer's output may take to be written.
PUMP_SECONDS = 10
WATCH_SECONDS = 2.0
# What the watch writes into the log.
ENDED_BY_WATCH = "The job is ended:"
CAUSES_OF_STALLS = ("host_oom", "gpu_oom", "disk_full", "node_lost")


class Launcher:
    """Runs one attempt of a job from its plan: ``config/plan.json``, written by the module that submitted it."""

    def __init__(self, archive: Archive, attempt: int = 1) -> None:
        self.archive = archive
        self.attempt = attempt
        self.plan = archive.plan() or Plan()
        own = archive.read_json(f"config/attempt-{attempt}.json") or {}
        self.overrides: list[str] = own.get("overrides", list(self.plan.overrides))
        self.secrets = redact.load(archive.path)
        self.redactor = redact.Redactor(self.secrets.values())
        self.trainer: subprocess.Popen[bytes] | None = None
        self.stopped_by: int | None = None
        # What this launcher has ended the trainer for.
        self.verdict: failures.Failure | None = None
        self.kill_timer: threading.Timer | None = None
        self.log = Log(archive.driver_log)
        self.last_output = time.time()

    def say(self, line: str) -> None:
        self.write(f"{line}\n".encode())

    def write(self, data: bytes) -> None:
        """To Ray's own log and to the archive, at once: Ray's is gone with the node."""
        # A full shared root must not end the pump: the trainer would stand still at its full pipe.
        with contextlib.suppress(OSError):
            self.log.write(data)
        # Nor must this node's own.
        with contextlib.suppress(OSError):
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
        code_path = self.plan.code_path
        if not found["verl_file"] or not Path(found["verl_file"]).is_relative_to(code_path):
            return (
                f"verl would be imported from {found['verl_file']}, not from the snapshot {code_path}; "
                "something stands before it on PYTHONPATH"
            )
        if found["marker"] != self.plan.code_id:
            return f"the snapshot's marker says {found['marker']!r}, not {self.plan.code_id!r}; stage it again"
        return ""

    def stop(self, signum: int, _frame: object) -> None:
        """SIGTERM from Ray (`ray job stop`): pass it on to everything that the trainer started here."""
        self.stopped_by = signum
        self.end_trainer()

    def end_trainer(self) -> None:
        if self.trainer and not self.kill_timer:
            kill_group(self.trainer, signal.SIGTERM)
            # A trainer that is deaf to it would be left behind when Ray kills this process.
            self.kill_timer = threading.Timer(STOP_SECONDS, kill_group, (self.trainer, signal.SIGKILL))
            self.kill_timer.start()

    def train(self, environment: dict[str, str]) -> int:
        """Run the trainer to its end; its exit code, negative for a signal."""
        command = [sys.executable, "-m", self.plan.module, *self.overrides]
        self.trainer = subprocess.Popen(
            command,
            env={**environment, **self.secrets},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        if self.stopped_by:  # between the signal handler's look and the start
            self.end_trainer()
        pump = threading.Thread(target=self.pump, args=(self.trainer.stdout,), daemon=True)
        pump.start()
        over = threading.Event()
        watch = threading.Thread(target=self.watch, args=(over,), daemon=True)
        watch.start()
        code = self.trainer.wait()
        over.set()
        if self.kill_timer:
            self.kill_timer.cancel()  # this process would wait for it
        # Data loaders and the like that outlive the trainer would keep its memory, its ports and the pipe.
        kill_group(self.trainer, signal.SIGKILL)
        # A process that has left the group may hold the pipe open for ever.
        pump.join(PUMP_SECONDS)
        self.write(self.redactor.rest())
        return code

    def pump(self, output: IO[bytes]) -> None:
        while data := os.read(output.fileno(), 1 << 16):
            self.last_output = time.time()
            self.write(self.redactor.feed(data))

    def watch(self, over: threading.Event) -> None:
        """Write signs of life, and see to it that the trainer neither stands still nor takes longer than it may."""
        watch = Watch(self.archive, self.plan, self.attempt)
        while not over.wait(WATCH_SECONDS):
            # A full shared root, or one that stalls, must not end the watch.
            with contextlib.suppress(OSError, KeyError, ValueError):
                verdict = watch.look(time.time(), self.last_output)
                if verdict and not self.verdict and not self.stopped_by:
                    self.say(f"{ENDED_BY_WATCH} {verdict.reason}")
                    self.verdict = verdict
                    self.end_trainer()

    def run(self) -> int:
        """The attempt; returns the exit code for Ray."""
        signal.signal(signal.SIGTERM, self.stop)
        environment = {**os.environ, **self.plan.driver_env}
        driver = {"host": socket.gethostname(), "pid": os.getpid()}
        started = time.time()
        first = self.archive.status().get("started_at") or started
        self.archive.set_status(RUNNING, started_at=first, attempt_started_at=started, driver=driver)
        if self.attempt == 1:
            self.archive.write_json("config/versions.json", versions())
        else:
            self.say(attempts.log_line(self.attempt))
        problem = self.precheck(environment)
        if self.stopped_by:
            code = 128 + self.stopped_by
        elif problem:
            self.say(f"The job ends before it starts: {problem}")
            code = PRECHECK_FAILED
        else:
            code = self.train(environment)
        state = self.end(code, problem)
        if not self.archive.is_kept():
            # Whoever should do this is gone.
            wait(self.archive.run_launcher("evidence", evidence.END))
            keep.close(self.archive, state)
        # For Ray, a trainer that did nothing has failed as well.
        return (code if code >= 0 else 128 - code) or int(state == FAILED)

    def end(self, code: int, problem: str) -> str:
        """Write down how the attempt ended; the job's state."""
        own = attempts.steps_done(self.archive, self.attempt)
        steps = max((int(entry["step"]) for entry in self.archive.metrics()), default=0)
        details: dict[str, Any] = {"exit_code": code, "steps": steps, "attempt_steps": own}
        if self.stopped_by:
            verdict = attempts.verdict(self.archive)
            if verdict:
                return attempts.record_end(self.archive, FAILED, verdict, **details)
            stopped = failures.failure("stopped", f"signal {self.stopped_by}")
            return attempts.record_end(self.archive, STOPPED, stopped, **details)
        log = attempts.attempt_log(self.archive, self.attempt)
        if self.verdict:
            # What it waits for may be something that died long before, and said so.
            found = failures.classify(log.partition(f"\n{ENDED_BY_WATCH}")[0], 1, own)
            known = self.verdict.kind == "stalled" and found.kind in CAUSES_OF_STALLS
            return attempts.record_end(self.archive, FAILED, found if known else self.verdict, **details)
        if problem:
            return attempts.record_end(self.archive, FAILED, failures.failure("import", problem), **details)
        if code == 0:
            return self.end_well(own, steps, details)
        failure = failures.classify(log, code, own)
        if failure.kind in keep.AMBIGUOUS and self.archive.is_kept():
            return attempts.record_trouble(self.archive, failure, **details)
        return attempts.record_end(self.archive, FAILED, failure, **details)

    def end_well(self, own: int, steps: int, details: dict[str, Any]) -> str:
        """verl says that all is well; a run that trained nothing is not."""
        total = total_steps(self.archive)
        if not own and (total is None or steps < total):
            # sft_trainer.py: resumed exactly at an epoch's end, the data loader has nothing left.
            reason = f"the trainer ended without an error after no step at all, at step {steps} of {total or 'unknown'}"
            return attempts.record_end(self.archive, FAILED, failures.failure("data", reason), **details)
        reason = "" if total is None or steps >= total else f"the data ended at step {steps} of {total}"
        return attempts.record_end(self.archive, SUCCEEDED, None, **details, reason=reason)


class Watch:
    """Looks at a running trainer every few seconds."""

    def __init__(self, archive: Archive, plan: Plan, attempt: int) -> None:
        self.archive = archive
        self.plan = plan
        self.metrics = archive.metrics_file(attempt)
        self.size = 0
        self.step = 0
        self.total: int | None = None
        self.first: tuple[int, float] | None = None
        self.last_metric = 0.0
        self.stalled = False

    def look(self, now: float, last_output: float) -> failures.Failure | None:
        """One look; the reason for which the trainer has to be ended, if there is one."""
        self.read_metrics(now)
        self.total = self.total or total_steps(self.archive)
        self.archive.write_sign(
            "heartbeat.json",
            time=now,
            step=self.step,
            total_steps=self.total,
            first_step=self.first[0] if self.first else None,
            first_step_at=self.first[1] if self.first else None,
            last_output_at=last_output,
        )
        deadline = self.plan.deadline
        if deadline and now > self.archive.status()["submitted_at"] + deadline:
            wait(self.archive.run_launcher("evidence", evidence.DEADLINE))
            return failures.failure("deadline", f"it took longer than its deadline of {deadline:g} s")
        return self.look_for_stall(now, max(last_output, self.last_metric))

    def read_metrics(self, now: float) -> None:
        size = self.metrics.stat().st_size if self.metrics.exists() else 0
        if size == self.size:
            return
        self.size, self.last_metric = size, now
        with self.metrics.open(encoding="utf-8") as lines:
            steps = [int(json.loads(line)["step"]) for line in lines if line.endswith("\n")]
        if steps:
            self.step = max(steps)
            self.first = self.first or (self.step, now)

    def look_for_stall(self, now: float, last_sign: float) -> failures.Failure | None:
        timeout = self.plan.stall_timeout
        if not timeout or now - last_sign < timeout:
            if self.stalled:
                self.archive.event("WENT_ON")
            self.stalled = False
            return None
        if self.stalled:
            return None
        self.stalled = True
        reason = f"no step and no line of log for {now - last_sign:.0f} s, at step {self.step}"
        self.archive.event("STALLED", reason=reason)
        wait(self.archive.run_launcher("evidence", evidence.STALL))
        if self.plan.on_stall == "stop":
            return failures.failure("stalled", reason)
        return None


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
