# SPDX-License-Identifier: Apache-2.0
"""The steward looks after a job from its archive's creation to its end, in a thread of the steward of the cluster.

It outlives attempts, their drivers and the nodes on which they ran. It observes the job, and `decide` tells
what to do next. It needs the standard library only: calls of Ray's own client run in processes of their own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
import traceback
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from ..archive.archive import STEWARD_HEARTBEAT, STEWARD_LOG, Archive, Heartbeat, now
from ..archive.failures import Failure, FailureKind
from ..archive.plan import Plan
from ..archive.program import Runner
from ..archive.status import ENDED, WAITING, JobState, Status, ray_id
from ..common.identity import cluster_name, node_name
from ..evidence import evidence, hardware
from ..evidence.evidence import Moment
from ..jobs.drain import stop_new_work
from ..queue import attempts, room
from ..queue.queue import Queue, Turn, WaitingJob, turn
from ..queue.room import Demand, Room
from ..ray import departures
from ..ray.admission import one_at_a_time, registry_path
from ..ray.api import ALIVE, JobRecord, RayApiError, RayHead, local_head, names_of, with_names
from .attempt_checks import AttemptChecks
from .decisions import END_RECORD_GRACE_SECONDS, Action, ActionKind, HeadReport, View, decide
from .notify import Notifier, notifications

# The intervals of asking the head; the archive is read more often.
STEP_INTERVAL_SECONDS = 2.0
RUNNING_STEP_INTERVAL_SECONDS = 5.0
POLL_INTERVAL_SECONDS = 0.5
# The interval of asking Ray whether an attempt has ended.
RAY_POLL_INTERVAL_SECONDS = 0.2
# The maximum difference between the clocks of the head and of another machine; cluster_up finds larger ones.
MAX_CLOCK_SKEW_SECONDS = 30.0
EVIDENCE_INTERVAL_SECONDS = 300.0
# Connecting takes at most 20 s; asking the head, collecting from all nodes and sweeping them, 45 s each.
CLEAN_UP_TIMEOUT_SECONDS = 300.0
# The time after a head's start in which it is checked for actors that it has forgotten.
HEAD_START_WINDOW_SECONDS = 600.0
# The unused port and the timeout for checking whether the machine of an ended node answers.
UNUSED_PORT, CONNECT_TIMEOUT_SECONDS = 1, 2.0
# A stop that Ray has not carried out is repeated.
STOP_RETRY_INTERVAL_SECONDS = 60.0
# The pause before a job is checked again, if the head did not answer.
ADMIT_RETRY_INTERVAL_SECONDS = 60.0

# The free resources and Ray's newer records of jobs, of a head at a moment.
RoomSnapshot = tuple[Room, Sequence[Mapping[str, Any]]]
Look = Callable[[RayHead, float], RoomSnapshot]


@dataclass
class Observations:
    """The steward's memory of the current attempt between its steps."""

    # Whether Ray has ever listed the attempt.
    is_listed: bool = False
    absent_since: float | None = None
    ended_since: float | None = None
    no_step_since: float | None = None
    last_step_seen: int | None = None
    lost_nodes: tuple[str, ...] = ()
    lost_cause: str = ""
    # The time of the launcher's last heartbeat, by its clock, and when it was first seen.
    beat: float | None = None
    heartbeat_seen_at: float | None = None
    actor_unscheduled_since: float | None = None


def nodes_summary(head: RayHead, _now: float) -> Any:
    """The resource use of the nodes. Raises RayApiError."""
    return head.get("/nodes?view=summary")


