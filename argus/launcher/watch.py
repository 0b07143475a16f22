# SPDX-License-Identifier: Apache-2.0
"""Watches a running trainer: its health, heartbeats, deadline, stalls, and inference engines that ended."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import BinaryIO

from ..archive import checkpoints, failures, job_warnings, metrics
from ..archive.archive import Archive, StewardHeartbeat
from ..archive.failures import Failure, FailureKind
from ..archive.job_warnings import JOB_WIDE_KINDS, MAX_WARNINGS, JobWarning, MetricsSummary, Settings, WarningInputs
from ..archive.plan import VAL_ONLY, Plan
from ..archive.program import Runner
from ..archive.status import Phase
from ..evidence import hardware
from ..evidence.evidence import Moment
from ..io.hydra import is_true
from ..io.reading import UnreadableError
from ..ray import departures
from .log import LogFollower, LogScan, expected_steps

# The health of a running attempt: its phase before the first step, and its warnings, which go into the status.
#
# It reads what was appended to log and metrics since the last look, and never raises: it must not end the watch.

# The maximum size read of log and metrics at each look, and at the end.
MAX_LOOK_BYTES, MAX_END_BYTES = 16 << 20, 512 << 20
PIECE_BYTES = 1 << 20
# The interval for writing new numbers of earlier warnings; new warnings are written at once.
WRITE_INTERVAL_SECONDS = 30.0
# The interval between checks of the nodes' measurements.
NODE_CHECK_INTERVAL_SECONDS = 300.0
# The maximum delay of a job's end for reading the rest.
END_TIMEOUT_SECONDS = 5.0


class Health:
    """The health of one attempt. `look` and `finish` may be called by different threads."""

    def __init__(self, archive: Archive, overrides: tuple[str, ...], attempt: int) -> None:
        self.archive = archive
        self.attempt = attempt
        self.settings = Settings.of(overrides)
        self.log = LogFollower(archive)
        self.scan = LogScan()
        self.metrics = MetricsSummary()
        self.metrics_name = f"logs/{archive.metrics_file(attempt).name}"
        self.metrics_file: BinaryIO | None = None
        self.lock = threading.Lock()
        # The stored warnings, and those of earlier attempts that stay valid.
        self.warnings: tuple[JobWarning, ...] = ()
        self.earlier: tuple[JobWarning, ...] = ()
        self.written_at = 0.0
        self.finished = False
        # The warnings about the job's nodes, and the time of their last check.
        self.of_nodes: tuple[JobWarning, ...] = ()
        self.judged_at = 0.0
        # The step of the last checkpoint, and its size.
        self.measured = (0, 0)
        # The phase of the start, and since when.
        self.timed: tuple[Phase | None, float] = (None, 0.0)
        with contextlib.suppress(UnreadableError):
            self.warnings = archive.read_status().warnings
        if attempt > 1:
            self.earlier = tuple(warning for warning in self.warnings if warning.kind in JOB_WIDE_KINDS)

    @property
    def phase(self) -> Phase | None:
        """The phase before the trainer's first step; None if unknown, or after that step."""
        return None if self.metrics.steps else self.scan.phase

    def look(self, now: float) -> None:
        """Read what is new, and record new warnings."""
        # No content of log and metrics may end the watch, or keep the launcher from recording the end.
        with self.lock, contextlib.suppress(Exception):
            if not self.finished:
                self.read(MAX_LOOK_BYTES)
                self.time_phases(now)
                self.record(now, over=False)

    def time_phases(self, now: float) -> None:
        """Record how long a phase of the start took, when it is over."""
        phase, (before, began) = self.phase, self.timed
        if phase == before:
            return
        self.timed = (phase, now)
        # A later attempt may have begun while this launcher still runs.
        if before and (status := self.archive.status_json()).get("attempt", 1) == self.attempt:
            phases = status.get("phases") or {}
            self.archive.write_json("status.json", status | {"phases": phases | {before: round(now - began, 1)}})

    def finish(self, over: bool) -> None:
        """Read the rest, and record the warnings for the last time.

        over: whether the trainer ended without an error.
        """
        with self.lock, contextlib.suppress(Exception):
            self.finished = True
            until = time.monotonic() + END_TIMEOUT_SECONDS
            left = MAX_END_BYTES
            while left > 0 and time.monotonic() < until and self.read(MAX_LOOK_BYTES):
                left -= MAX_LOOK_BYTES
            self.scan.finish()
            self.written_at = 0.0
            self.record(time.time(), over)

    def read(self, size: int) -> bool:
        return self.read_log(size) + self.read_metrics(size) > 0

    def read_log(self, size: int) -> int:
        done = 0
        with contextlib.suppress(FileNotFoundError, UnreadableError, OSError):
            while done < size and (data := self.log.read(PIECE_BYTES)):
                done += len(data)
                self.scan.feed(data)
        return done

    def read_metrics(self, size: int) -> int:
        """Whole lines only: the trainer may be writing the last one."""
        done = 0
        with contextlib.suppress(FileNotFoundError, UnreadableError, OSError):
            if self.metrics_file is None:
                self.metrics_file = self.archive.open(self.metrics_name)
            while done < size:
                begin = self.metrics_file.tell()
                line = self.metrics_file.readline(metrics.MAX_LINE_BYTES)
                if not line.endswith(b"\n") and len(line) < metrics.MAX_LINE_BYTES:
                    self.metrics_file.seek(begin)
                    break
                done += len(line)
                step = metrics.step_of(line)
                if step:
                    self.metrics.add(step)
        return done

    def last_size(self, saved: Sequence[int]) -> int:
        """The size of the last checkpoint that verl has finished, in bytes; 0 without one."""
        directory = self.archive.path / "checkpoints"
        if (step := checkpoints.last_saved_step(directory)) in saved and step != self.measured[0]:
            self.measured = step, checkpoints.size(directory / f"global_step_{step}")
        return self.measured[1]

    def free_bytes(self) -> int:
        file_system = os.statvfs(self.archive.path)
        # Some file systems count no blocks.
        return file_system.f_bavail * file_system.f_frsize if file_system.f_blocks else sys.maxsize

    def has_space(self) -> bool:
        """Whether another checkpoint would fit. A file system that does not answer is not known to be full."""
        with contextlib.suppress(OSError):
            return 0 < self.measured[1] <= self.free_bytes()
        return True

    def warnings_of_nodes(self, now: float) -> tuple[JobWarning, ...]:
        if now >= self.judged_at + NODE_CHECK_INTERVAL_SECONDS:
            self.judged_at = now
            # Invalid numbers that a job has written must not hide its other warnings.
            with contextlib.suppress(Exception):
                self.of_nodes = tuple(hardware.usage_warnings(hardware.read(self.archive, hardware.TAIL_BYTES)))
        return self.of_nodes

    def record(self, now: float, over: bool) -> None:
        saved: list[int] = []
        with contextlib.suppress(UnreadableError):
            saved = self.archive.checkpoints()
        size, free = self.last_size(saved), self.free_bytes()
        inputs = WarningInputs(self.settings, self.metrics, self.scan.summary, saved, over, size, free)
        current = (*job_warnings.all_warnings(inputs), *self.warnings_of_nodes(now))
        kinds = {warning.kind for warning in current}
        warnings = (*current, *(warning for warning in self.earlier if warning.kind not in kinds))
        old_kinds = {warning.kind for warning in self.warnings}
        is_new = old_kinds != {warning.kind for warning in warnings}
        if warnings != self.warnings and (is_new or now - self.written_at >= WRITE_INTERVAL_SECONDS):
            with contextlib.suppress(OSError):
                # Only the launcher writes the status while its attempt runs.
                if status := self.archive.status_json():
                    self.archive.write_json("status.json", status | {"warnings": warnings[:MAX_WARNINGS]})
                for warning in warnings:
                    if warning.kind not in old_kinds:
                        self.archive.event("WARNING", about=warning.kind, text=warning.text)
                self.warnings, self.written_at = warnings, now


