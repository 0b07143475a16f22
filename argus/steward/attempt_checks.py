# SPDX-License-Identifier: Apache-2.0
"""The steward's checks of a running attempt in Ray: its TransferQueue, its inference servers, and the resources of its
actors and placement groups.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.archive import Heartbeat
from ..evidence import evidence
from ..hooks.isolation import CONTROLLER_NAME
from ..io.output import one_line
from ..queue import room
from ..queue.room import Demand
from ..ray.api import ALIVE, RayApiError, RayHead
from .decisions import DEFAULT_RESOURCE_WAIT_SECONDS

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
    """The checks of one attempt, with what they remember between the steward's steps.

    transfer_queue_problem: what is wrong with the attempt's TransferQueue, or "".
    notice: what the attempt waits for, or "". engine: an inference server of it that died, or "".
    placement_problem: why an actor or a placement group of it can never start, or "".
    """

    head: RayHead
    demand: Demand
    transfer_queue_problem: str = ""
    notice: str = ""
    engine: str = ""
    placement_problem: str = ""
    next_at: float = 0.0
    gone_since: float | None = None
    gone_at_step: int = 0
    # The resources that the attempt waits for, and since when.
    waiting: tuple[str, float] = ("", 0.0)

    def run(self, job_id: str, progress: Heartbeat, nodes: Sequence[Mapping[str, Any]], now: float) -> None:
        """Ask Ray, if it is time to; job_id: Ray's own id of the attempt. nodes: all that the head lists."""
        if not job_id or now < self.next_at:
            return
        self.next_at = now + CHECK_INTERVAL_SECONDS
        # Failed requests to Ray are repeated.
        with contextlib.suppress(RayApiError, KeyError, TypeError, ValueError):
            actors = evidence.actors(self.head, evidence.job_filter(job_id), detail=True)
            if self.demand.controller_cpus:
                self.check_transfer_queue(alive_controllers(actors, job_id), progress, now)
            self.engine = dead_server(actors)
            pending = [] if progress.step else [actor for actor in actors if actor.get("state") in PENDING_STATES]
            groups = [] if progress.step else pending_groups(room.placement_groups(self.head), job_id)
            problem = placement_problem(pending, groups, latest_nodes(nodes, now))
            waits = problem and f"waits in vain: {problem}"
            waits = waits or placement_notice(groups) or pending_notice(pending)
            if waits != self.waiting[0]:
                self.waiting = waits, now
            waited = now - self.waiting[1]
            self.notice = waits if waited >= (PLACEMENT_PENDING_SECONDS if groups else ACTOR_PENDING_SECONDS) else ""
            self.placement_problem = problem if waited >= UNPLACEABLE_SECONDS else ""

    def check_transfer_queue(self, controllers: int, progress: Heartbeat, now: float) -> None:
        is_gone = controllers == 0 and (progress.step or 0) > 0
        if not is_gone:
            self.gone_since = None
        elif self.gone_since is None:
            self.gone_since, self.gone_at_step = now, progress.step or 0
        gone_for = 0.0 if self.gone_since is None else now - self.gone_since
        self.transfer_queue_problem = transfer_queue_problem(controllers, progress, gone_for, self.gone_at_step)


def alive_controllers(actors: Iterable[Mapping[str, Any]], job_id: str) -> int:
    """The number of living TransferQueue controllers of a job. Ray also lists dead ones."""
    actors = (actor for actor in actors if actor.get("job_id") == job_id and actor.get("class_name") == CONTROLLER_NAME)
    return sum(actor.get("state") == ALIVE for actor in actors)


def transfer_queue_problem(controllers: int, progress: Heartbeat, gone_for: float, gone_at_step: int) -> str:
    """The problem with an attempt's TransferQueue, or "". It has none before its first data, and at its end.

    gone_for, gone_at_step: for how long, and since which step, an attempt that has done a step has no controller.
    """
    if controllers > 1:
        return f"the job has {controllers} controllers of TransferQueue: its samples are in several queues"
    if controllers or gone_for < CONTROLLER_GONE_SECONDS:
        return ""
    if (progress.step or 0) > gone_at_step:
        return "the job trains without a TransferQueue of its own: its samples may be those of another job"
    is_unfinished = (progress.step or 0) < (progress.total_steps or 0)
    return "the controller of the job's TransferQueue is gone: no sample can reach the trainer" if is_unfinished else ""