def node_end_text(address: str) -> str:
    """Whether the machine of an ended node still answers, as text: a live machine refuses an unused port."""
    if not address:
        return ""
    try:
        socket.create_connection((address, UNUSED_PORT), CONNECT_TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        return f"its processes have ended, and {address} answers"
    except OSError:
        return f"nothing answers at {address}"
    return ""


class Steward:
    """Looks after one job. leaving: whether this process is to end, as the next one goes on."""

    def __init__(
        self,
        archive: Archive,
        head: RayHead | None = None,
        runner: Runner | None = None,
        clock: ModuleType = time,
        admission: Callable[[], AbstractContextManager[None]] = one_at_a_time,
        leaving: Callable[[], bool] = lambda: False,
        queue: Queue | None = None,
        notify: str = "",
        limits: tuple[room.Limit, ...] = (),
        look: Look = room.look,
        summary: Callable[[RayHead, float], Any] = nodes_summary,
    ) -> None:
        self.archive = archive
        self.plan = archive.plan() or Plan()
        self.head = head or local_head(evidence.address_of(archive), patience=0)
        self.runner = runner or Runner(archive)
        self.clock = clock
        self.admission = admission
        self.leaving = leaving
        self.registry = registry_path()
        self.queue = queue or Queue(self.registry)
        self.turn = Turn(None, "")
        # The address of the driver's node.
        self.address = ""
        self.limits = limits
        self.look_at_room, self.summary = look, summary
        self.notifier = Notifier(notify, archive, self.queue.directory)
        self.away_for: float | None = None
        self.demand, self.room = Demand.of(self.plan), Room()
        self.checks = AttemptChecks(self.head, self.demand)
        # A running attempt was listed by Ray before the head was restarted.
        status = archive.read_status()
        running = status.state is JobState.RUNNING
        self.observed = Observations(is_listed=running)
        self.next_stop = self.next_admission = self.next_measured = 0.0
        # The last heartbeat of the previous steward, until it is known whether the head ended with it.
        earlier = archive.steward_heartbeat()
        self.previous_beat = earlier.time if earlier else 0.0
        # Each collection is a process on the head: after a restart, not of all jobs at once.
        spread = zlib.crc32(archive.submission_id.encode()) % EVIDENCE_INTERVAL_SECONDS if self.previous_beat else 0.0
        self.next_periodic = clock.time() + EVIDENCE_INTERVAL_SECONDS - spread
        # The job's state in the last step.
        self.state: JobState | None = None
        # The last attempt whose start evidence was collected, and the last that was cleaned up.
        self.started_evidence = status.attempt if running and self.previous_beat else 0
        self.cleaned_up = 0
        self.children: list[subprocess.Popen[bytes]] = []
        # The names of all nodes that the head has known, by Ray's ids.
        self.nodes: dict[str, str] = {}
        self.actions: dict[ActionKind, Callable[[View, Failure | None], None]] = {
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
        if not self.previous_beat:
            self.start_evidence(Moment.SUBMIT)
        while not self.leaving() and not self.try_step():
            pass

    def try_step(self) -> bool:
        """One step and the pause after it. No error, such as a shared root that hangs, may end the steward."""
        try:
            cleaned_up = self.cleaned_up
            if self.step():
                return True
            # The next attempt waits for nothing else.
            if self.cleaned_up == cleaned_up:
                self.wait_for_change()
        except Exception:
            # Its own log, which exists only if something went wrong.
            with contextlib.suppress(OSError):
                self.archive.append(STEWARD_LOG, f"{now()} {traceback.format_exc()}")
            self.clock.sleep(STEP_INTERVAL_SECONDS)
        return False

    def wait_for_change(self) -> None:
        """Wait until the job's state is another than in the last step, or until the next step is due."""
        state = self.state
        steady = state is JobState.RUNNING and self.observed.ended_since is None and self.observed.no_step_since is None
        until = self.clock.monotonic() + (RUNNING_STEP_INTERVAL_SECONDS if steady else STEP_INTERVAL_SECONDS)
        while self.clock.monotonic() < until and not self.leaving() and self.archive.read_status().state == state:
            self.clock.sleep(POLL_INTERVAL_SECONDS)

    def step(self) -> bool:
        """Observe the job once and act on it; True at its end."""
        heartbeat = {"time": self.clock.time(), "host": node_name(), "cluster": cluster_name(), "pid": os.getpid()}
        self.archive.write_heartbeat(STEWARD_HEARTBEAT, **heartbeat, **self.heartbeat_details())
        view = self.observe()
        self.state = view.status.state
        action: Action = decide(view)
        for notification in notifications(self.archive.submission_id, view, self.archive.heartbeat(), self.away_for):
            self.notifier.notify(notification)
        self.away_for = None
        self.actions[action.kind](view, action.failure)
        return action.kind is ActionKind.FINISH

    def heartbeat_details(self) -> dict[str, object]:
        """What the job waits for, with its place in the queue, or the dead engine and driver address of its attempt."""
        if self.state not in WAITING:
            return {"notice": self.checks.notice, "engine": self.checks.engine, "address": self.address}
        return {"notice": self.turn.notice, "place": self.turn.place}

    # --- Observing ---------------------------------------------------------------------------------------------------

    def observe(self) -> View:
        moment = self.clock.time()
        report = None
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            report = self.ask_head(self.archive.read_status(), moment)
        observed = self.observed
        if report:
            job = report.job
            observed.absent_since = (observed.absent_since or moment) if job is None and observed.is_listed else None
            observed.ended_since = (observed.ended_since or moment) if job and job.ended else None
            observed.is_listed = observed.is_listed or job is not None
        beat = self.archive.heartbeat().time
        if beat != observed.beat:
            observed.beat, observed.heartbeat_seen_at = beat, moment
        # The launcher may have recorded the end while Ray was asked.
        status = self.archive.read_status()
        return View(
            now=moment,
            status=status,
            plan=self.plan,
            head=report,
            absent_since=observed.absent_since,
            ended_since=observed.ended_since,
            heartbeat_seen_at=observed.heartbeat_seen_at,
            actor_unscheduled_since=observed.actor_unscheduled_since,
            no_step_since=observed.no_step_since,
            dependency_state=self.dependency_state(status),
            unmet_start_condition=self.unmet_start_condition(status) if status.state in WAITING else "",
            ended_required_server=attempts.ended_server(self.archive, self.plan) if status.state in WAITING else "",
            stop_requested=self.archive.stop_requested(),
            stop_cause=attempts.stop_cause(self.archive),
            cleaned_up=self.cleaned_up >= status.attempt,
        )

    def ask_head(self, status: Status, moment: float) -> HeadReport:
        self.address = ""
        if status.state in WAITING:
            return HeadReport(capacity_problem=self.capacity_problem(status, moment))
        self.queue.remove(self.archive.submission_id)
        if status.state in ENDED:
            return HeadReport()
        record = self.head.job(self.ray_id(status))
        job = JobRecord.from_api(record) if record else None
        nodes = self.head.nodes()
        self.nodes |= names_of(nodes)
        job = job and replace(job, message=with_names(job.message, self.nodes))
        alive = {node["node_id"]: node for node in nodes if node["state"] == ALIVE}
        self.address = str(alive.get(job.driver_node_id, {}).get("node_ip", "")) if job else ""
        # Ray also lists the dead heads of earlier starts.
        head: Mapping[str, Any] = next((node for node in alive.values() if node["is_head_node"]), {})
        head_started = head.get("start_time_ms", 0) / 1000
        if 0 < self.previous_beat < head_started:
            self.away_for = round(moment - self.previous_beat, 1)
            self.archive.event("HEAD_RETURNED", away_for=self.away_for)
        self.previous_beat = 0.0 if head else self.previous_beat
        self.note_unscheduled_actor(job, head_started, status, moment)
        self.measure(job, moment)
        self.check(job, nodes, status, moment)
        return HeadReport(
            job=job,
            head_node_id=head.get("node_id", ""),
            driver_alive=not job or not job.driver_node_id or job.driver_node_id in alive,
            lost_node=self.lost_node(job, nodes, status, moment),
            lost_cause=self.observed.lost_cause,
            transfer_queue_problem=self.checks.transfer_queue_problem,
            # A command may work without the resources that it asks Ray for.
            placement_problem="" if self.plan.command else self.checks.placement_problem,
        )

    def measure(self, job: JobRecord | None, moment: float) -> None:
        """Note what the nodes of the attempt use."""
        node_id = job.driver_node_id if job and self.plan.command else ""
        if job and (job.job_id or node_id) and not job.ended and moment >= self.next_measured:
            self.next_measured = moment + hardware.SAMPLE_INTERVAL_SECONDS
            # Measurements are for people; errors of Ray or the archive must not stop the steward.
            with contextlib.suppress(Exception):
                measured = hardware.measure_job(self.summary(self.head, moment), job.job_id, moment, node_id)
                if measured.nodes:
                    hardware.append(self.archive, measured)
                else:
                    # Ray has not counted its processes yet.
                    self.next_measured = moment

    def ray_id(self, status: Status) -> str:
        return ray_id(self.archive.submission_id, status.attempt)

    def lost_node(
        self, job: JobRecord | None, nodes: Sequence[Mapping[str, Any]], status: Status, moment: float
    ) -> str:
        """The name of a node that died with processes of the current attempt since the attempt's start, or ""."""
        # The start by the clock of the driver's machine, the end by the head's. Whose processes died is checked below.
        since = (status.attempt_started_at or moment) - MAX_CLOCK_SKEW_SECONDS
        dead = {node["node_id"]: node for node in nodes if node.get("end_time_ms", 0) > since * 1000}
        if not dead or not job or not job.job_id:
            return ""
        actors = evidence.actors(self.head, evidence.job_filter(job.job_id), detail=True)
        dead_nodes = evidence.nodes_of_dead_actors(actors, job.job_id, driver_ended=status.state is JobState.ENDING)
        gone = [node for node_id, node in dead.items() if node_id in dead_nodes | {job.driver_node_id}]
        self.observed.lost_nodes = tuple(node["node_name"] for node in gone)
        lost = ", ".join(self.observed.lost_nodes)
        if gone and self.observed.no_step_since is None:
            self.observed.lost_cause = node_end_text(str(gone[0].get("node_ip") or ""))
        step = self.archive.heartbeat().step
        if lost and (self.observed.no_step_since is None or step != self.observed.last_step_seen):
            self.observed.no_step_since, self.observed.last_step_seen = moment, step
        return lost

    def note_unscheduled_actor(self, job: JobRecord | None, head_started: float, status: Status, moment: float) -> None:
        """Note since when the attempt waits for a process that the restarted head does not schedule."""
        before = (status.attempt_submitted_at or moment) < head_started > moment - HEAD_START_WINDOW_SECONDS
        waits = before and job is not None and not job.ended and (job.pending or self.has_unscheduled_actor(job.job_id))
        self.observed.actor_unscheduled_since = (self.observed.actor_unscheduled_since or moment) if waits else None

    def has_unscheduled_actor(self, job_id: str) -> bool:
        """Whether an actor waits for its process, and no node has been asked for one."""
        actors = evidence.actors(self.head, evidence.job_filter(job_id)) if job_id else []
        return any(actor.get("state") == "PENDING_CREATION" and not actor.get("node_id") for actor in actors)

    def check(self, job: JobRecord | None, nodes: Sequence[Mapping[str, Any]], status: Status, moment: float) -> None:
        """Check the TransferQueue, the servers and the placement of the current attempt."""
        if job and not job.ended:
            heartbeat = self.archive.heartbeat()
            # An older one is of an earlier attempt.
            is_current = heartbeat.time is not None and heartbeat.time >= (status.attempt_started_at or moment)
            self.checks.run(job.job_id, heartbeat if is_current else Heartbeat(), nodes, moment)

    def capacity_problem(self, status: Status, moment: float) -> str:
        self.room, jobs = self.look_at_room(self.head, moment)
        self.queue.put(self.in_queue(status, moment))
        return self.problem_now(status, moment, jobs)

    def in_queue(self, status: Status, moment: float) -> WaitingJob:
        since = status.queued_at if status.state is JobState.QUEUED else status.ended_at
        return WaitingJob(
            self.archive.submission_id,
            self.demand,
            priority=self.plan.priority,
            submitted_at=status.submitted_at or moment,
            since=since or moment,
            patience=self.plan.queue_patience,
            waits_for=self.unmet_start_condition(status),
            limits=self.limits,
        )

    def problem_now(self, status: Status, moment: float, jobs: Sequence[Mapping[str, Any]]) -> str:
        """Why the next attempt cannot start. jobs: Ray's list since its resources were counted."""
        waiting = self.in_queue(status, moment)
        self.turn = turn(self.queue.jobs(), waiting, self.room, jobs, moment)
        return self.turn.problem

    def unmet_start_condition(self, status: Status) -> str:
        """The condition for the next attempt other than resources, or ""."""
        if status.state is JobState.QUEUED and self.plan.depends_on:
            return f"for {self.plan.depends_on} to succeed"
        return attempts.unmet_server_condition(self.archive, self.plan)

    def dependency_state(self, status: Status) -> JobState | None:
        """The state of the job that has to succeed before this one starts."""
        if status.state is not JobState.QUEUED or not self.plan.depends_on:
            return None
        return Archive(self.archive.path.with_name(self.plan.depends_on)).state()

    # --- Acting ------------------------------------------------------------------------------------------------------

    def collect_evidence(self, view: View, _failure: Failure | None) -> None:
        """Evidence of the attempt's start and at regular intervals, while there is nothing else to do."""
        attempt = view.status.attempt
        if view.status.state is JobState.RUNNING and self.started_evidence < attempt:
            self.started_evidence = attempt
            self.start_evidence(Moment.START)
        elif view.now >= self.next_periodic:
            self.next_periodic = view.now + EVIDENCE_INTERVAL_SECONDS
            self.start_evidence(Moment.PERIODIC)

    def start_evidence(self, moment: Moment) -> None:
        """Collect it in the background: what hangs must not keep the steward from its job."""
        process = self.runner.start("evidence", moment)
        # Polling reaps ended children.
        self.children = [child for child in [*self.children, process] if child.poll() is None]

    def submit(self, view: View, _failure: Failure | None) -> None:
        attempt = view.status.attempt + 1 if view.status.state is JobState.RETRYING else 1
        if attempt > 1:
            self.leave_out_bad_nodes(view)
        # Other jobs may have waited for the same resources; the next step looks again.
        with self.admission():
            if not self.problem_now(view.status, view.now, self.head.jobs()):
                self.observed, self.checks = Observations(), AttemptChecks(self.head, self.demand)
                self.runner.run_ray_client("submit", attempt)

    def admit(self, view: View, _failure: Failure | None) -> None:
        """Have the job checked again, now that nothing is missing. If that cannot be done, it is tried again."""
        if view.now >= self.next_admission:
            self.next_admission = view.now + ADMIT_RETRY_INTERVAL_SECONDS
            self.runner.admit()
            self.plan = self.archive.plan() or Plan()
            self.demand = Demand.of(self.plan)

    def leave_out_bad_nodes(self, view: View) -> None:
        """Let nodes get no new work that were lost under several jobs, or whose GPU failed under the attempt before.

        A node stays if this job has no room on the others.
        """
        nodes = departures.bad_nodes(self.queue.directory, view.now)
        if faulty := self.node_of_fault(view.status):
            nodes = {faulty: [self.archive.submission_id], **nodes}
        for name, jobs in nodes.items():
            others = tuple(worker for worker in self.room.workers if worker.name != name)
            if len(others) == len(self.room.workers) or room.capacity_problem(others, self.demand):
                continue
            (bad,) = set(self.room.workers) - set(others)
            with contextlib.suppress(RayApiError, OSError):
                stop_new_work(bad.node_id, str(self.queue.directory))
                self.room = replace(self.room, workers=others)
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

    def cancel(self, view: View, failure: Failure | None) -> None:
        self.runner.run_ray_client("cancel", view.status.attempt)
        self.fail(view, failure)

    def stop_attempt(self, view: View, failure: Failure | None) -> None:
        """Stop it and write down why. Its launcher records the end; if it cannot, a later step does."""
        if failure and not view.stop_cause:
            attempts.record_stop_cause(self.archive, failure)
        if view.now >= self.next_stop:
            self.next_stop = view.now + STOP_RETRY_INTERVAL_SECONDS
            self.runner.run_ray_client("stop", view.status.attempt)

    def fail(self, view: View, failure: Failure | None) -> None:
        """Record the end of an attempt whose launcher cannot."""
        stopped = failure and failure.kind is FailureKind.STOPPED
        self.record_end(view, JobState.STOPPED if stopped else JobState.FAILED, failure)

    def succeed(self, view: View, _failure: Failure | None) -> None:
        self.record_end(view, JobState.SUCCEEDED, None)

    def record_end(self, view: View, state: JobState, failure: Failure | None) -> None:
        attempts.record_end(
            self.archive,
            state,
            failure,
            now=view.now,
            steps=self.archive.last_step(),
            attempt_steps=attempts.steps_done(self.archive, view.status.attempt),
        )

    def clean_up(self, view: View, _failure: Failure | None) -> None:
        """Collect the attempt's last evidence, and leave nothing of it on any node."""
        self.cleaned_up = view.status.attempt
        attempts.name_nodes(self.archive, self.nodes)
        if node := departures.removed_under(self.ray_id(view.status), self.registry):
            attempts.explain_removal(self.archive, node)
        elif view.status.failure and view.status.failure.kind is FailureKind.NODE_LOST:
            for lost in self.observed.lost_nodes:
                departures.remember_loss(self.queue.directory, lost, self.archive.submission_id, view.now)
        self.wait_for_ray(view.status)
        self.runner.run("end", seconds=CLEAN_UP_TIMEOUT_SECONDS)

    def finish(self, view: View, failure: Failure | None) -> None:
        self.clean_up(view, failure)
        self.notifier.finish()
        attempts.close_if_ended(self.archive, str(view.status.state))

    def wait_for_ray(self, status: Status) -> None:
        """Wait until Ray has noticed the end as well: the launcher itself is a process of the job."""
        until = self.clock.monotonic() + END_RECORD_GRACE_SECONDS
        with contextlib.suppress(RayApiError):
            while self.clock.monotonic() < until:
                record = self.head.job(self.ray_id(status))
                if record is None or JobRecord.from_api(record).ended:
                    return
                self.clock.sleep(RAY_POLL_INTERVAL_SECONDS)
