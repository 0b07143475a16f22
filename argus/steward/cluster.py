# SPDX-License-Identifier: Apache-2.0
"""argus steward: looks after all jobs of a head. The head's start command runs it beside Ray, and restarts it.

Each job has a thread (`job.py`), so that a hanging shared root or call of Ray delays that job only. All state is in
the registry, in archives and in Ray, so the process can be killed at any moment. When another version of the program
becomes current, the process ends between two steps, and the head starts the new version, which goes on.
"""

from __future__ import annotations

import contextlib
import functools
import http
import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.program import CURRENT_LINK, Program, spawn, wait
from ..archive.status import JobState
from ..common.identity import AGENT_API
from ..common.shared_root import archive_path
from ..evidence import node
from ..evidence.hardware import SAMPLE_INTERVAL_SECONDS
from ..io.reading import UnreadableError
from ..jobs.registry import Registry
from ..queue import attempts, room
from ..queue.queue import Queue
from ..ray.admission import admission_lock, steward_lock
from ..ray.api import RayApiError, RayHead, local_head
from .job import STEP_INTERVAL_SECONDS, Steward
from .observer import nodes_summary

# The interval of reading the registry: a submitted job has its thread this soon.
POLL_INTERVAL_SECONDS = 0.5
# The pause after an error, such as an archive that cannot be read.
RETRY_SECONDS = 10.0
# The time that running steps get to end before a new version takes over.
HANDOVER_TIMEOUT_SECONDS = 30.0
# The interval between writing the pages of all jobs, and the maximum share of the time that writing may take.
PAGES_INTERVAL_SECONDS, MAX_PAGES_SHARE = 60.0, 0.1
# The interval of looking for jobs that have ended, whose last page is written at once.
LAST_PAGES_INTERVAL_SECONDS = 2.0
# The limit for writing all pages: after it, the shared root counts as hanging.
PAGES_TIMEOUT_SECONDS = 1800.0
# The interval of calling Ray's job manager until it answers.
MANAGER_CALL_INTERVAL_SECONDS = 2.0

# Looks after one job until it has ended or the event is set.
LookAfter = Callable[[Registry, str, threading.Event], None]
Value = TypeVar("Value")


class CachedCall(Generic[Value]):
    """A call of Ray whose answer or error all jobs share for some seconds: dozens of callers would overload Ray."""

    def __init__(self, call: Callable[[RayHead, float], Value], seconds: float) -> None:
        self.call, self.seconds = call, seconds
        self.lock = threading.Lock()
        self.valid_until = 0.0
        self.answer: Value | RayApiError = RayApiError("")

    def __call__(self, head: RayHead, now: float) -> Value:
        with self.lock:
            if time.monotonic() > self.valid_until:
                try:
                    self.answer = self.call(head, now)
                except (RayApiError, KeyError, TypeError) as error:
                    self.answer = RayApiError(str(error))
                self.valid_until = time.monotonic() + self.seconds
            if isinstance(self.answer, RayApiError):
                raise self.answer
            return self.answer


def look_after(registry: Registry, submission_id: str, leaving: threading.Event, **shared: Any) -> None:
    """Look after a job until its archive is closed, and retry after errors. shared: the arguments for all stewards."""
    problem = ""
    while not leaving.is_set():
        try:
            job = registry.read(submission_id)
            if job is None:
                return
            archive = Archive(archive_path(job.shared_root, submission_id))
            if archive.needs_steward():
                wait_for_status(archive)
                Steward(archive, leaving=leaving.is_set, notify=job.notify, limits=job.limits, **shared).run()
            return
        except Exception as error:
            # A job can put anything into its archive, and a shared root that hangs may come back.
            if str(error) != problem:
                problem = str(error)
                print(f"{submission_id}: {problem}; tried again every {RETRY_SECONDS:g} s", file=sys.stderr, flush=True)
            leaving.wait(RETRY_SECONDS)


def wait_for_status(archive: Archive, admission: Callable[[], AbstractContextManager[None]] = admission_lock) -> None:
    """Wait for the status of a job that is being submitted; without one, its submission was interrupted."""
    if not archive.has_status():
        with admission():
            if not archive.has_status():
                # The archive may have secrets, which the steward removes when it closes the archive.
                interrupted = failures.failure(FailureKind.UNKNOWN, "its submission was interrupted")
                attempts.record_end(archive, JobState.FAILED, interrupted)


