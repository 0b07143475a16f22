# SPDX-License-Identifier: Apache-2.0
"""The steward's HTTP server, next to the port of Ray's metrics: metrics of jobs for Prometheus, and pages of jobs."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http.server import HTTPServer
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric, MetricsHandler
from prometheus_client.core import GaugeMetricFamily

from ..archive.archive import ENGINE_ADDRESSES, SUBMISSION_ID, Archive
from ..archive.status import ENDED, JobState
from ..io.reading import UnreadableError, read_bytes
from ..jobs.bundle import INDEX, PAGE

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
    """Collects the metrics of jobs at each request. archives: returns those that this steward has looked after."""

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


# The variable with a port of Ray's dashboard, in the environment of a head. The steward's port is PORT_OFFSET higher.
DASHBOARD_PORT_VARIABLE, PORT_OFFSET = "DASHBOARD_METRIC_PORT", 3
TARGETS_PATH = "/engines"
TOKEN_PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
# The maximum number of concurrent requests, and of pages among them, because clients may be slow.
MAX_REQUESTS, MAX_PAGE_REQUESTS = 8, 4
# The time limits of each part of a request, of a request with its answer, and of the answer with a page.
PART_TIMEOUT_SECONDS, REQUEST_TIMEOUT_SECONDS, PAGE_TIMEOUT_SECONDS = 2.0, 5.0, 300.0
MAX_PAGE_BYTES, CHUNK_BYTES = 32 << 20, 1 << 16
# Jobs can write to archives, so their pages run sandboxed without an origin and without network access.
CONTENT_POLICY = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"


class Handler(MetricsHandler):
    """Answers Prometheus without a key, as Ray does. The paths of pages begin with a key."""

    # Returns the archives of the jobs that this steward has looked after.
    archives: Callable[[], Iterable[Archive]]
    # The key of the pages; without one, there are none.
    key = ""
    # http.server's limit for reading and writing.
    timeout = PART_TIMEOUT_SECONDS
    page_requests = threading.BoundedSemaphore(MAX_PAGE_REQUESTS)

    def setup(self) -> None:
        self.close_after(REQUEST_TIMEOUT_SECONDS)
        super().setup()

    def close_after(self, seconds: float) -> None:
        """Close the connection after that time, so that reading and writing fail."""
        self.deadline = threading.Timer(seconds, self.close)
        self.deadline.daemon = True
        self.deadline.start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.request.shutdown(socket.SHUT_RDWR)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        self.deadline.cancel()
        super().finish()

    def do_GET(self) -> None:  # noqa: N802 - the name of the library
        _root, key, *rest = f"{self.path}//".split("/")
        if self.path == TARGETS_PATH:
            self.send(json.dumps([*engine_targets(self.archives())]).encode(), "application/json")
        elif not self.key or not hmac.compare_digest(key.encode(), self.key.encode()):
            super().do_GET()
        elif not self.page_requests.acquire(blocking=False):
            self.send_error(503)
        else:
            try:
                self.send_page(self.read_page([*filter(None, rest)]))
            finally:
                self.page_requests.release()

    def send_page(self, content: bytes | None) -> None:
        if content is None:
            self.send_error(404)
        else:
            self.deadline.cancel()
            self.close_after(PAGE_TIMEOUT_SECONDS)
            self.send(content, "text/html")

    def send(self, content: bytes, kind: str) -> None:
        self.send_response(200)
        for name, value in (("Content-Type", kind), ("Content-Security-Policy", CONTENT_POLICY)):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        # In pieces: PART_TIMEOUT_SECONDS is the limit of each.
        for begin in range(0, len(content), CHUNK_BYTES):
            self.wfile.write(content[begin : begin + CHUNK_BYTES])

    def read_page(self, path: list[str]) -> bytes | None:
        """The page with the list of jobs, or the page of one job; None if there is none."""
        if path == [INDEX] or (path[1:] == [PAGE] and SUBMISSION_ID.fullmatch(path[0])):
            for jobs in {archive.jobs for archive in self.archives()}:
                with contextlib.suppress(OSError, ValueError, RuntimeError, UnreadableError):
                    file = jobs.resolve().joinpath(*path)
                    # A job may have put a link in place of its page.
                    if file.resolve() == file:
                        return read_bytes(file, MAX_PAGE_BYTES)
        return None


def pages_key(token: str) -> str:
    """The first part of the path of every page. pages.yml derives it from the cluster's token as well."""
    return hashlib.sha256(f"{token.strip()} pages".encode()).hexdigest()


def serve(archives: Callable[[], Iterable[Archive]]) -> None:
    """Start threads that answer requests, so that slow clients and a hanging shared root do not affect jobs."""
    registry = CollectorRegistry()
    registry.register(JobCollector(archives))
    token = ""
    with contextlib.suppress(OSError, ValueError):
        token = Path(os.environ.get(TOKEN_PATH_VARIABLE, "")).read_text("utf-8")
    attributes = {"registry": registry, "archives": staticmethod(archives), "key": pages_key(token) if token else ""}
    handler = type("OwnHandler", (Handler,), attributes)
    try:
        server = HTTPServer(("", int(os.environ[DASHBOARD_PORT_VARIABLE]) + PORT_OFFSET), handler)
    except (KeyError, ValueError, OverflowError, OSError) as error:
        print(f"Prometheus gets no metrics of jobs: {error!r}", file=sys.stderr, flush=True)
        return
    for _number in range(MAX_REQUESTS):
        threading.Thread(target=server.serve_forever, args=(None,), daemon=True).start()
