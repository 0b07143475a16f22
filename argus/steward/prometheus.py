# SPDX-License-Identifier: Apache-2.0
"""What Prometheus reads from the steward: the metrics of jobs, and the addresses of their inference servers."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from ..archive.archive import ENGINE_ADDRESSES, Archive
from ..archive.status import ENDED, JobState
from ..io.reading import UnreadableError, read_bytes

# The time that an ended job stays in the metrics, for alerts.
ENDED_JOB_SECONDS = 3600.0
# The maximum length of a label that a job can write.
MAX_LABEL_CHARS = 64
# The metrics of a job besides its state, with their descriptions.
METRIC_TEXTS = {
    "step": "the last step that was done",
    "steps": "all steps of the job",
    "attempt": "the number of the attempt",
    "silent_seconds": "since the last line of metrics, of a job that runs",
}
# The lines of the file of addresses that verl writes.
TARGET_LINE = re.compile(rb"^ *- '?([0-9.]+:[0-9]+|\[[0-9a-f:]+\]:[0-9]+)'?$", re.MULTILINE)
MAX_TARGETS_BYTES = 1 << 16


class JobCollector:
    """Collects the metrics of jobs, as prometheus_client asks for them at each request.

    archives: returns those of the jobs that this steward has looked after.
    """

    def __init__(self, archives: Callable[[], Iterable[Archive]]) -> None:
        self.archives = archives
        # The ids of jobs that ended long ago and are not read again: an old cluster has thousands.
        self.ended_ids: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        # Not "job", which is a label of Prometheus itself.
        labels = ["submission_id", "workload", "state"]
        state = GaugeMetricFamily("argus_job_state", "1 for the state of a job", labels=labels)
        families = {
            name: GaugeMetricFamily(f"argus_job_{name}", text, labels=labels[:1]) for name, text in METRIC_TEXTS.items()
        }
        free = GaugeMetricFamily("argus_shared_root_free_bytes", "free space", labels=["shared_root"])
        archives = [*self.archives()]
        for root in {archive.jobs.parent for archive in archives}:
            with contextlib.suppress(OSError):
                space = os.statvfs(root)
                free.add_metric([str(root)], space.f_bavail * space.f_frsize)
        for archive in archives:
            # A job may have put anything into its archive.
            with contextlib.suppress(UnreadableError, OSError):
                if archive.submission_id not in self.ended_ids:
                    self.add_job(archive, state, families)
        yield from (state, *families.values(), free)

    def add_job(self, archive: Archive, state: GaugeMetricFamily, families: dict[str, GaugeMetricFamily]) -> None:
        """Add the metrics of one job. Raises UnreadableError and OSError."""
        status, beat, now = archive.read_status(), archive.heartbeat(), time.time()
        # ended_at alone does not tell: a retried job has one of its attempt before.
        if status.state is None or (status.state in ENDED and now - (status.ended_at or 0) > ENDED_JOB_SECONDS):
            self.ended_ids |= {archive.submission_id} if status.state else set()
            return
        state.add_metric([archive.submission_id, status.workload[:MAX_LABEL_CHARS], str(status.state)], 1)
        values: dict[str, float | None] = {"step": beat.step, "steps": beat.total_steps, "attempt": status.attempt}
        if status.state == JobState.RUNNING and beat.step:
            values["silent_seconds"] = now - os.lstat(archive.metrics_file(status.attempt)).st_mtime
        for name, value in values.items():
            if value is not None:
                families[name].add_metric([archive.submission_id], value)


def engine_targets(archives: Iterable[Archive]) -> Iterator[dict[str, object]]:
    """The addresses of each running job's inference servers, for the HTTP service discovery of Prometheus."""
    for archive in archives:
        # A job may have put anything into its archive.
        with contextlib.suppress(UnreadableError, OSError):
            if archive.read_status().state == JobState.RUNNING:
                lines = read_bytes(archive.path / ENGINE_ADDRESSES, MAX_TARGETS_BYTES)
                servers = [server.decode() for server in TARGET_LINE.findall(lines)]
                yield {"targets": servers, "labels": {"submission_id": archive.submission_id}}