def update_pages(job_ids: Callable[[], Iterable[str]], leaving: threading.Event) -> None:
    """Have the pages of jobs written until the event is set. job_ids: returns those that are looked after now."""
    earlier: set[str] = set()
    due = time.monotonic() + PAGES_INTERVAL_SECONDS
    while not leaving.wait(LAST_PAGES_INTERVAL_SECONDS):
        current, begin = set(job_ids()), time.monotonic()
        outdated = current | earlier if begin >= due else earlier - current
        earlier = current
        if outdated:
            write_pages(sorted(outdated))
        if begin >= due:
            due = begin + max(PAGES_INTERVAL_SECONDS, (time.monotonic() - begin) / MAX_PAGES_SHARE)


def write_pages(job_ids: Sequence[str]) -> None:
    """Write pages in a process of its own, which may take more time and memory than the steward."""
    try:
        command = [sys.executable, Program.of_this_process().path, "pages", *job_ids]
        wait(spawn(command, sys.stderr.fileno()), PAGES_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"The pages of jobs were not written: {error}", file=sys.stderr, flush=True)


def recover_jobs(leaving: threading.Event) -> None:
    """Make Ray watch the jobs of an earlier start of the head.

    Ray's job manager does so, which Ray creates at the first request. Without it, Ray lists a job whose driver died
    while the head was gone as RUNNING for ever.
    """
    address = os.environ.get(AGENT_API, "")
    while address and not leaving.is_set():
        try:
            local_head(address).get("/api/job_agent/jobs/none/logs")
        except RayApiError as error:
            # The manager answers: it has no job "none".
            if error.status == http.HTTPStatus.NOT_FOUND:
                return
        leaving.wait(MANAGER_CALL_INTERVAL_SECONDS)


class ClusterSteward:
    """Looks after all jobs of a registry until `is_current` returns False."""

    def __init__(self, registry: Registry, is_current: Callable[[], bool], job: LookAfter | None = None) -> None:
        self.registry = registry
        self.is_current = is_current
        read_room = CachedCall(room.read_room, STEP_INTERVAL_SECONDS)
        summary = CachedCall(nodes_summary, SAMPLE_INTERVAL_SECONDS / 2)
        self.look_after = job or functools.partial(
            look_after, queue=Queue(registry.path), read_room=read_room, summary=summary
        )
        self.leaving = threading.Event()
        # The threads of all jobs that this process has seen; a job that has ended needs no new one.
        self.threads: dict[str, threading.Thread] = {}
        # The archives of these jobs by id, each read from the registry once.
        self.paths: dict[str, str] = {}

    def run(self) -> None:
        while self.is_current():
            self.start_missing()
            self.leaving.wait(POLL_INTERVAL_SECONDS)
        self.leaving.set()
        deadline = time.monotonic() + HANDOVER_TIMEOUT_SECONDS
        for thread in self.threads.values():
            thread.join(max(0.0, deadline - time.monotonic()))

    def job_ids(self) -> list[str]:
        """The ids of the jobs that are looked after now."""
        return [name for name, thread in list(self.threads.items()) if thread.is_alive()]

    def archives(self) -> list[Archive]:
        """The archives of all jobs that this process has seen."""
        for name in self.threads.keys() - self.paths.keys():
            with contextlib.suppress(UnreadableError):
                if job := self.registry.read(name):
                    self.paths[name] = archive_path(job.shared_root, name)
        return [*map(Archive, self.paths.values())]

    def start_missing(self) -> None:
        """Start a thread for each registered job that has none."""
        registered = self.registry.ids()
        # The id of a job whose archive was removed may be used for another job.
        for name in self.threads.keys() - set(registered):
            if not self.threads[name].is_alive():
                del self.threads[name]
        for submission_id in registered:
            if submission_id not in self.threads:
                arguments = (self.registry, submission_id, self.leaving)
                thread = threading.Thread(target=self.look_after, args=arguments, name=submission_id, daemon=True)
                self.threads[submission_id] = thread
                thread.start()


def main() -> None:
    """Look after the jobs of this head. A second process waits until the first one has ended."""
    # The mask for everything that this process writes into archives.
    os.umask(node.UMASK)
    program = Program.of_this_process()
    current = Path(program.path).with_name(CURRENT_LINK)

    def is_current() -> bool:
        # The link is missing for a moment while it is replaced, and in some installations always.
        return not current.exists() or os.path.realpath(current) == program.path

    registry = Registry()
    with steward_lock(registry.path):
        steward = ClusterSteward(registry, is_current)
        for work in (recover_jobs, functools.partial(update_pages, steward.job_ids)):
            threading.Thread(target=work, args=(steward.leaving,), daemon=True).start()
        # An image without prometheus_client has no server, but its jobs are looked after.
        with contextlib.suppress(ImportError):
            importlib.import_module(f"{__package__}.web").serve(steward.archives)
        steward.run()
        # Not sys.exit: the threads that hang would keep the process.
        os._exit(0)
