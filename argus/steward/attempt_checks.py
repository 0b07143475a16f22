# SPDX-License-Identifier: GPL-3.0-or-later
"""What the steward asks of Ray about an attempt that runs: its TransferQueue, its inference servers, and whether its
actors and placement groups have their resources.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..archive.archive import Heartbeat
from ..evidence import evidence
from ..hooks.isolation import CONTROLLER
from ..io.output import one_line
from ..queue import room
from ..queue.room import Demand
from ..ray.api import ALIVE, RayApiError, RayHead

# How often Ray is asked.
ASK_SECONDS = 20.0
# A trainer closes its TransferQueue seconds before it ends.
GONE_SECONDS = 60.0
# A placement group is made within a second if there is room.
WAITING_SECONDS = 20.0
# An actor whose process starts imports verl first.
PENDING_SECONDS = 60.0
PENDING = ("DEPENDENCIES_UNREADY", "PENDING_CREATION")
# The names that verl's releases give to the actors of inference servers, such as vllm_server_0_0.
SERVER = re.compile(r"(?:^|_)server_\d")


@dataclass
class AttemptChecks:
    """The checks of one attempt, with what they remember between the steward's steps.

    queue_problem: what is wrong with the attempt's TransferQueue, or "".
    notice: what the attempt waits for, or "". engine: an inference server of it that died, or "".
    """

    head: RayHead
    demand: Demand
    queue_problem: str = ""
    notice: str = ""
    engine: str = ""
    next_at: float = 0.0
    gone_since: float | None = None
    gone_at_step: int = 0
    # For what it waits, and since when.
    waiting: tuple[str, float] = ("", 0.0)

    def look(self, job_id: str, progress: Heartbeat, now: float) -> None:
        """Ask Ray, if it is time to; job_id: Ray's own id of the attempt."""
        if not job_id or now < self.next_at:
            return
        self.next_at = now + ASK_SECONDS
        # What Ray does not answer is asked again.
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            actors = evidence.actors(self.head, evidence.of_job(job_id), detail=True)
            if self.demand.controller_cpus:
                self.judge_queue(alive_controllers(actors, job_id), progress, now)
            self.engine = dead_server(actors)
            places = "" if progress.step else placement_notice(room.placement_groups(self.head), job_id)
            waits = places or ("" if progress.step else pending_notice(actors))
            if waits != self.waiting[0]:
                self.waiting = waits, now
            limit = WAITING_SECONDS if places else PENDING_SECONDS
            self.notice = waits if now - self.waiting[1] >= limit else ""

    def judge_queue(self, controllers: int, progress: Heartbeat, now: float) -> None:
        is_gone = controllers == 0 and (progress.step or 0) > 0
        if not is_gone:
            self.gone_since = None
        elif self.gone_since is None:
            self.gone_since, self.gone_at_step = now, progress.step or 0
        gone_for = 0.0 if self.gone_since is None else now - self.gone_since
        self.queue_problem = queue_problem(controllers, progress, gone_for, self.gone_at_step)


def alive_controllers(actors: Iterable[Mapping[str, Any]], job_id: str) -> int:
    """How many controllers of TransferQueue a job has. Ray also lists dead ones."""
    own = (actor for actor in actors if actor.get("job_id") == job_id and actor.get("class_name") == CONTROLLER)
    return sum(actor.get("state") == ALIVE for actor in own)


def queue_problem(controllers: int, progress: Heartbeat, gone_for: float, gone_at_step: int) -> str:
    """What is wrong with the TransferQueue of an attempt, or "". It has none before its first data, and at its end.

    gone_for, gone_at_step: for how long, and since which step, an attempt that has done a step has no controller.
    """
    if controllers > 1:
        return f"the job has {controllers} controllers of TransferQueue: its samples are in several queues"
    if controllers or gone_for < GONE_SECONDS:
        return ""
    if (progress.step or 0) > gone_at_step:
        return "the job trains without a TransferQueue of its own: its samples may be those of another job"
    is_unfinished = (progress.step or 0) < (progress.total_steps or 0)
    return "the controller of the job's TransferQueue is gone: no sample can reach the trainer" if is_unfinished else ""


def dead_server(actors: Iterable[Mapping[str, Any]]) -> str:
    """An inference server that died without having been asked to, and that no other one replaces, or ""."""
    servers = [actor for actor in actors if SERVER.search(actor.get("name") or "")]
    alive = {actor["name"] for actor in servers if actor.get("state") != "DEAD"}
    for actor in servers:
        cause = actor.get("death_cause") or {}
        reason = (cause.get("actor_died_error_context") or {}).get("reason")
        if actor["name"] not in alive and (reason == "WORKER_DIED" or "oom_context" in cause):
            return one_line(f"{actor['name']} ({actor.get('class_name')} pid={actor.get('pid')}) was killed or crashed")
    return ""


def pending_notice(actors: Iterable[Mapping[str, Any]]) -> str:
    pending = [actor for actor in actors if actor.get("state") in PENDING]
    counted = Counter(
        f"{actor.get('class_name')} ({asked(actor.get('required_resources') or {})})" for actor in pending
    )
    parts = [f"{count} x {actor}" for actor, count in sorted(counted.items())]
    return one_line(f"waits for its actors to start: {', '.join(parts)}") if parts else ""


def asked(resources: Mapping[str, float]) -> str:
    """What an actor asks for; in a placement group, each resource also has the names of group and bundle."""
    found = {name.partition("_group_")[0]: f"{amount:g}" for name, amount in resources.items()}
    return " and ".join(f"{found[name]} {name}" for name in sorted({*found} - {"bundle"})) or "no resources"


def placement_notice(groups: Iterable[Mapping[str, Any]], job_id: str) -> str:
    waiting = [
        bundle
        for group in groups
        if group.get("creator_job_id") == job_id and group.get("state") in room.UNPLACED
        for bundle in room.bundles(group)
    ]
    counted = Counter((bundle.get("GPU", 0), bundle.get("CPU", 0)) for bundle in waiting)
    parts = [f"{count} x {gpus:g} GPU and {cpus:g} CPU" for (gpus, cpus), count in sorted(counted.items())]
    return f"waits for its placement: {', '.join(parts)} are not free together" if parts else ""
