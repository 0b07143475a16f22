# SPDX-License-Identifier: Apache-2.0
"""The steward's checks of an attempt in Ray: its TransferQueue, its inference servers, and what it waits for."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.archive import Heartbeat
from ..evidence import evidence
from ..hooks.isolation import CONTROLLER_NAME
from ..io.output import one_line
from ..queue import room
from ..queue.demand import Demand
from ..ray.api import RayApiError, RayHead
from ..ray.records import ALIVE
from .placement import actors_notice, find_placement_problem, groups_notice, latest_nodes, pending_groups

# The interval of the checks.
CHECK_INTERVAL_SECONDS = 20.0
# A trainer closes its TransferQueue seconds before it ends.
CONTROLLER_GONE_SECONDS = 60.0
# A placement group is made within a second if there is room.
PLACEMENT_PENDING_SECONDS = 20.0
# An actor whose process starts imports verl first.
ACTOR_PENDING_SECONDS = 60.0
# The time before an attempt that no node could hold is ended, because nodes may still join, and Ray notices late.
UNPLACEABLE_SECONDS = 180.0
PENDING_STATES = ("DEPENDENCIES_UNREADY", "PENDING_CREATION")
# The names that verl's releases give to the actors of inference servers, such as vllm_server_0_0.
SERVER_NAME = re.compile(r"(?:^|_)server_\d")


@dataclass
class AttemptChecks:
    """The checks of one attempt: their results, and what they remember between the steward's steps."""

    head: RayHead
    demand: Demand
    # The results, each "" if there is nothing to report.
    transfer_queue_problem: str = ""
    notice: str = ""  # what the attempt has been waiting for so long that people should know
    dead_server: str = ""  # an inference server that died
    # Why an actor or a placement group can never start, once that has been so for UNPLACEABLE_SECONDS.
    placement_problem: str = ""
    next_check_at: float = 0.0
    # Since when the TransferQueue has had no controller, and the trainer's step then.
    controller_gone_since: float | None = None
    controller_gone_at_step: int = 0
    wait: tuple[str, float] = ("", 0.0)  # what the attempt waits for, and since when

    def run(self, job_id: str, heartbeat: Heartbeat, nodes: Sequence[Mapping[str, Any]], now: float) -> None:
        """Update the results, at most every CHECK_INTERVAL_SECONDS. job_id: of Ray. nodes: all that the head lists."""
        if not job_id or now < self.next_check_at:
            return
        self.next_check_at = now + CHECK_INTERVAL_SECONDS
        # A request that fails is repeated at the next check.
        with contextlib.suppress(RayApiError, KeyError, TypeError, ValueError):
            actors = evidence.list_actors(self.head, evidence.job_filter(job_id), detail=True)
            if self.demand.controller_cpus:  # the job uses TransferQueue
                self.check_transfer_queue(alive_controller_count(actors, job_id), heartbeat, now)
            self.dead_server = find_dead_server(actors)
            has_trained = bool(heartbeat.step)  # so Ray has placed all that the trainer needs
            pending = [] if has_trained else [actor for actor in actors if actor.get("state") in PENDING_STATES]
            groups = [] if has_trained else pending_groups(room.list_placement_groups(self.head), job_id)
            problem = find_placement_problem(pending, groups, latest_nodes(nodes, now))
            reason = f"waits in vain: {problem}" if problem else groups_notice(groups) or actors_notice(pending)
            if reason != self.wait[0]:
                self.wait = reason, now
            seconds = now - self.wait[1]
            self.notice = reason if seconds >= (PLACEMENT_PENDING_SECONDS if groups else ACTOR_PENDING_SECONDS) else ""
            self.placement_problem = problem if seconds >= UNPLACEABLE_SECONDS else ""

    def check_transfer_queue(self, controller_count: int, heartbeat: Heartbeat, now: float) -> None:
        is_gone = controller_count == 0 and (heartbeat.step or 0) > 0
        if not is_gone:
            self.controller_gone_since = None
        elif self.controller_gone_since is None:
            self.controller_gone_since, self.controller_gone_at_step = now, heartbeat.step or 0
        gone_for = 0.0 if self.controller_gone_since is None else now - self.controller_gone_since
        self.transfer_queue_problem = find_transfer_queue_problem(
            controller_count, heartbeat, gone_for, self.controller_gone_at_step
        )


def alive_controller_count(actors: Iterable[Mapping[str, Any]], job_id: str) -> int:
    """The number of a job's TransferQueue controllers that are alive; Ray also lists dead ones."""
    actors = (actor for actor in actors if actor.get("job_id") == job_id and actor.get("class_name") == CONTROLLER_NAME)
    return sum(actor.get("state") == ALIVE for actor in actors)


def find_transfer_queue_problem(controller_count: int, heartbeat: Heartbeat, gone_for: float, gone_at_step: int) -> str:
    """The problem with an attempt's TransferQueue, or "".

    A missing controller is normal before the first data, and for some seconds before the trainer ends.
    gone_for: for how many seconds an attempt that has done a step has had no controller. gone_at_step: its step then.
    """
    if controller_count > 1:
        return f"the job has {controller_count} controllers of TransferQueue: its samples are in several queues"
    if controller_count or gone_for < CONTROLLER_GONE_SECONDS:
        return ""
    if (heartbeat.step or 0) > gone_at_step:
        return "the job trains without a TransferQueue of its own: its samples may be those of another job"
    is_unfinished = (heartbeat.step or 0) < (heartbeat.total_steps or 0)
    return "the controller of the job's TransferQueue is gone: no sample can reach the trainer" if is_unfinished else ""


def find_dead_server(actors: Iterable[Mapping[str, Any]]) -> str:
    """An inference server that was killed or crashed, and was not replaced by another one of its name, or ""."""
    servers = [actor for actor in actors if SERVER_NAME.search(actor.get("name") or "")]
    alive = {actor["name"] for actor in servers if actor.get("state") != "DEAD"}
    for actor in servers:
        cause = actor.get("death_cause") or {}
        reason = (cause.get("actor_died_error_context") or {}).get("reason")
        if actor["name"] not in alive and (reason == "WORKER_DIED" or "oom_context" in cause):
            return one_line(f"{actor['name']} ({actor.get('class_name')} pid={actor.get('pid')}) was killed or crashed")
    return ""
