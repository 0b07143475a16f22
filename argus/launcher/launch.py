# SPDX-License-Identifier: Apache-2.0
"""Runs one attempt of a job, as its entrypoint on a worker: precheck, trainer, watch, and the record of the end."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import signal
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

from ..archive import samples
from ..archive.archive import Archive, StewardHeartbeat
from ..archive.checkpoints import Retention
from ..archive.failures import REMEDIES, Failure, FailureKind
from ..archive.plan import TORCHRUN, Plan
from ..archive.program import Program, Runner
from ..archive.status import JobState
from ..common.identity import node_name
from ..evidence import node
from ..hooks import worker_secrets
from ..io import control_group
from ..io.output import one_line
from ..io.reading import UnreadableError
from ..queue import attempts
from .driver_log import AttemptOutput, format_end_line, retry_write
from .health import Health
from .log_scan import total_steps
from .outcome import TRAINER, Observations, Outcome, determine_outcome
from .program_runner import SIGTERM_GRACE_SECONDS, ProgramRunner, precheck_problem
from .watch import ENDED_BY_WATCH, Watch

PRECHECK_FAILED_EXIT_CODE = 65  # sysexits' EX_DATAERR: the job's input is not what it claims to be
# The time limits of a `before` and an `after` command of the JobSpec; the launcher is silent meanwhile.
BEFORE_TIMEOUT_SECONDS, AFTER_TIMEOUT_SECONDS = 600.0, 60.0
WATCH_INTERVAL_SECONDS = 2.0


class Launcher:
    """Runs one attempt of a job as its plan specifies: ``config/plan.json``, written at the submission."""

    def __init__(self, archive: Archive, attempt: int = 1) -> None:
        self.archive = archive
        self.attempt = attempt
        self.plan = archive.plan() or Plan()
        self.overrides = attempts.recorded_overrides(archive, self.plan, attempt)
        self.secrets = worker_secrets.load(archive.path)
        # The last signal to this process; and that signal, but only if it came before the trainer's end.
        self.received_signal: int | None = None
        self.signal_before_trainer_end: int | None = None
        # Why this launcher has ended the trainer.
        self.watch_failure: Failure | None = None
        self.program_label = "the command" if self.plan.command else TRAINER
        # The step from which this attempt resumes. The metrics may be older: the attempt may then have no steps left.
        self.first_step = (archive.read_status().resumed_from_step or 0) if attempt > 1 else 0
        # The last step of the job, and how many steps this attempt did; determine_attempt_outcome sets them.
        self.last_step = self.attempt_steps = 0
        self.output = AttemptOutput(archive.driver_log, self.secrets.values())
        self.programs = ProgramRunner(self.plan.directory, self.secrets, self.output, self.is_stopping)
        self.health = Health(archive, tuple(self.overrides), attempt)
        self.oom_kills_before, self.failed_forks_before = control_group.oom_kills(), control_group.failed_forks()
        self.retention = Retention(archive.path / "checkpoints", self.plan.workload, self.overrides)

    def run(self) -> int:
        """Run the attempt and record its end; returns the exit code for Ray."""
        signal.signal(signal.SIGTERM, self.handle_sigterm)
        # A core file has the whole memory of the trainer, and its secrets.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        environment = {**os.environ, **self.plan.driver_env}
        self.record_start()
        if self.plan.command:
            Path(self.plan.directory).mkdir(exist_ok=True)
        problem = precheck_problem(self.plan, environment, self.output.print_line) if self.plan.code_path else ""
        problem = self.output.redactor.mask_text(problem)
        if self.received_signal:
            self.signal_before_trainer_end = self.received_signal
            code = 128 + self.received_signal
        elif problem:
            self.output.print_line(f"The job was not started: {problem}")
            code = PRECHECK_FAILED_EXIT_CODE
        else:
            code = self.run_programs(environment)
        outcome = self.determine_attempt_outcome(code, problem)
        self.record_end_with_retries(code, outcome)
        # A trainer that exits with 0 but did no step counts as failed; tell Ray so.
        return (code if code >= 0 else 128 - code) or int(outcome.state is JobState.FAILED)

    def record_start(self) -> None:
        started = time.time()
        status = self.archive.read_status()
        first, phases = status.started_at or started, attempts.phases_before(status, started)
        port = self.plan.ready_port
        server_status = {"address": "", "reason": f"waits until port {port} answers" if port else ""}
        self.archive.set_status(
            JobState.SUBMITTED if port else JobState.RUNNING,
            started_at=first,
            attempt_started_at=started,
            driver={"host": node_name(), "pid": os.getpid()},
            phases=phases,
            **server_status,
        )
        if self.attempt == 1:
            self.archive.write_json("config/versions.json", python_and_package_versions())
        else:
            self.output.print_line(attempts.attempt_marker_line(self.attempt))

    def run_programs(self, environment: dict[str, str]) -> int:
        """Run the `before` commands, the trainer or the JobSpec's command in its place, and the `after` commands.

        Returns the trainer's exit code, or that of a `before` command that failed; negative for a signal.
        """
        environment = {**environment, **self.secrets}
        trainer_ended = threading.Event()
        threading.Thread(target=self.run_watch, args=(trainer_ended,), daemon=True).start()
        code = 0
        for command in self.plan.before:
            if code := self.programs.run_shell(command, environment, BEFORE_TIMEOUT_SECONDS):
                self.program_label = f"a `before` command, {one_line(command)},"
            # After a stop, no further command starts, even if this one succeeded.
            if code or self.received_signal or self.watch_failure:
                break
        if self.received_signal or self.watch_failure:
            code = code or -signal.SIGTERM
        elif not code:
            code = self.programs.run(self.trainer_command(), environment)
        self.signal_before_trainer_end = self.received_signal
        trainer_ended.set()
        for command in self.plan.after:
            timeout = SIGTERM_GRACE_SECONDS if self.received_signal else AFTER_TIMEOUT_SECONDS
            self.programs.run_shell(command, environment, timeout)
        self.prune_checkpoints()
        self.collect_samples(is_over=True)
        return code

    def trainer_command(self) -> list[str]:
        if self.plan.launcher == TORCHRUN:
            return Program.of_this_process().command(str(self.archive.path), "torchrun", str(self.attempt))
        return list(self.plan.command) or [sys.executable, "-m", self.plan.module, *self.overrides]

    def handle_sigterm(self, signum: int, _frame: object) -> None:
        """Handle SIGTERM from Ray (`ray job stop`): pass it on to the trainer and its children on this node."""
        self.received_signal = signum
        self.programs.terminate()

    def is_stopping(self) -> bool:
        return bool(self.received_signal and not self.signal_before_trainer_end)

    def run_watch(self, trainer_ended: threading.Event) -> None:
        """Watch the trainer in a thread, and end it if it stalls, exceeds its deadline, or waits for a lost engine."""
        watch, sampled_step = Watch(self.archive, self.plan, self.attempt, Runner(self.archive), self.health), 0
        while not trainer_ended.wait(WATCH_INTERVAL_SECONDS):
            self.output.log.flush_pending()
            self.prune_checkpoints()
            if watch.step != sampled_step:
                sampled_step = watch.step
                self.collect_samples()
            # Neither a full shared root nor any content of a metrics file may end the watch.
            with contextlib.suppress(Exception):
                self.record_server_ready()
                failure = watch.check(time.time(), lambda: self.output.last_output_at)
                if failure and not self.watch_failure and not self.received_signal:
                    self.output.print_line(f"{ENDED_BY_WATCH} {failure.reason}")
                    self.watch_failure = failure
                    self.programs.terminate()

    def record_server_ready(self) -> None:
        """Set a job that is a server (the plan has a ready_port) to RUNNING once its port answers."""
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
            samples.keep(self.archive, self.output.redactor.mask_text, is_over)

    def determine_attempt_outcome(self, code: int, problem: str) -> Outcome:
        """Decide how the attempt ended. code: the trainer's exit code. problem: why the precheck failed, or ""."""
        self.last_step = max(self.archive.last_step(), self.first_step)
        self.attempt_steps = attempts.steps_done(self.archive, self.attempt)
        seen = Observations(
            exit_code=code,
            precheck_problem=problem,
            # The archive may lack the end of the log.
            log=self.output.log.tail_text(),
            stop_signal=self.signal_before_trainer_end,
            stop_cause=attempts.stop_cause(self.archive),
            watch_failure=self.watch_failure,
            last_step=self.last_step,
            attempt_steps=self.attempt_steps,
            total_steps=total_steps(self.archive),
            overrides=self.overrides,
            oom_kills=control_group.oom_kills() - self.oom_kills_before,
            failed_forks=control_group.failed_forks() - self.failed_forks_before,
            engine_failure=self.health.scan.lost_engine,
            has_space_for_checkpoint=self.health.has_space_for_checkpoint(),
            program=self.program_label,
        )
        outcome = determine_outcome(seen)
        server = attempts.ended_server(self.archive, self.plan)
        if outcome.failure and not self.signal_before_trainer_end and server:
            reason = f"{server}, which it used, ended; then: {outcome.failure.reason}"
            failure = replace(outcome.failure, kind=FailureKind.DEPENDENCY, reason=reason)
            return Outcome(JobState.FAILED, replace(failure, todo=REMEDIES[FailureKind.DEPENDENCY]))
        return outcome

    def record_end_with_retries(self, code: int, outcome: Outcome) -> None:
        """Record the end, also when the archive cannot be written for a while. Raises nothing if it never can."""
        log = self.output.log
        try:
            retry_write(lambda: self.record_end(code, outcome), lambda: bool(self.received_signal))
            if log.flush_pending():
                with contextlib.suppress(OSError):
                    self.archive.event("LOG_LOST", bytes=log.unwritten_bytes, reason=log.problem)
        except (OSError, UnreadableError) as error:
            loss = f"{log.unwritten_bytes} bytes of the log are missing there"
            lines = f"\nThe archive cannot be written: {error}; {loss}\n{format_end_line(outcome.failure)}\n"
            self.output.write_to_ray_log(lines)

    def record_end(self, code: int, outcome: Outcome) -> JobState:
        """Record once how the attempt ended; returns the job's state."""
        self.output.log.flush_pending()
        self.health.finish(has_succeeded=code == 0)
        if self.received_signal and not self.signal_before_trainer_end and not attempts.stop_cause(self.archive):
            # The stop came after the trainer had ended: keep its outcome, but start no further attempt.
            self.archive.ask_to_stop()
        details = {"exit_code": code, "steps": self.last_step, "attempt_steps": self.attempt_steps}
        if outcome.state is JobState.ENDING and outcome.failure:
            return attempts.record_trainer_failure(self.archive, outcome.failure, **details)
        reason = {} if outcome.failure else {"reason": outcome.reason}
        return attempts.record_end(self.archive, outcome.state, outcome.failure, None, **details, **reason)


def python_and_package_versions() -> dict[str, str]:
    """Python and every package of the image that the job runs on, by name."""
    return {"python": platform.python_version(), **node.package_versions()}