# The watchdog of a running trainer: its heartbeats, its deadline, stalls, and inference engines that ended.

# The maximum delay of a trainer's end for collecting evidence.
EVIDENCE_TIMEOUT_SECONDS = 150.0
# The time in which a trainer whose inference engine has ended may fail by itself or go on.
ENGINE_GRACE_SECONDS = 30.0
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
        # An ended engine with the time and the size of the metrics then, and ended engines that the trainer survived.
        self.engine: tuple[str, float, int] | None = None
        self.survived: set[str] = set()

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
        problem = self.deadline_problem(now)
        if not problem:
            return self.check_engines(now) or self.check_for_stall(now, last_output)
        # Collected once: a trainer that ends slowly is checked again.
        if not self.overdue:
            self.overdue = True
            self.collect(Moment.DEADLINE)
        return failures.failure(FailureKind.DEADLINE, problem)

    def deadline_problem(self, now: float) -> str:
        deadline = self.plan.deadline
        submitted_at = self.archive.read_status().submitted_at
        if deadline and submitted_at is not None and now > submitted_at + deadline:
            return f"the job exceeded its deadline of {deadline:g} s"
        return departures.ending_problem(now)

    def collect(self, moment: Moment) -> None:
        self.runner.run("evidence", moment, seconds=EVIDENCE_TIMEOUT_SECONDS)

    def read_metrics(self, now: float) -> None:
        if not self.metrics.exists() or (size := self.metrics.stat().st_size) == self.size:
            return
        self.size, self.last_metric = size, now
        steps = metrics.last_steps(self.metrics, metrics.MAX_LINE_BYTES)
        if steps:
            self.step = max(step.step for step in steps)
            self.first = self.first or (self.step, now)

    def steward(self) -> StewardHeartbeat:
        return self.archive.steward_heartbeat() or StewardHeartbeat()

    def check_engines(self, now: float) -> Failure | None:
        """The loss of an inference engine, for which verl usually waits forever."""
        problem = self.health.scan.lost_engine or self.steward().engine
        if self.engine and (not problem or self.size != self.engine[2]):
            self.survived.add(self.engine[0])
            self.engine, self.health.scan.lost_engine = None, ""
            self.archive.event("WENT_ON")
            return None
        is_over = self.total is not None and self.step >= self.total
        if not problem or problem in self.survived or is_over:
            return None
        if not self.engine:
            self.engine = problem, now, self.size
            self.archive.event("ENGINE_LOST", reason=problem)
        _first, since, size = self.engine
        if now - since < ENGINE_GRACE_SECONDS:
            return None
        self.collect(Moment.STALL)
        self.read_metrics(now)
        if self.size != size:
            return None
        # Collected once, see above.
        self.survived.add(problem)
        reason = f"an inference engine ended, and the trainer waited {now - since:.0f} s for it: {problem}"
        return failures.failure(FailureKind.ENGINE_LOST, reason)

    def stall(self, now: float, last_output: float) -> str:
        """Why the trainer counts as stalled, or "". Before its first step, it may be silent for as long as it takes."""
        if self.plan.command:
            since = now - max(self.began or now, last_output)
            limit, reason = self.plan.stall_timeout, f"no log line for {since:.0f} s"
            if self.plan.ready_port:
                # A server may be silent for as long as it answers.
                address = self.archive.read_status().address
                since = 0 if address else now - (self.began or now)
                limit, reason = self.plan.start_timeout, f"no answer on port {self.plan.ready_port} for {since:.0f} s"
        elif self.first is None:
            # A job that only validates has no steps, but prints something now and then.
            heard = last_output if is_true(self.plan.overrides, VAL_ONLY) else 0.0
            since = now - max(self.began or now, heard)
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
            self.record_recovery()
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
            self.record_recovery()
            return None
        return failures.failure(FailureKind.STALLED, reason)

    def record_recovery(self) -> None:
        if self.stalled:
            self.archive.event("WENT_ON")
        self.stalled = ""
