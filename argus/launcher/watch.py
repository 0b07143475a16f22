# SPDX-License-Identifier: GPL-3.0-or-later
"""The watch over a running trainer: its heartbeats, its deadline, stalls, and inference engines that ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ..archive import failures, metrics
from ..archive.archive import Archive, StewardHeartbeat
from ..archive.failures import Failure, FailureKind
from ..archive.plan import Plan
from ..archive.program import Runner
from ..evidence.evidence import Moment
from ..ray import ending
from .health import Health
from .log import expected_steps

# How long collecting evidence may delay the end of a trainer.
EVIDENCE_SECONDS = 150.0
# For so long, a trainer whose inference engine has ended may fail by itself or go on.
ENGINE_SECONDS = 30.0
# The line in the log before the end of a trainer that the watch ends.
ENDED_BY_WATCH = "The launcher ends the job:"


class Watch:
    """Checks a running trainer every few seconds."""

    def __init__(self, archive: Archive, plan: Plan, attempt: int, runner: Runner, health: Health) -> None:
        self.archive = archive
        self.plan = plan
        self.runner = runner
        self.health = health
        self.metrics = archive.metrics_file(attempt)
        self.size = 0
        self.step = 0
        self.total: int | None = None
        # When the watch began, and the first step that this attempt did with its time.
        self.began: float | None = None
        self.first: tuple[int, float] | None = None
        self.last_metric = 0.0
        self.stalled = ""
        self.overdue = False
        # An engine that ended, since when, and how large the metrics were; and those without which the trainer goes on.
        self.engine: tuple[str, float, int] | None = None
        self.spared: set[str] = set()

    def check(self, now: float, last_output: Callable[[], float]) -> Failure | None:
        """Check once; returns why the trainer has to be ended, or None. last_output: when the trainer last wrote."""
        self.began = now if self.began is None else self.began
        self.read_metrics(now)
        self.health.look(now)
        self.total = expected_steps(self.archive) if self.total is None else self.total
        # A full shared root must not switch deadline and stall off.
        with contextlib.suppress(OSError):
            self.archive.write_heartbeat(
                "heartbeat.json",
                time=now,
                step=self.step,
                total_steps=self.total,
                first_step=self.first[0] if self.first else None,
                first_step_at=self.first[1] if self.first else None,
                last_output_at=last_output(),
                phase=None if self.first else self.health.phase,
                stalled=self.stalled,
            )
        late = self.late(now)
        if not late:
            return self.check_engines(now) or self.check_for_stall(now, last_output)
        # Once: a trainer that takes its time to end is checked again.
        if not self.overdue:
            self.overdue = True
            self.collect(Moment.DEADLINE)
        return failures.failure(FailureKind.DEADLINE, late)

    def late(self, now: float) -> str:
        deadline = self.plan.deadline
        submitted_at = self.archive.read_status().submitted_at
        if deadline and submitted_at is not None and now > submitted_at + deadline:
            return f"the job exceeded its deadline of {deadline:g} s"
        return ending.problem(now)

    def collect(self, moment: Moment) -> None:
        self.runner.run("evidence", moment, seconds=EVIDENCE_SECONDS)

    def read_metrics(self, now: float) -> None:
        if not self.metrics.exists() or (size := self.metrics.stat().st_size) == self.size:
            return
        self.size, self.last_metric = size, now
        steps = metrics.last_steps(self.metrics, metrics.LINE_BYTES)
        if steps:
            self.step = max(step.step for step in steps)
            self.first = self.first or (self.step, now)

    def steward(self) -> StewardHeartbeat:
        return self.archive.steward_heartbeat() or StewardHeartbeat()

    def check_engines(self, now: float) -> Failure | None:
        """The loss of an inference engine, for which verl usually waits forever."""
        problem = self.health.scan.engine or self.steward().engine
        if self.engine and (not problem or self.size != self.engine[2]):
            self.spared.add(self.engine[0])
            self.engine, self.health.scan.engine = None, ""
            self.archive.event("WENT_ON")
            return None
        is_over = self.total is not None and self.step >= self.total
        if not problem or problem in self.spared or is_over:
            return None
        if not self.engine:
            self.engine = problem, now, self.size
            self.archive.event("ENGINE_LOST", reason=problem)
        problem, since, size = self.engine
        if now - since < ENGINE_SECONDS:
            return None
        self.collect(Moment.STALL)
        self.read_metrics(now)
        if self.size != size:
            return None
        # Once: see above.
        self.spared.add(problem)
        reason = f"an inference engine ended, and the trainer waited {now - since:.0f} s for it: {problem}"
        return failures.failure(FailureKind.ENGINE_LOST, reason)

    def stall(self, now: float, last_output: float) -> str:
        """Why the trainer counts as stalled, or "". Before its first step, it may be silent for as long as it takes."""
        if self.first is None:
            since = now - (self.began or now)
            phase = f", while {self.health.phase}" if self.health.phase else ""
            phase += f"; the job {notice}" if (notice := self.steward().notice) else ""
            limit, reason = self.plan.start_timeout, f"no first step for {since:.0f} s{phase}"
        else:
            since = now - max(last_output, self.last_metric)
            limit, reason = self.plan.stall_timeout, f"no step and no log line for {since:.0f} s, at step {self.step}"
        return reason if limit and since >= limit else ""

    def check_for_stall(self, now: float, last_output: Callable[[], float]) -> Failure | None:
        output = last_output()
        reason = self.stall(now, output)
        if not reason:
            self.went_on()
            return None
        if self.stalled:
            return None
        self.stalled = reason
        self.archive.event("STALLED", reason=reason)
        size, began = self.size, self.first
        self.collect(Moment.STALL)
        if self.plan.on_stall != "stop":
            return None
        # Collecting takes minutes on a large cluster, in which the trainer may have gone on.
        self.read_metrics(now)
        if self.size != size or (began is not None and last_output() != output):
            self.went_on()
            return None
        return failures.failure(FailureKind.STALLED, reason)

    def went_on(self) -> None:
        if self.stalled:
            self.archive.event("WENT_ON")
        self.stalled = ""
