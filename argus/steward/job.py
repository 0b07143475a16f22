# SPDX-License-Identifier: Apache-2.0
"""The steward of one job: looks after the job from the creation of its archive to its end, in a thread of `cluster.py`.

In each step, `observer.py` observes the job, `decisions.py` decides what to do next, and the steward does it. The
steward outlives attempts, their drivers and the nodes on which they ran. It needs the standard library only: calls of
Ray's own client run in processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import traceback
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from types import ModuleType
from typing import Any

from ..archive.archive import STEWARD_HEARTBEAT, STEWARD_LOG, Archive, now
from ..archive.failures import Failure, FailureKind
from ..archive.program import Runner
from ..archive.status import WAITING, JobState, Status, ray_id
from ..common.identity import cluster_name, node_name
from ..evidence import evidence
from ..evidence.evidence import Moment
from ..jobs.drain import stop_new_work
from ..queue import attempts, room
from ..queue.demand import Limit, capacity_problem
from ..queue.queue import Queue
from ..ray import departures
from ..ray.admission import admission_lock, registry_path
from ..ray.api import RayApiError, RayHead, local_head
from ..ray.records import ALIVE, JobRecord
from .decisions import END_RECORD_GRACE_SECONDS, ActionKind, Observations, decide
from .notify import Notifier, notifications
from .observer import JobObserver, ReadRoom, nodes_summary

# The intervals of asking the head; the archive is read more often.
STEP_INTERVAL_SECONDS = 2.0
RUNNING_STEP_INTERVAL_SECONDS = 5.0
POLL_INTERVAL_SECONDS = 0.5
# The interval of asking Ray whether an attempt has ended.
RAY_POLL_INTERVAL_SECONDS = 0.2
EVIDENCE_INTERVAL_SECONDS = 300.0
# The limit for a clean-up: connecting takes at most 20 s; asking the head, collecting and sweeping 45 s each.
CLEAN_UP_TIMEOUT_SECONDS = 300.0
# A stop that Ray has not carried out is repeated.
STOP_RETRY_INTERVAL_SECONDS = 60.0
# The pause before a job is checked again, if the head did not answer.
ADMIT_RETRY_INTERVAL_SECONDS = 60.0


class Steward:
    """Looks after one job. leaving: whether this process is to end; the next one goes on. limits: of the job's tags."""

    def __init__(
        self,
        archive: Archive,
        head: RayHead | None = None,
        runner: Runner | None = None,
        clock: ModuleType = time,
        admission: Callable[[], AbstractContextManager[None]] = admission_lock,
        leaving: Callable[[], bool] = lambda: False,
        queue: Queue | None = None,
        notify: str = "",
        limits: tuple[Limit, ...] = (),
        read_room: ReadRoom = room.read_room,
        summary: Callable[[RayHead, float], Any] = nodes_summary,
    ) -> None:
        self.archive = archive
        self.head = head or local_head(evidence.address_of(archive), patience=0)
        self.runner = runner or Runner(archive)
        self.clock = clock
        self.admission = admission
        self.leaving = leaving
        self.registry = registry_path()
        self.queue = queue or Queue(self.registry)
        self.observer = JobObserver(archive, self.head, clock, self.queue, limits, read_room, summary)
        self.notifier = Notifier(notify, archive, self.queue.directory)
        self.next_stop = self.next_admission = 0.0
        had_steward = bool(self.observer.previous_beat)
        # Each collection is a process on the head: after a restart of the steward, those of all jobs are spread out.
        spread = zlib.crc32(archive.submission_id.encode()) % EVIDENCE_INTERVAL_SECONDS if had_steward else 0.0
        self.next_periodic = clock.time() + EVIDENCE_INTERVAL_SECONDS - spread
        # The job's state in the last step.
        self.state: JobState | None = None
        # The last attempt whose start evidence was collected, and the last that was cleaned up.
        status = archive.read_status()
        self.started_evidence = status.attempt if status.state is JobState.RUNNING and had_steward else 0
        self.cleaned_up = 0
        # The processes that collect evidence.
        self.children: list[subprocess.Popen[bytes]] = []
        self.actions: dict[ActionKind, Callable[[Observations, Failure | None], None]] = {
            ActionKind.WAIT: self.collect_evidence,
            ActionKind.SUBMIT: self.submit,
            ActionKind.CANCEL: self.cancel,
            ActionKind.FAIL: self.fail,
            ActionKind.SUCCEED: self.succeed,
            ActionKind.STOP_ATTEMPT: self.stop_attempt,
            ActionKind.CLEAN_UP: self.clean_up,
            ActionKind.ADMIT: self.admit,
            ActionKind.FINISH: self.finish,
        }

    def run(self) -> None:
        """Look after the job to its end."""
        self.archive.event("KEPT", host=node_name(), pid=os.getpid())
        if not self.observer.previous_beat:
            self.start_evidence(Moment.SUBMIT)
        while not self.leaving() and not self.try_step():
            pass

    def try_step(self) -> bool:
        """One step and the pause after it. No error, such as a shared root that hangs, may end the steward."""
        try:
            cleaned_up = self.cleaned_up
            if self.step():
                return True
            # After a clean-up, the next attempt can start at once.
            if self.cleaned_up == cleaned_up:
                self.wait_for_change()
        except Exception:
            # A log of the steward alone, which exists only if something went wrong.
            with contextlib.suppress(OSError):
                self.archive.append(STEWARD_LOG, f"{now()} {traceback.format_exc()}")
            self.clock.sleep(STEP_INTERVAL_SECONDS)
        return False

    def wait_for_change(self) -> None:
        """Wait until the next step is due, or the archive has another state of the job than in the last step."""
        state, memory = self.state, self.observer.memory
        is_steady = state is JobState.RUNNING and memory.ended_since is None and memory.no_step_since is None
        until = self.clock.monotonic() + (RUNNING_STEP_INTERVAL_SECONDS if is_steady else STEP_INTERVAL_SECONDS)
        while self.clock.monotonic() < until and not self.leaving() and self.archive.read_status().state == state:
            self.clock.sleep(POLL_INTERVAL_SECONDS)

    def step(self) -> bool:
        """Observe the job once and act on it; True at its end."""
        heartbeat = {"time": self.clock.time(), "host": node_name(), "cluster": cluster_name(), "pid": os.getpid()}
        self.archive.write_heartbeat(STEWARD_HEARTBEAT, **heartbeat, **self.heartbeat_details())
        seen = self.observer.observe(self.cleaned_up)
        self.state = seen.status.state
        action = decide(seen)
        away_for, self.observer.away_for = self.observer.away_for, None
        for notification in notifications(self.archive.submission_id, seen, self.archive.heartbeat(), away_for):
            self.notifier.notify(notification)
        self.actions[action.kind](seen, action.failure)
        return action.kind is ActionKind.FINISH

    def heartbeat_details(self) -> dict[str, object]:
        """What the heartbeat tells about a waiting job and its place in the queue, or about its running attempt."""
        if self.state in WAITING:
            return {"notice": self.observer.turn.notice, "place": self.observer.turn.place}
        checks = self.observer.checks
        return {"notice": checks.notice, "engine": checks.dead_server, "address": self.observer.driver_address}

    def collect_evidence(self, seen: Observations, _failure: Failure | None) -> None:
        """Collect evidence at the attempt's start and at regular intervals, while there is nothing else to do."""
        attempt = seen.status.attempt
        if seen.status.state is JobState.RUNNING and self.started_evidence < attempt:
            self.started_evidence = attempt
            self.start_evidence(Moment.START)
        elif seen.now >= self.next_periodic:
            self.next_periodic = seen.now + EVIDENCE_INTERVAL_SECONDS
            self.start_evidence(Moment.PERIODIC)

    def start_evidence(self, moment: Moment) -> None:
        """Collect evidence in a process of its own, so that one that hangs does not delay the steward."""
        process = self.runner.start("evidence", moment)
        # poll() reaps the children that have ended.
        self.children = [child for child in [*self.children, process] if child.poll() is None]

    def submit(self, seen: Observations, _failure: Failure | None) -> None:
        attempt = seen.status.attempt + 1 if seen.status.state is JobState.RETRYING else 1
        if attempt > 1:
            self.leave_out_bad_nodes(seen)
        # Another job may have taken the resources: then the next step asks again.
        with self.admission():
            if not self.observer.start_problem(seen.status, seen.now, self.head.jobs()):
                self.observer.forget_attempt()
                self.runner.run_ray_client("submit", attempt)

    def admit(self, seen: Observations, _failure: Failure | None) -> None:
        """Have the job checked again, now that its dependency has succeeded. Repeated if that cannot be done."""
        if seen.now >= self.next_admission:
            self.next_admission = seen.now + ADMIT_RETRY_INTERVAL_SECONDS
            self.runner.admit()
            self.observer.read_plan()

    def leave_out_bad_nodes(self, seen: Observations) -> None:
        """Give no work to nodes lost under several jobs, or whose GPU ended the last attempt, if others have room."""
        nodes = departures.bad_nodes(self.queue.directory, seen.now)
        if faulty := self.node_of_fault(seen.status):
            nodes = {faulty: [self.archive.submission_id], **nodes}
        for name, jobs in nodes.items():
            others = tuple(worker for worker in self.observer.room.workers if worker.name != name)
            if len(others) == len(self.observer.room.workers) or capacity_problem(others, self.observer.demand):
                continue
            (bad,) = set(self.observer.room.workers) - set(others)
            with contextlib.suppress(RayApiError, OSError):
                stop_new_work(bad.node_id, str(self.queue.directory))
                self.observer.room = replace(self.observer.room, workers=others)
                self.archive.event("NODE_LEFT_OUT", node=name, jobs=jobs)

    def node_of_fault(self, status: Status) -> str:
        """The name of the node whose GPU ended the last attempt, or ""."""
        if not status.failure or status.failure.kind is not FailureKind.GPU_FAULT:
            return ""
        if not status.failure.node:
            return str(status.driver.get("host", ""))
        with contextlib.suppress(RayApiError, KeyError):
            for node in self.head.nodes():
                if node["state"] == ALIVE and node["node_ip"] == status.failure.node:
                    return str(node["node_name"])
        return ""

    def cancel(self, seen: Observations, failure: Failure | None) -> None:
        self.runner.run_ray_client("cancel", seen.status.attempt)
        self.fail(seen, failure)

    def stop_attempt(self, seen: Observations, failure: Failure | None) -> None:
        """Stop an attempt and record why. Its launcher records the end; if it cannot, a later step does."""
        if failure and not seen.stop_cause:
            attempts.record_stop_cause(self.archive, failure)
        if seen.now >= self.next_stop:
            self.next_stop = seen.now + STOP_RETRY_INTERVAL_SECONDS
            self.runner.run_ray_client("stop", seen.status.attempt)

    def fail(self, seen: Observations, failure: Failure | None) -> None:
        """Record the failure or the stop of an attempt whose launcher cannot, or of a job that has no attempt."""
        stopped = failure and failure.kind is FailureKind.STOPPED
        self.record_end(seen, JobState.STOPPED if stopped else JobState.FAILED, failure)

    def succeed(self, seen: Observations, _failure: Failure | None) -> None:
        self.record_end(seen, JobState.SUCCEEDED, None)

    def record_end(self, seen: Observations, state: JobState, failure: Failure | None) -> None:
        attempts.record_end(
            self.archive,
            state,
            failure,
            now=seen.now,
            steps=self.archive.last_step(),
            attempt_steps=attempts.steps_done(self.archive, seen.status.attempt),
        )

    def clean_up(self, seen: Observations, _failure: Failure | None) -> None:
        """Explain the attempt's end, collect its last evidence, and sweep its nodes."""
        self.cleaned_up = seen.status.attempt
        attempts.name_nodes(self.archive, self.observer.node_names)
        identifier = ray_id(self.archive.submission_id, seen.status.attempt)
        if node := departures.node_removed_under(identifier, self.registry):
            attempts.explain_removal(self.archive, node)
        elif seen.status.failure and seen.status.failure.kind is FailureKind.NODE_LOST:
            for lost in self.observer.memory.lost_nodes:
                departures.remember_loss(self.queue.directory, lost, self.archive.submission_id, seen.now)
        self.wait_for_ray(seen.status)
        self.runner.run("end", seconds=CLEAN_UP_TIMEOUT_SECONDS)

    def finish(self, seen: Observations, failure: Failure | None) -> None:
        """Clean up after the last attempt, and close the archive."""
        self.clean_up(seen, failure)
        self.notifier.finish()
        attempts.close_if_ended(self.archive, str(seen.status.state))

    def wait_for_ray(self, status: Status) -> None:
        """Wait until Ray lists the attempt as ended: a sweep would kill its launcher, a process of the job."""
        until = self.clock.monotonic() + END_RECORD_GRACE_SECONDS
        with contextlib.suppress(RayApiError):
            while self.clock.monotonic() < until:
                record = self.head.job(ray_id(self.archive.submission_id, status.attempt))
                if record is None or JobRecord.from_api(record).ended:
                    return
                self.clock.sleep(RAY_POLL_INTERVAL_SECONDS)
