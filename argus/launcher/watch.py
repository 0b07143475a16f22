# SPDX-License-Identifier: Apache-2.0
"""Watches a running trainer: writes heartbeats, and notices its deadline, stalls, and inference engines that ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ..archive import failures, metrics
from ..archive.archive import Archive, StewardHeartbeat
from ..archive.failures import Failure, FailureKind
from ..archive.plan import VAL_ONLY, Plan
from ..archive.program import Runner
from ..evidence.evidence import Moment
from ..io.hydra import is_true
from ..ray import departures
from .health import Health
from .log_scan import expected_steps

# How long collecting evidence may delay a trainer's end.
EVIDENCE_TIMEOUT_SECONDS = 150.0
# The time in which a trainer whose inference engine has ended may fail by itself or go on.
ENGINE_GRACE_SECONDS = 30.0
# Begins the line in the log that the launcher prints before it ends the trainer.
ENDED_BY_WATCH = "The launcher ends the job:"


@dataclass(frozen=True)
class LostEngine:
    """An engine that has ended. metrics_bytes: of the metrics file then; if it grows, the trainer goes on."""

    message: str
    noticed_at: float
    metrics_bytes: int


class Watch:
    """What is known of a running trainer from one check to the next."""

    def __init__(self, archive: Archive, plan: Plan, attempt: int, runner: Runner, health: Health) -> None:
        self.archive = archive
        self.plan = plan
        self.runner = runner
        self.health = health
        self.metrics_file = archive.metrics_file(attempt)
        self.metrics_bytes, self.metrics_changed_at = 0, 0.0
        self.step = 0
        self.total_steps: int | None = None
        self.began_at: float | None = None
        # The first step that this attempt did, and when.
        self.first_step: int | None = None
        self.first_step_at: float | None = None
        self.stall_reason = ""
        self.is_overdue = False
        self.lost_engine: LostEngine | None = None
        # The messages of engines that the trainer survived, or for which it is ended.
        self.settled_engines: set[str] = set()

    def check(self, now: float, last_output: Callable[[], float]) -> Failure | None:
        """Write a heartbeat; returns why the trainer has to be ended, or None. last_output: when it last wrote."""
        self.began_at = now if self.began_at is None else self.began_at
        self.read_metrics(now)
        self.health.look(now)
        self.total_steps = expected_steps(self.archive) if self.total_steps is None else self.total_steps
        # A full shared root must not switch deadline and stall off.
        with contextlib.suppress(OSError):
            self.archive.write_heartbeat(
                "heartbeat.json",
                time=now,
                step=self.step,
                total_steps=self.total_steps,
                first_step=self.first_step,
                first_step_at=self.first_step_at,
                last_output_at=last_output(),
                phase=self.health.phase if self.first_step is None else None,
                stalled=self.stall_reason,
            )
        problem = self.deadline_problem(now)
        if not problem:
            return self.check_engines(now) or self.check_for_stall(now, last_output)
        # Collect once: a trainer that ends slowly is checked again.
        if not self.is_overdue:
            self.is_overdue = True
            self.collect_evidence(Moment.DEADLINE)
        return failures.failure(FailureKind.DEADLINE, problem)

    def deadline_problem(self, now: float) -> str:
        deadline = self.plan.deadline
        submitted_at = self.archive.read_status().submitted_at
        if deadline and submitted_at is not None and now > submitted_at + deadline:
            return f"the job exceeded its deadline of {deadline:g} s"
        return departures.ending_problem(now)

    def collect_evidence(self, moment: Moment) -> None:
        self.runner.run("evidence", moment, seconds=EVIDENCE_TIMEOUT_SECONDS)

    def read_metrics(self, now: float) -> None:
        if not self.metrics_file.exists() or (size := self.metrics_file.stat().st_size) == self.metrics_bytes:
            return
        self.metrics_bytes, self.metrics_changed_at = size, now
        steps = metrics.last_steps(self.metrics_file, metrics.MAX_LINE_BYTES)
        if steps:
            self.step = max(step.number for step in steps)
            if self.first_step is None:
                self.first_step, self.first_step_at = self.step, now

    def steward_heartbeat(self) -> StewardHeartbeat:
        return self.archive.steward_heartbeat() or StewardHeartbeat()

    def check_engines(self, now: float) -> Failure | None:
        """The loss of an inference engine, if the trainer waits for the engine; verl usually waits forever."""
        message = self.health.scan.lost_engine or self.steward_heartbeat().engine
        if (lost := self.lost_engine) and (not message or self.metrics_bytes != lost.metrics_bytes):
            self.settled_engines.add(lost.message)
            self.lost_engine, self.health.scan.lost_engine = None, ""
            self.archive.event("WENT_ON")
            return None
        is_over = self.total_steps is not None and self.step >= self.total_steps
        if not message or message in self.settled_engines or is_over:
            return None
        if not lost:
            self.lost_engine = lost = LostEngine(message, now, self.metrics_bytes)
            self.archive.event("ENGINE_LOST", reason=message)
        if now - lost.noticed_at < ENGINE_GRACE_SECONDS:
            return None
        self.collect_evidence(Moment.STALL)
        self.read_metrics(now)
        if self.metrics_bytes != lost.metrics_bytes:
            return None
        # Collect once, as for a deadline.
        self.settled_engines.add(message)
        reason = f"an inference engine ended, and the trainer waited {now - lost.noticed_at:.0f} s for it: {message}"
        return failures.failure(FailureKind.ENGINE_LOST, reason)

    def stall_problem(self, now: float, last_output: float) -> str:
        """Why the trainer counts as stalled, or "". Before its first step, it may be silent for as long as it takes.

        last_output: when it last printed something that shows progress.
        """
        began_at = self.began_at or now
        if self.plan.command:
            seconds = now - max(began_at, last_output)
            limit, reason = self.plan.stall_timeout, f"no log line for {seconds:.0f} s"
            if self.plan.ready_port:
                # A server may be silent for as long as it answers.
                address = self.archive.read_status().address
                seconds = 0 if address else now - began_at
                limit, reason = self.plan.start_timeout, f"no answer on port {self.plan.ready_port} for {seconds:.0f} s"
        elif self.first_step is None:
            # What it prints is no progress. But a job that only validates has no steps, and prints something at times.
            seconds = now - (max(began_at, last_output) if is_true(self.plan.overrides, VAL_ONLY) else began_at)
            phase = f", while {self.health.phase}" if self.health.phase else ""
            phase += f"; the job {notice}" if (notice := self.steward_heartbeat().notice) else ""
            limit, reason = self.plan.start_timeout, f"no first step for {seconds:.0f} s{phase}"
        else:
            seconds = now - max(last_output, self.metrics_changed_at)
            limit, reason = self.plan.stall_timeout, f"no step and no log line for {seconds:.0f} s, at step {self.step}"
        return reason if limit and seconds >= limit else ""

    def check_for_stall(self, now: float, last_output: Callable[[], float]) -> Failure | None:
        """Record that the trainer stalls or goes on; returns the failure if the job is to be ended for it."""
        output_at = last_output()
        reason = self.stall_problem(now, output_at)
        if not reason:
            self.record_recovery()
            return None
        if self.stall_reason:
            return None
        self.stall_reason = reason
        self.archive.event("STALLED", reason=reason)
        metrics_bytes, first_step = self.metrics_bytes, self.first_step
        self.collect_evidence(Moment.STALL)
        if self.plan.on_stall != "stop":
            return None
        # Collecting takes minutes on a large cluster. The trainer may have gone on meanwhile.
        self.read_metrics(now)
        if self.metrics_bytes != metrics_bytes or (first_step is not None and last_output() != output_at):
            self.record_recovery()
            return None
        return failures.failure(FailureKind.STALLED, reason)

    def record_recovery(self) -> None:
        if self.stall_reason:
            self.archive.event("WENT_ON")
        self.stall_reason = ""
