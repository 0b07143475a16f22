# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watch over a running trainer: its heartbeats, its deadline, and stalls."""

from __future__ import annotations

import contextlib

from . import failures, metrics, reading
from .archive import Archive
from .evidence import Moment
from .failures import Failure, FailureKind
from .log import total_steps
from .plan import Plan
from .processes import Runner

# How long collecting evidence may delay the end of a trainer.
EVIDENCE_SECONDS = 150.0
# The line in the log before the end of a trainer that the watch ends.
ENDED_BY_WATCH = "The launcher ends the job:"


class Watch:
    """Checks a running trainer every few seconds."""

    def __init__(self, archive: Archive, plan: Plan, attempt: int, runner: Runner) -> None:
        self.archive = archive
        self.plan = plan
        self.runner = runner
        self.metrics = archive.metrics_file(attempt)
        self.size = 0
        self.step = 0
        self.total: int | None = None
        # The first step that this attempt did, and when.
        self.first: tuple[int, float] | None = None
        self.last_metric = 0.0
        self.stalled = False

    def check(self, now: float, last_output: float) -> Failure | None:
        """Check once; returns why the trainer has to be ended, or None."""
        self.read_metrics(now)
        self.total = self.total or total_steps(self.archive)
        # A full shared root must not switch deadline and stall off.
        with contextlib.suppress(OSError):
            self.archive.write_heartbeat(
                "heartbeat.json",
                time=now,
                step=self.step,
                total_steps=self.total,
                first_step=self.first[0] if self.first else None,
                first_step_at=self.first[1] if self.first else None,
                last_output_at=last_output,
            )
        deadline = self.plan.deadline
        submitted_at = self.archive.read_status().submitted_at
        if deadline and submitted_at is not None and now > submitted_at + deadline:
            self.collect(Moment.DEADLINE)
            return failures.failure(FailureKind.DEADLINE, f"the job exceeded its deadline of {deadline:g} s")
        return self.check_for_stall(now, max(last_output, self.last_metric))

    def collect(self, moment: Moment) -> None:
        self.runner.run("evidence", moment, seconds=EVIDENCE_SECONDS)

    def read_metrics(self, now: float) -> None:
        name = self.archive.below(f"logs/{self.metrics.name}")
        found = reading.status_of(self.archive.jobs, name)
        if not found or found.st_size == self.size:
            return
        self.size, self.last_metric = found.st_size, now
        steps = metrics.last_steps(self.archive.jobs, name, metrics.LINE_BYTES)
        if steps:
            self.step = max(step.step for step in steps)
            self.first = self.first or (self.step, now)

    def check_for_stall(self, now: float, last_progress: float) -> Failure | None:
        timeout = self.plan.stall_timeout
        if not timeout or now - last_progress < timeout:
            if self.stalled:
                self.archive.event("WENT_ON")
            self.stalled = False
            return None
        if self.stalled:
            return None
        self.stalled = True
        reason = f"no step and no log line for {now - last_progress:.0f} s, at step {self.step}"
        self.archive.event("STALLED", reason=reason)
        self.collect(Moment.STALL)
        if self.plan.on_stall == "stop":
            return failures.failure(FailureKind.STALLED, reason)
        return None
