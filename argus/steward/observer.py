# SPDX-License-Identifier: Apache-2.0
"""What the steward of a job observes in each step: in the job's archive, in Ray, and in the queue of the cluster."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from ..archive.archive import Archive, Heartbeat
from ..archive.plan import Plan
from ..archive.status import ENDED, WAITING, JobState, Status, ray_id
from ..evidence import evidence, hardware
from ..queue import attempts
from ..queue.demand import Demand, Limit
from ..queue.queue import Queue, Turn, WaitingJob, find_turn
from ..queue.room import Room
from ..ray.api import RayApiError, RayHead
from ..ray.records import ALIVE, JobRecord, names_of, with_names
from .attempt_checks import AttemptChecks
from .decisions import HeadReport, Observations

# The maximum difference between the clocks of the head and of another machine; cluster_up finds larger ones.
MAX_CLOCK_SKEW_SECONDS = 30.0
# The time after a head's start in which it is checked for actors that it has forgotten.
HEAD_START_WINDOW_SECONDS = 600.0
# The unused port and the timeout for checking whether the machine of an ended node answers.
UNUSED_PORT, CONNECT_TIMEOUT_SECONDS = 1, 2.0

# The free resources and Ray's newer records of jobs, of a head at a moment.
RoomSnapshot = tuple[Room, Sequence[Mapping[str, Any]]]
ReadRoom = Callable[[RayHead, float], RoomSnapshot]


@dataclass
class AttemptMemory:
    """What is remembered of the current attempt between two steps. Fields named as in Observations mean the same."""

    is_listed: bool = False  # whether Ray has ever listed the attempt
    absent_since: float | None = None
    ended_since: float | None = None
    no_step_since: float | None = None
    last_step_seen: int | None = None  # the trainer's step at no_step_since
    # The names of the lost nodes, and what is known about their end.
    lost_nodes: tuple[str, ...] = ()
    lost_cause: str = ""
    heartbeat_time: float | None = None  # of the launcher's last heartbeat, by its clock
    heartbeat_seen_at: float | None = None
    actor_unscheduled_since: float | None = None


def nodes_summary(head: RayHead, _now: float) -> Any:
    """The resource use of the nodes. Raises RayApiError."""
    return head.get("/nodes?view=summary")


def node_end_text(address: str) -> str:
    """A text on whether the machine of an ended node answers: a live one refuses a connection to an unused port."""
    if not address:
        return ""
    try:
        socket.create_connection((address, UNUSED_PORT), CONNECT_TIMEOUT_SECONDS).close()
    except ConnectionRefusedError:
        return f"its processes have ended, and {address} answers"
    except OSError:
        return f"nothing answers at {address}"
    return ""


class JobObserver:
    """Observes one job, and remembers between two steps what its observations need."""

    def __init__(
        self,
        archive: Archive,
        head: RayHead,
        clock: ModuleType,
        queue: Queue,
        limits: tuple[Limit, ...],
        read_room: ReadRoom,
        summary: Callable[[RayHead, float], Any],
    ) -> None:
        self.archive, self.head, self.clock = archive, head, clock
        self.queue, self.limits = queue, limits
        self.read_room, self.summary = read_room, summary
        self.read_plan()
        self.room, self.turn = Room(), Turn(None, "")
        # A running attempt was listed by Ray before the head was restarted.
        self.memory = AttemptMemory(is_listed=archive.read_status().state is JobState.RUNNING)
        self.checks = AttemptChecks(self.head, self.demand)
        self.driver_address = ""
        # The names of all nodes that the head has listed, by their ids and addresses.
        self.node_names: dict[str, str] = {}
        # The last heartbeat of the previous steward, until it is known whether the head ended with it; 0 without one.
        earlier = archive.steward_heartbeat()
        self.previous_beat = earlier.time if earlier else 0.0
        # For how many seconds the head was away, if this step found that it is back.
        self.away_for: float | None = None
        self.next_measured = 0.0

    def read_plan(self) -> None:
        """Read the plan of the job, which is complete once the job was admitted."""
        self.plan = self.archive.plan() or Plan()
        self.demand = Demand.of(self.plan)

    def forget_attempt(self) -> None:
        """Begin anew for the next attempt."""
        self.memory, self.checks = AttemptMemory(), AttemptChecks(self.head, self.demand)

    def observe(self, cleaned_up: int) -> Observations:
        """Ask the head and read the archive. cleaned_up: the last attempt that was cleaned up."""
        moment = self.clock.time()
        report = None
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            report = self.ask_head(self.archive.read_status(), moment)
        memory = self.memory
        if report:
            job = report.job
            memory.absent_since = (memory.absent_since or moment) if job is None and memory.is_listed else None
            memory.ended_since = (memory.ended_since or moment) if job and job.ended else None
            memory.is_listed = memory.is_listed or job is not None
        beat = self.archive.heartbeat().time
        if beat != memory.heartbeat_time:
            memory.heartbeat_time, memory.heartbeat_seen_at = beat, moment
        # The launcher may have recorded the end while Ray was asked.
        status = self.archive.read_status()
        return Observations(
            now=moment,
            status=status,
            plan=self.plan,
            head=report,
            absent_since=memory.absent_since,
            ended_since=memory.ended_since,
            heartbeat_seen_at=memory.heartbeat_seen_at,
            actor_unscheduled_since=memory.actor_unscheduled_since,
            no_step_since=memory.no_step_since,
            dependency_state=self.dependency_state(status),
            unmet_start_condition=self.unmet_start_condition(status) if status.state in WAITING else "",
            ended_required_server=attempts.ended_server(self.archive, self.plan) if status.state in WAITING else "",
            stop_requested=self.archive.stop_requested(),
            stop_cause=attempts.stop_cause(self.archive),
            cleaned_up=cleaned_up >= status.attempt,
        )

    def ask_head(self, status: Status, moment: float) -> HeadReport:
        """What the head reports about the job in this state. Raises RayApiError, KeyError and TypeError."""
        self.driver_address = ""
        if status.state in WAITING:
            return HeadReport(capacity_problem=self.capacity_problem(status, moment))
        self.queue.remove(self.archive.submission_id)
        if status.state in ENDED:
            return HeadReport()
        record = self.head.job(ray_id(self.archive.submission_id, status.attempt))
        job = JobRecord.from_api(record) if record else None
        nodes = self.head.nodes()
        self.node_names |= names_of(nodes)
        job = job and replace(job, message=with_names(job.message, self.node_names))
        alive = {node["node_id"]: node for node in nodes if node["state"] == ALIVE}
        self.driver_address = str(alive.get(job.driver_node_id, {}).get("node_ip", "")) if job else ""
        # Ray also lists the dead heads of earlier starts.
        head: Mapping[str, Any] = next((node for node in alive.values() if node["is_head_node"]), {})
        head_started = head.get("start_time_ms", 0) / 1000
        if 0 < self.previous_beat < head_started:
            self.away_for = round(moment - self.previous_beat, 1)
            self.archive.event("HEAD_RETURNED", away_for=self.away_for)
        self.previous_beat = 0.0 if head else self.previous_beat
        self.note_unscheduled_actor(job, head_started, status, moment)
        self.measure(job, moment)
        self.check_attempt(job, nodes, status, moment)
        return HeadReport(
            job=job,
            head_node_id=head.get("node_id", ""),
            driver_alive=not job or not job.driver_node_id or job.driver_node_id in alive,
            lost_node=self.find_lost_nodes(job, nodes, status, moment),
            lost_cause=self.memory.lost_cause,
            transfer_queue_problem=self.checks.transfer_queue_problem,
            # A command may work without the resources that it asks Ray for.
            placement_problem="" if self.plan.command else self.checks.placement_problem,
        )

    def measure(self, job: JobRecord | None, moment: float) -> None:
        """Record what the nodes of the attempt use, at intervals."""
        node_id = job.driver_node_id if job and self.plan.command else ""
        if job and (job.job_id or node_id) and not job.ended and moment >= self.next_measured:
            self.next_measured = moment + hardware.SAMPLE_INTERVAL_SECONDS
            # Measurements are for people; errors of Ray or the archive must not stop the steward.
            with contextlib.suppress(Exception):
                measured = hardware.measure_job(self.summary(self.head, moment), job.job_id, moment, node_id)
                if measured.nodes:
                    hardware.append(self.archive, measured)
                else:
                    # Ray has not counted the processes of the attempt yet: try again in the next step.
                    self.next_measured = moment

    def find_lost_nodes(
        self, job: JobRecord | None, nodes: Sequence[Mapping[str, Any]], status: Status, moment: float
    ) -> str:
        """The names of nodes that died with processes of the current attempt since its start, or ""."""
        # The start is by the clock of the driver's machine, the end by that of the head.
        since = (status.attempt_started_at or moment) - MAX_CLOCK_SKEW_SECONDS
        dead = {node["node_id"]: node for node in nodes if node.get("end_time_ms", 0) > since * 1000}
        if not dead or not job or not job.job_id:
            return ""
        actors = evidence.list_actors(self.head, evidence.job_filter(job.job_id), detail=True)
        dead_nodes = evidence.nodes_of_dead_actors(actors, job.job_id, driver_ended=status.state is JobState.ENDING)
        gone = [node for node_id, node in dead.items() if node_id in dead_nodes | {job.driver_node_id}]
        self.memory.lost_nodes = tuple(node["node_name"] for node in gone)
        lost = ", ".join(self.memory.lost_nodes)
        if gone and self.memory.no_step_since is None:
            self.memory.lost_cause = node_end_text(str(gone[0].get("node_ip") or ""))
        step = self.archive.heartbeat().step
        if lost and (self.memory.no_step_since is None or step != self.memory.last_step_seen):
            self.memory.no_step_since, self.memory.last_step_seen = moment, step
        return lost

    def note_unscheduled_actor(self, job: JobRecord | None, head_started: float, status: Status, moment: float) -> None:
        """Note since when the attempt waits for a process that the restarted head does not schedule."""
        early = (status.attempt_submitted_at or moment) < head_started > moment - HEAD_START_WINDOW_SECONDS
        waits = early and job is not None and not job.ended and (job.pending or self.has_unscheduled_actor(job.job_id))
        self.memory.actor_unscheduled_since = (self.memory.actor_unscheduled_since or moment) if waits else None

    def has_unscheduled_actor(self, job_id: str) -> bool:
        """Whether an actor waits for its process, and Ray has asked no node to start one."""
        actors = evidence.list_actors(self.head, evidence.job_filter(job_id)) if job_id else []
        return any(actor.get("state") == "PENDING_CREATION" and not actor.get("node_id") for actor in actors)

    def check_attempt(
        self, job: JobRecord | None, nodes: Sequence[Mapping[str, Any]], status: Status, moment: float
    ) -> None:
        """Check the TransferQueue, the servers and the placement of the current attempt."""
        if job and not job.ended:
            heartbeat = self.archive.heartbeat()
            # A heartbeat from before the start is that of an earlier attempt.
            is_current = heartbeat.time is not None and heartbeat.time >= (status.attempt_started_at or moment)
            self.checks.run(job.job_id, heartbeat if is_current else Heartbeat(), nodes, moment)

    def capacity_problem(self, status: Status, moment: float) -> str:
        """Why the next attempt cannot start, or "". Puts the job into the queue."""
        self.room, jobs = self.read_room(self.head, moment)
        self.queue.put(self.waiting_job(status, moment))
        return self.start_problem(status, moment, jobs)

    def waiting_job(self, status: Status, moment: float) -> WaitingJob:
        """The job as the queue has it."""
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

    def start_problem(self, status: Status, moment: float, jobs: Sequence[Mapping[str, Any]]) -> str:
        """Why the next attempt cannot start, or "". jobs: Ray's list of jobs, read after the room."""
        waiting = self.waiting_job(status, moment)
        self.turn = find_turn(self.queue.jobs(), waiting, self.room, jobs, moment)
        return self.turn.problem

    def unmet_start_condition(self, status: Status) -> str:
        """What the next attempt waits for, other than resources, or ""."""
        if status.state is JobState.QUEUED and self.plan.depends_on:
            return f"for {self.plan.depends_on} to succeed"
        return attempts.unmet_server_condition(self.archive, self.plan)

    def dependency_state(self, status: Status) -> JobState | None:
        """The state of the job that has to succeed before this one starts; None if there is none."""
        if status.state is not JobState.QUEUED or not self.plan.depends_on:
            return None
        return Archive(self.archive.path.with_name(self.plan.depends_on)).state()
