# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus reads about jobs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from ..archive.archive import Archive
from ..archive.status import ENDED, JobState
from ..io.reading import UnreadableError

# For so long after its end, a job is there for alerts.
ENDED_SECONDS = 3600.0
# Of a value that a job can write.
LABEL_CHARACTERS = 64
VALUES = {
    "step": "the last step that was done",
    "steps": "all steps of the job",
    "attempt": "the number of the attempt",
    "silent_seconds": "since the last line of metrics, of a job that runs",
}


class Jobs:
    """What Prometheus's library asks. archives: of the jobs that this steward has looked after."""

    def __init__(self, archives: Callable[[], Iterable[Archive]]) -> None:
        self.archives = archives
        # The ids of jobs that ended long ago: an old cluster has thousands.
        self.over: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        # "job" is a label of Prometheus itself.
        labels = ["submission_id", "workload", "state"]
        state = GaugeMetricFamily("argus_job_state", "1 for the state of a job", labels=labels)
        families = {
            name: GaugeMetricFamily(f"argus_job_{name}", text, labels=labels[:1]) for name, text in VALUES.items()
        }
        free = GaugeMetricFamily("argus_shared_root_free_bytes", "free space", labels=["shared_root"])
        archives = [*self.archives()]
        for root in {archive.jobs.parent for archive in archives}:
            with contextlib.suppress(OSError):
                space = os.statvfs(root)
                free.add_metric([str(root)], space.f_bavail * space.f_frsize)
        for archive in archives:
            # A job may have put anything there.
            with contextlib.suppress(UnreadableError, OSError):
                if archive.submission_id not in self.over:
                    self.add(archive, state, families)
        yield from (state, *families.values(), free)

    def add(self, archive: Archive, state: GaugeMetricFamily, families: dict[str, GaugeMetricFamily]) -> None:
        """Add a job. Raises UnreadableError and OSError."""
        status, beat, now = archive.read_status(), archive.heartbeat(), time.time()
        # One that is tried again has ended before.
        if status.state is None or (status.state in ENDED and now - (status.ended_at or 0) > ENDED_SECONDS):
            self.over |= {archive.submission_id} if status.state else set()
            return
        state.add_metric([archive.submission_id, status.workload[:LABEL_CHARACTERS], str(status.state)], 1)
        values: dict[str, float | None] = {"step": beat.step, "steps": beat.total_steps, "attempt": status.attempt}
        if status.state == JobState.RUNNING and beat.step:
            values["silent_seconds"] = now - os.lstat(archive.metrics_file(status.attempt)).st_mtime
        for name, value in values.items():
            if value is not None:
                families[name].add_metric([archive.submission_id], value)
