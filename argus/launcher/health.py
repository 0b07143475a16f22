# SPDX-License-Identifier: Apache-2.0
"""Follows the health of a running attempt: its phase before the first step, and the job's warnings, for its status.

It never raises: neither a full shared root nor what a job wrote in log and metrics may end the launcher's watch.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import BinaryIO

from ..archive import checkpoints, job_warnings, metrics
from ..archive.archive import Archive
from ..archive.job_warnings import JOB_WIDE_KINDS, MAX_WARNINGS, JobWarning
from ..archive.status import Phase
from ..archive.warning_inputs import MetricsSummary, Settings, WarningInputs
from ..evidence import hardware
from ..io.reading import UnreadableError
from .log_scan import LogFollower, LogScan

# The most bytes read of log and metrics at each look, and at the end.
MAX_LOOK_BYTES, MAX_END_BYTES = 16 << 20, 512 << 20
PIECE_BYTES = 1 << 20
# The interval for writing new numbers of earlier warnings. New warnings are written at once.
WRITE_INTERVAL_SECONDS = 30.0
# The interval between checks of the nodes' measurements.
NODE_CHECK_INTERVAL_SECONDS = 300.0
# How long reading the rest may delay a job's end.
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
        # The warnings in the status, and those of them that are of earlier attempts and stay valid.
        self.warnings: tuple[JobWarning, ...] = ()
        self.warnings_written_at = 0.0
        self.earlier_warnings: tuple[JobWarning, ...] = ()
        self.node_warnings: tuple[JobWarning, ...] = ()
        self.nodes_checked_at = 0.0
        self.last_checkpoint_step, self.last_checkpoint_bytes = 0, 0
        # The phase at the last look, and since when.
        self.timed_phase: Phase | None = None
        self.timed_phase_began = 0.0
        self.is_finished = False
        with contextlib.suppress(UnreadableError):
            self.warnings = archive.read_status().warnings
        if attempt > 1:
            self.earlier_warnings = tuple(warning for warning in self.warnings if warning.kind in JOB_WIDE_KINDS)

    @property
    def phase(self) -> Phase | None:
        """The phase before the trainer's first step; None if unknown, or after that step."""
        return None if self.metrics.step_count else self.scan.phase

    def look(self, now: float) -> None:
        """Read what is new, and record new warnings."""
        with self.lock, contextlib.suppress(Exception):
            if not self.is_finished:
                self.read(MAX_LOOK_BYTES)
                self.record_phase_seconds(now)
                self.record_warnings(now, has_succeeded=False)

    def finish(self, has_succeeded: bool) -> None:
        """Read the rest, and record the warnings for the last time. has_succeeded: whether the trainer did."""
        with self.lock, contextlib.suppress(Exception):
            self.is_finished = True
            until = time.monotonic() + END_TIMEOUT_SECONDS
            left = MAX_END_BYTES
            while left > 0 and time.monotonic() < until and self.read(MAX_LOOK_BYTES):
                left -= MAX_LOOK_BYTES
            self.scan.finish()
            self.warnings_written_at = 0.0
            self.record_warnings(time.time(), has_succeeded)

    def read(self, max_bytes: int) -> bool:
        return self.read_log(max_bytes) + self.read_metrics(max_bytes) > 0

    def read_log(self, max_bytes: int) -> int:
        count = 0
        with contextlib.suppress(FileNotFoundError, UnreadableError, OSError):
            while count < max_bytes and (data := self.log.read(PIECE_BYTES)):
                count += len(data)
                self.scan.feed(data)
        return count

    def read_metrics(self, max_bytes: int) -> int:
        """Read whole lines only: the trainer may be writing the last one."""
        count = 0
        with contextlib.suppress(FileNotFoundError, UnreadableError, OSError):
            if self.metrics_file is None:
                self.metrics_file = self.archive.open(self.metrics_name)
            while count < max_bytes:
                begin = self.metrics_file.tell()
                line = self.metrics_file.readline(metrics.MAX_LINE_BYTES)
                if not line.endswith(b"\n") and len(line) < metrics.MAX_LINE_BYTES:
                    self.metrics_file.seek(begin)
                    break
                count += len(line)
                step = metrics.parse_step(line)
                if step:
                    self.metrics.add(step)
        return count

    def record_phase_seconds(self, now: float) -> None:
        """Record how long a phase took, when it is over."""
        if self.phase == self.timed_phase:
            return
        ended, began = self.timed_phase, self.timed_phase_began
        self.timed_phase, self.timed_phase_began = self.phase, now
        # A later attempt may have begun while this launcher still runs.
        if ended and (status := self.archive.status_json()).get("attempt", 1) == self.attempt:
            phases = status.get("phases") or {}
            self.archive.write_json("status.json", status | {"phases": phases | {ended: round(now - began, 1)}})

    def record_warnings(self, now: float, has_succeeded: bool) -> None:
        saved_steps: list[int] = []
        with contextlib.suppress(UnreadableError):
            saved_steps = self.archive.checkpoints()
        self.measure_checkpoint(saved_steps)
        sizes = (self.last_checkpoint_bytes, self.free_bytes())
        inputs = WarningInputs(self.settings, self.metrics, self.scan.summary, saved_steps, has_succeeded, *sizes)
        self.check_nodes(now)
        current = (*job_warnings.all_warnings(inputs), *self.node_warnings)
        kinds = {warning.kind for warning in current}
        warnings = (*current, *(warning for warning in self.earlier_warnings if warning.kind not in kinds))
        old_kinds = {warning.kind for warning in self.warnings}
        is_new = old_kinds != {warning.kind for warning in warnings}
        if warnings != self.warnings and (is_new or now - self.warnings_written_at >= WRITE_INTERVAL_SECONDS):
            with contextlib.suppress(OSError):
                # Only the launcher writes the status while its attempt runs.
                if status := self.archive.status_json():
                    self.archive.write_json("status.json", status | {"warnings": warnings[:MAX_WARNINGS]})
                for warning in warnings:
                    if warning.kind not in old_kinds:
                        self.archive.event("WARNING", about=warning.kind, text=warning.text)
                self.warnings, self.warnings_written_at = warnings, now

    def check_nodes(self, now: float) -> None:
        if now >= self.nodes_checked_at + NODE_CHECK_INTERVAL_SECONDS:
            self.nodes_checked_at = now
            # Invalid numbers that a job has written must not hide its other warnings.
            with contextlib.suppress(Exception):
                self.node_warnings = tuple(hardware.usage_warnings(hardware.read(self.archive, hardware.TAIL_BYTES)))

    def measure_checkpoint(self, saved_steps: Sequence[int]) -> None:
        """Measure the last checkpoint that verl has finished, if it is a new one."""
        directory = self.archive.path / "checkpoints"
        step = checkpoints.last_saved_step(directory)
        if step in saved_steps and step != self.last_checkpoint_step:
            self.last_checkpoint_step = step
            self.last_checkpoint_bytes = checkpoints.directory_bytes(directory / f"global_step_{step}")

    def free_bytes(self) -> int:
        file_system = os.statvfs(self.archive.path)
        # Some file systems count no blocks.
        return file_system.f_bavail * file_system.f_frsize if file_system.f_blocks else sys.maxsize

    def has_space_for_checkpoint(self) -> bool:
        """Whether another checkpoint would fit. A file system that does not answer is not known to be full."""
        with contextlib.suppress(OSError):
            return 0 < self.last_checkpoint_bytes <= self.free_bytes()
        return True