def dead_server(actors: Iterable[Mapping[str, Any]]) -> str:
    """An inference server that died without having been asked to, and that no other one replaces, or ""."""
    servers = [actor for actor in actors if SERVER_NAME.search(actor.get("name") or "")]
    alive = {actor["name"] for actor in servers if actor.get("state") != "DEAD"}
    for actor in servers:
        cause = actor.get("death_cause") or {}
        reason = (cause.get("actor_died_error_context") or {}).get("reason")
        if actor["name"] not in alive and (reason == "WORKER_DIED" or "oom_context" in cause):
            return one_line(f"{actor['name']} ({actor.get('class_name')} pid={actor.get('pid')}) was killed or crashed")
    return ""


def pending_notice(actors: Iterable[Mapping[str, Any]]) -> str:
    parts = count_texts(
        f"{actor.get('class_name')} ({resources(actor.get('required_resources') or {})})" for actor in actors
    )
    return one_line(f"waits for its actors to start: {parts}") if parts else ""


def placement_notice(groups: Iterable[Mapping[str, Any]]) -> str:
    parts = count_texts(resources(bundle) for group in groups for bundle in room.bundles(group))
    return f"waits for its placement: {parts} are not free together" if parts else ""


def count_texts(parts: Iterable[str]) -> str:
    return ", ".join(f"{count} x {part}" for part, count in sorted(Counter(parts).items()))


def resources(amounts: Mapping[str, float]) -> str:
    """Resources as text; in a placement group, each one also has the names of group and bundle."""
    texts = {name.partition("_group_")[0]: f"{amount:g}" for name, amount in amounts.items()}
    return " and ".join(f"{texts[name]} {name}" for name in sorted({*texts} - {"bundle"})) or "no resources"


def pending_groups(groups: Iterable[Mapping[str, Any]], job_id: str) -> list[Mapping[str, Any]]:
    job_groups = (group for group in groups if group.get("creator_job_id") == job_id)
    return [group for group in job_groups if group.get("state") in room.PENDING_GROUP_STATES]


def latest_nodes(nodes: Iterable[Mapping[str, Any]], now: float) -> list[Mapping[str, Any]]:
    """The last node of each name that is alive, or ended so recently that it may come back."""
    last = {node["node_name"]: node for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0))}
    since = (now - DEFAULT_RESOURCE_WAIT_SECONDS) * 1000
    return [node for node in last.values() if node["state"] == ALIVE or node.get("end_time_ms", 0) > since]


def placement_problem(
    actors: Iterable[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]
) -> str:
    """Why a pending actor or placement group can never start on these nodes, even if they are free, or ""."""
    needs = [(f"actor {actor.get('class_name')}", actor.get("required_resources") or {}) for actor in actors]
    needs += [(group_name(group), bundle) for group in groups for bundle in room.bundles(group)]
    problems = [
        f"{who} needs {resources(need)} on one node, and {nearest(nodes, need)}"
        for who, need in needs
        if all(capacity_share(node, need) < 1 for node in nodes)
    ]
    # Ray's API does not list the strategy of a group, and Ray itself judges by nodes that are alive and get new work.
    if not problems and all(node["state"] == ALIVE and not node.get("draining") for node in nodes):
        states = [(group, (group.get("stats") or {}).get("scheduling_state")) for group in groups]
        problems = [infeasible_problem(group, nodes) for group, state in states if state == "INFEASIBLE"]
    # Ray lists actors and groups in any order.
    return one_line(min(problems, default=""))


def infeasible_problem(group: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    bundles = room.bundles(group)
    total = {name: sum(bundle.get(name, 0) for bundle in bundles) for bundle in bundles for name in bundle}
    needs = f"{group_name(group)} needs {count_texts(map(resources, bundles))}"
    where = f"on these {len(nodes)} nodes, with the head"
    return f"{needs}, infeasible for Ray {where}; for all on one node ({resources(total)}), {nearest(nodes, total)}"


def group_name(group: Mapping[str, Any]) -> str:
    return f"placement group {group.get('name') or group.get('placement_group_id')}"


def nearest(nodes: Iterable[Mapping[str, Any]], needs: Mapping[str, float]) -> str:
    node = max(nodes, key=lambda node: (capacity_share(node, needs), node["node_name"]))
    has = {name: node["resources_total"].get(name, 0) for name in needs}
    return f"the nearest, {node['node_name']}, has {resources(has)}"


def capacity_share(node: Mapping[str, Any], needs: Mapping[str, float]) -> float:
    """The share of the scarcest resource that a node has in total; from 1 on, it could hold everything."""
    # Resources of a placement group are in no node's list; node:10.0.0.7 is of a node whose address may change.
    amounts = {name: need for name, need in needs.items() if "_group_" not in name and name[:5] != "node:"}
    return min((node["resources_total"].get(name, 0) / need for name, need in amounts.items() if need > 0), default=1.0)
