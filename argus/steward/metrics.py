# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Prometheus reads about jobs, on a port of the head beside those of Ray's metrics."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Metric, start_http_server
from prometheus_client.core import GaugeMetricFamily

from ..launcher.archive import Archive
from ..launcher.reading import UnreadableError

# In the environment of a head, a port of its plan; that of the steward is so many further.
PORT_OF_DASHBOARD, FURTHER = "DASHBOARD_METRIC_PORT", 3
# For so long after its end, a job is there for alerts.
ENDED_SECONDS = 3600.0


class Jobs:
    """What Prometheus's library asks. archives: of the jobs that this steward has looked after.

    A shared root that hangs holds up one request only.
    """

    def __init__(self, archives: Callable[[], Iterable[Archive]]) -> None:
        self.archives = archives
        self.busy = threading.Lock()
        # The ids of jobs that ended long ago: an old cluster has thousands.
        self.over: set[str] = set()

    def collect(self) -> Iterator[Metric]:
        if not self.busy.acquire(blocking=False):
            return
        try:
            current = [archive for archive in self.archives() if archive.submission_id not in self.over]
            yield from self.metrics(current, time.time())
        finally:
            self.busy.release()

    def metrics(self, archives: Iterable[Archive], now: float) -> Iterator[Metric]:
        # "job" is a label of Prometheus itself.
        labels = ["submission_id", "workload", "state"]
        state = GaugeMetricFamily("argus_job_state", "1 for the state of a job", labels=labels)
        named = {
            name: GaugeMetricFamily(f"argus_job_{name}", text, labels=labels[:1])
            for name, text in (
                ("step", "the last step that was done"),
                ("steps", "all steps of the job"),
                ("attempt", "the number of the attempt"),
                ("silent_seconds", "since the last line of metrics, of a job that runs"),
            )
        }
        free = GaugeMetricFamily("argus_shared_root_free_bytes", "free space", labels=["shared_root"])
        for root in {archive.jobs.parent for archive in archives}:
            with contextlib.suppress(OSError):
                space = os.statvfs(root)
                free.add_metric([str(root)], space.f_bavail * space.f_frsize)
        for archive in archives:
            # A job may have put anything there.
            with contextlib.suppress(UnreadableError, OSError):
                status, beat, job = archive.read_status(), archive.heartbeat(), [archive.submission_id]
                if status.ended_at and now - status.ended_at > ENDED_SECONDS:
                    self.over.add(archive.submission_id)
                    continue
                state.add_metric([*job, status.workload, str(status.state)], 1)
                values: dict[str, float | None] = {
                    "step": beat.step,
                    "steps": beat.total_steps,
                    "attempt": status.attempt,
                }
                if status.state == "RUNNING" and beat.step:
                    values["silent_seconds"] = now - os.lstat(archive.metrics_file(status.attempt)).st_mtime
                for name, value in values.items():
                    if value is not None:
                        named[name].add_metric(job, value)
        yield from (state, *named.values(), free)


def serve(archives: Callable[[], Iterable[Archive]]) -> None:
    """Answer Prometheus in threads of this process. Without the port, jobs go on."""
    registry = CollectorRegistry()
    registry.register(Jobs(archives))
    try:
        start_http_server(int(os.environ[PORT_OF_DASHBOARD]) + FURTHER, registry=registry)
    except (KeyError, ValueError, OverflowError, OSError) as error:
        print(f"Prometheus gets no metrics of jobs: {error!r}", file=sys.stderr, flush=True)
