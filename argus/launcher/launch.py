# SPDX-License-Identifier: Apache-2.0
"""Runs an attempt on a worker, as its entrypoint: prechecks, the trainer, its log, and the watchdog."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import IO

from ..archive import samples
from ..archive.archive import Archive, StewardHeartbeat
from ..archive.checkpoints import Retention
from ..archive.failures import REMEDIES, Failure, FailureKind
from ..archive.plan import TORCHRUN, Plan
from ..archive.program import Program, Runner, kill_group
from ..archive.status import JobState
from ..common.identity import node_name
from ..evidence import node
from ..hooks import redact
from ..io import control_group
from ..io.output import one_line
from ..io.reading import UnreadableError, read_marker
from ..queue import attempts
from . import log
from .log import DriverLog, TruncatedCopy, total_steps
from .outcome import TRAINER, Observations, Outcome, determine_outcome
from .watch import ENDED_BY_WATCH, Health, Watch

PRECHECK_FAILED_EXIT_CODE = 65  # sysexits' EX_DATAERR: the job's input is not what it claims to be
# Run by a Python with the trainer's environment and directory. The names with MVP are fixed: users' tools read them.
IMPORT_CHECK = """
import importlib.util, json
specs = [importlib.util.find_spec(name) for name in ("verl", "mvp_marker")]
print(json.dumps([spec and spec.origin for spec in specs]))
"""
# The time between SIGTERM and SIGKILL; Ray itself kills a stopped job after RAY_JOB_STOP_WAIT_TIME_S, which is longer.
SIGTERM_GRACE_SECONDS = 10
# The time limits of a `before` and an `after` command of the JobSpec; the launcher is silent meanwhile.
BEFORE_TIMEOUT_SECONDS, AFTER_TIMEOUT_SECONDS = 600.0, 60.0
# The time limit for copying the rest of the trainer's output.
OUTPUT_DRAIN_TIMEOUT_SECONDS = 10
WATCH_INTERVAL_SECONDS = 2.0
# The size of the log's beginning that also goes to Ray's own log, which Ray keeps on the node without limit.
RAY_LOG_BYTES = 16 << 20


class Launcher:
    """Runs one attempt of a job as its plan specifies: ``config/plan.json``, written at the submission."""

    def __init__(self, archive: Archive, attempt: int = 1) -> None:
        self.archive = archive
        self.runner = Runner(archive)
        self.attempt = attempt
        self.plan = archive.plan() or Plan()
        self.overrides = attempts.recorded_overrides(archive, self.plan, attempt)
        self.secrets = redact.load(archive.path)
        self.redactor = redact.Redactor(self.secrets.values())
        self.process: subprocess.Popen[bytes] | None = None
        # What messages call the running program.
        self.program_label = "the command" if self.plan.command else TRAINER
        # The signal that this process got, and the same if it came before the trainer's end.
        self.received_signal: int | None = None
        self.signal_before_exit: int | None = None
        # Why this launcher has ended the trainer.
        self.watch_failure: Failure | None = None
        # The step from which this attempt resumes. The metrics may be older: the attempt may then have no steps left.
        self.first_step = (archive.read_status().resumed_from_step or 0) if attempt > 1 else 0
        # The last step of the job, and how many this attempt did.
        self.last_step = self.attempt_steps = 0
        self.kill_timer: threading.Timer | None = None
        self.log = DriverLog(archive.driver_log)
        self.ray_log = TruncatedCopy(sys.stdout.buffer, RAY_LOG_BYTES, archive.driver_log)
        self.last_output = time.time()
        self.health = Health(archive, tuple(self.overrides), attempt)
        self.oom_kills, self.failed_forks = control_group.oom_kills(), control_group.failed_forks()
        self.retention = Retention(archive.path / "checkpoints", self.plan.workload, self.overrides)

    def run(self) -> int:
        signal.signal(signal.SIGTERM, self.handle_sigterm)
        # A core file has the whole memory of the trainer, and its secrets.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        environment = {**os.environ, **self.plan.driver_env}
        driver = {"host": node_name(), "pid": os.getpid()}
        started = time.time()
        status = self.archive.read_status()
        first, phases = status.started_at or started, attempts.phases_before(status, started)
        port = self.plan.ready_port
        server_status = {"address": "", "reason": f"waits until port {port} answers" if port else ""}
        self.archive.set_status(
            JobState.SUBMITTED if port else JobState.RUNNING,
            started_at=first,
            attempt_started_at=started,
            driver=driver,
            phases=phases,
            **server_status,
        )
        if self.attempt == 1:
            self.archive.write_json("config/versions.json", package_versions())
        else:
            self.print_line(attempts.attempt_marker_line(self.attempt))
        if self.plan.command:
            Path(self.plan.directory).mkdir(exist_ok=True)
        problem = self.redactor.text(self.precheck(environment)) if self.plan.code_path else ""
        if self.received_signal:
            self.signal_before_exit = self.received_signal
            code = 128 + self.received_signal
        elif problem:
            self.print_line(f"The job was not started: {problem}")
            code = PRECHECK_FAILED_EXIT_CODE
        else:
            code = self.train(environment)
        result = self.determine_outcome(code, problem)
        self.finish(code, result)
        # A trainer that exits with 0 but did no step counts as failed; tell Ray so.
        return (code if code >= 0 else 128 - code) or int(result.state is JobState.FAILED)

    def precheck(self, environment: dict[str, str]) -> str:
        done = subprocess.run(
            [sys.executable, "-c", IMPORT_CHECK],
            env=environment,
            cwd=self.plan.directory or None,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            return f"Python cannot search for verl: {done.stderr.strip()}"
        try:
            # An image may print a greeting whenever Python starts: the answer is the last line.
            verl_file, marker_file = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, TypeError, IndexError):
            return f"Python cannot search for verl: it answers {done.stdout[-200:]!r}"
        marker = read_marker(Path(marker_file)) if marker_file else None
        self.print_line(f"MVP_PRECHECK_VERL_FILE={verl_file}")
        self.print_line(f"MVP_PRECHECK_MARKER={marker}")
        code_path = self.plan.code_path
        if not verl_file or not Path(verl_file).is_relative_to(code_path):
            return (
                f"verl would be imported from {verl_file}, not from the snapshot {code_path}; "
                "another entry precedes it on PYTHONPATH"
            )
        if marker != self.plan.code_id:
            return f"the snapshot's marker is {marker!r}, not {self.plan.code_id!r}; stage the snapshot again"
        return ""

    def train(self, environment: dict[str, str]) -> int:
        """Run the trainer to its end, and the commands before and after it.

        Returns its exit code, or that of a command before it that failed; negative for a signal.
        """
        environment = {**environment, **self.secrets}
        trainer_ended = threading.Event()
        threading.Thread(target=self.run_watch, args=(trainer_ended,), daemon=True).start()
        code = 0
        for command in self.plan.before:
            if code := self.run_shell(command, environment, BEFORE_TIMEOUT_SECONDS):
                self.program_label = f"a `before` command, {one_line(command)},"
            # After a stop, no further command starts, even if this one succeeded.
            if code or self.received_signal or self.watch_failure:
                break
        if self.received_signal or self.watch_failure:
            code = code or -signal.SIGTERM
        elif not code:
            code = self.run_program(self.trainer_command(), environment)
        self.signal_before_exit = self.received_signal
        trainer_ended.set()
        for after in self.plan.after:
            self.run_shell(after, environment, SIGTERM_GRACE_SECONDS if self.received_signal else AFTER_TIMEOUT_SECONDS)
        self.prune_checkpoints()
        self.collect_samples(is_over=True)
        return code

    def trainer_command(self) -> list[str]:
        if self.plan.launcher == TORCHRUN:
            return Program.of_this_process().command(str(self.archive.path), "torchrun", str(self.attempt))
        return list(self.plan.command) or [sys.executable, "-m", self.plan.module, *self.overrides]

    def run_shell(self, command: str, environment: dict[str, str], seconds: float) -> int:
        """Run a command before or after the trainer; returns its exit code, negative for a signal."""
        self.print_line(f"+ {command}")
        code = self.run_program(["/bin/sh", "-c", command], environment, seconds)
        if code:
            limit = f", after its limit of {seconds:g} s" if code == -signal.SIGKILL else ""
            self.print_line(f"`{command}` ended with exit code {code}{limit}")
        return code

    def run_program(self, command: list[str], environment: dict[str, str], seconds: float | None = None) -> int:
        """Run a program to its end; returns its exit code, negative for a signal.

        seconds: how long it may take. A program with a limit may leave processes, such as a sandbox.
        """
        try:
            self.process = process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.plan.directory or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self.print_line(f"{command[0]} cannot be started: {error.strerror}")
            return 127
        if self.received_signal and not self.signal_before_exit:  # the signal arrived before the trainer was assigned
            self.end_trainer()
        # A left-over process may still write: each process has its own redactor.
        redactor = redact.Redactor(self.secrets.values())
        copier = threading.Thread(target=self.copy_output, args=(process.stdout, redactor), daemon=True)
        copier.start()
        limit = threading.Timer(seconds or 0, kill_group, (process, signal.SIGKILL))
        if seconds:
            limit.start()
        code = process.wait()
        limit.cancel()
        if self.kill_timer:
            self.kill_timer.cancel()  # this process would otherwise wait for it
        if not seconds:
            # Data loaders and other children that outlive the trainer would hold its memory, its ports and the pipe.
            kill_group(process, signal.SIGKILL)
        # A process that has left the group may hold the pipe open forever.
        copier.join(1.0 if seconds else OUTPUT_DRAIN_TIMEOUT_SECONDS)
        self.write(redactor.rest())
        return code

    def copy_output(self, output: IO[bytes], redactor: redact.Redactor) -> None:
        while data := os.read(output.fileno(), 1 << 16):
            self.last_output = time.time()
            self.write(redactor.feed(data))

    def print_line(self, line: str) -> None:
        self.write(self.redactor.text(f"{line}\n").encode(errors="replace"))

    def write(self, data: bytes) -> None:
        """Write to the archive, and the beginning to Ray's own log, which is lost with the node."""
        self.log.write(data)
        # A full disk of this node must not end the copying of output: the trainer would block on its full pipe.
        with contextlib.suppress(OSError):
            self.ray_log.write(data)

    def run_watch(self, trainer_ended: threading.Event) -> None:
        """Write heartbeats, and end a trainer that stalls or exceeds its deadline."""
        watch, sampled_step = Watch(self.archive, self.plan, self.attempt, self.runner, self.health), 0
        while not trainer_ended.wait(WATCH_INTERVAL_SECONDS):
            self.log.flush_pending()
            self.prune_checkpoints()
            if watch.step != sampled_step:
                sampled_step = watch.step
                self.collect_samples()
            # Neither a full shared root nor any content of a metrics file may end the watch.
            with contextlib.suppress(Exception):
                self.record_server_ready()
                failure = watch.check(time.time(), lambda: self.last_output)
                if failure and not self.watch_failure and not self.received_signal:
                    self.print_line(f"{ENDED_BY_WATCH} {failure.reason}")
                    self.watch_failure = failure
                    self.end_trainer()

    def record_server_ready(self) -> None:
        """Record that the server of this job can be used, once it answers."""
        if not (port := self.plan.ready_port) or self.archive.read_status().state is JobState.RUNNING:
            return
        host = (self.archive.steward_heartbeat() or StewardHeartbeat()).address
        address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        # The proxies of the job's environment are not used.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with contextlib.suppress(Exception), opener.open(f"{address}{self.plan.ready_path}", timeout=2.0):
            self.archive.set_status(JobState.RUNNING, address=address, reason="")

    def prune_checkpoints(self) -> None:
        """Remove the checkpoints of earlier attempts that are too old; verl removes those of this one."""
        # No content of the archive may end the watch, or keep this launcher from recording the end.
        with contextlib.suppress(Exception):
            if self.attempt > 1:
                self.retention.prune()

    def collect_samples(self, is_over: bool = False) -> None:
        # No content of the archive may end the watch, see prune_checkpoints.
        with contextlib.suppress(Exception):
            samples.keep(self.archive, self.redactor.text, is_over)

    def determine_outcome(self, code: int, problem: str) -> Outcome:
        """Decide how the attempt ended, from a snapshot of the state taken now."""
        self.last_step = max(self.archive.last_step(), self.first_step)
        self.attempt_steps = attempts.steps_done(self.archive, self.attempt)
        seen = Observations(
            exit_code=code,
            precheck_problem=problem,
            # The archive may lack the end of the log.
            log=self.log.text(),
            stop_signal=self.signal_before_exit,
            stop_cause=attempts.stop_cause(self.archive),
            watch_failure=self.watch_failure,
            last_step=self.last_step,
            attempt_steps=self.attempt_steps,
            total_steps=total_steps(self.archive),
            overrides=self.overrides,
            oom_kills=control_group.oom_kills() - self.oom_kills,
            failed_forks=control_group.failed_forks() - self.failed_forks,
            engine_failure=self.health.scan.lost_engine,
            has_space_for_checkpoint=self.health.has_space(),
            program=self.program_label,
        )
        result = determine_outcome(seen)
        server = attempts.ended_server(self.archive, self.plan)
        if result.failure and not self.signal_before_exit and server:
            reason = f"{server}, which it used, ended; then: {result.failure.reason}"
            failure = replace(result.failure, kind=FailureKind.DEPENDENCY, reason=reason)
            return Outcome(JobState.FAILED, replace(failure, todo=REMEDIES[FailureKind.DEPENDENCY]))
        return result

    def finish(self, code: int, result: Outcome) -> None:
        """Record the end, also when the archive cannot be written for a while. Raises nothing if it never can."""
        try:
            log.retry_write(lambda: self.record(code, result), lambda: bool(self.received_signal))
            if self.log.flush_pending():
                with contextlib.suppress(OSError):
                    self.archive.event("LOG_LOST", bytes=self.log.unwritten_bytes, reason=self.log.problem)
        except (OSError, UnreadableError) as error:
            loss = f"{self.log.unwritten_bytes} bytes of the log are missing there"
            lines = f"\nThe archive cannot be written: {error}; {loss}\n{log.format_end_line(result.failure)}\n"
            with contextlib.suppress(OSError):
                self.ray_log.write_unlimited(self.redactor.text(lines).encode(errors="replace"))

    def record(self, code: int, result: Outcome) -> JobState:
        """Record how the attempt ended; returns the job's state."""
        self.log.flush_pending()
        self.health.finish(over=code == 0)
        if self.received_signal and not self.signal_before_exit and not attempts.stop_cause(self.archive):
            # The stop came after the trainer had ended: keep its outcome, but start no further attempt.
            self.archive.ask_to_stop()
        details = {"exit_code": code, "steps": self.last_step, "attempt_steps": self.attempt_steps}
        if result.state is JobState.ENDING and result.failure:
            return attempts.record_trainer_failure(self.archive, result.failure, **details)
        reason = {} if result.failure else {"reason": result.reason}
        return attempts.record_end(self.archive, result.state, result.failure, None, **details, **reason)

    def handle_sigterm(self, signum: int, _frame: object) -> None:
        """Handle SIGTERM from Ray (`ray job stop`): pass it on to the trainer and its children on this node."""
        self.received_signal = signum
        self.end_trainer()

    def end_trainer(self) -> None:
        # The process id of one that has ended may be another's by now.
        if self.process and self.process.returncode is None and not self.kill_timer:
            kill_group(self.process, signal.SIGTERM)
            # A trainer that ignores SIGTERM would be left behind when Ray kills this process.
            self.kill_timer = threading.Timer(SIGTERM_GRACE_SECONDS, kill_group, (self.process, signal.SIGKILL))
            self.kill_timer.start()


def package_versions() -> dict[str, str]:
    """Python and every package of the image that the job runs on, by name."""
    return {"python": platform.python_version(), **node.package_versions()}
