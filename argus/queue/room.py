# SPDX-License-Identifier: Apache-2.0
"""Whether the cluster has room for a job now: Ray's free resources, less those of jobs that were just submitted.

A job takes its GPUs seconds to minutes after its submission. Until then Ray counts them as free, and a second job would
hang without a message. So each submission stores the demand of the job in Ray's metadata: Ray's list of jobs then has
the demands of all jobs of the cluster, whichever shared root they are on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..evidence.evidence import is_attempt_of
from ..ray.api import RayHead
from ..ray.records import JobRecord, WorkerCapacity
from .demand import Demand, capacity_problem, exclusive_problem, reserve

# A job without a placement group after this time does not wait for one: Ray counts what it uses as taken.
UNPLACED_SECONDS = 600.0
# The states in which Ray lists a job that has not ended.
ACTIVE_STATES = ("PENDING", "RUNNING")
# The states of a placement group that waits for resources.
PENDING_GROUP_STATES = ("PENDING", "RESCHEDULING")
PLACEMENT_GROUPS = "/api/v0/placement_groups?detail=1&limit=10000"


@dataclass(frozen=True)
class Room:
    """The free resources of the cluster as Ray counted them at a moment."""

    workers: tuple[WorkerCapacity, ...] = ()
    # The jobs whose resources Ray counted as taken, by Ray's submission ids.
    placed: frozenset[str] = field(default_factory=frozenset)

    def problem(self, submission_id: str, demand: Demand, jobs: Iterable[Mapping[str, Any]]) -> str:
        """Why a job cannot start now, or "". jobs: Ray's records, which may be newer than the free resources."""
        others = [job for job in list_active(jobs) if not is_attempt_of(submission_id, job)]
        if problem := exclusive_problem(demand, others) or capacity_problem(self.workers, demand):
            return problem
        starting = self.starting_demands(others)
        problem = capacity_problem(reserve(self.workers, starting.values()), demand)
        return f"{problem}, once {', '.join(starting)} has what it needs" if problem else ""

    def starting_demands(self, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Demand]:
        """The demands of active jobs that do not have their resources yet, by Ray's submission ids."""
        waiting = (job for job in list_active(jobs) if job["submission_id"] not in self.placed)
        return {str(job["submission_id"]): demand for job in waiting if (demand := pending_demand(job))}

    def remaining_workers(self, jobs: Iterable[Mapping[str, Any]]) -> list[WorkerCapacity]:
        """The free resources after the active jobs have taken theirs."""
        return reserve(self.workers, self.starting_demands(jobs).values())


def list_active(jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs that have not ended, in the order of their submission."""
    active = [job for job in jobs if job.get("status") in ACTIVE_STATES and isinstance(job.get("submission_id"), str)]
    return sorted(active, key=lambda job: (job.get("start_time") or 0, job["submission_id"]))


def pending_demand(job: Mapping[str, Any]) -> Demand | None:
    """What an active job without its resources still takes; None if this collection did not submit it."""
    demand = Demand.from_job(job)
    # Once the job is RUNNING, its driver has its CPUs.
    return replace(demand, driver_cpus=0) if demand and not JobRecord.from_api(job).pending else demand


def list_placement_groups(head: RayHead) -> list[dict[str, Any]]:
    return list(head.get(PLACEMENT_GROUPS)["data"]["result"]["result"])


def read_placed_ids(head: RayHead, now: float) -> frozenset[str]:
    """The active jobs that have their resources. Ask before the free resources are counted, which then lack theirs."""
    jobs = [job for job in list_active(head.jobs()) if Demand.from_job(job)]
    return placed_ids(jobs, list_placement_groups(head), now) if jobs else frozenset()


def read_room(head: RayHead, now: float) -> tuple[Room, list[dict[str, Any]]]:
    """The room of the cluster, and Ray's records of jobs after it. Raises RayApiError, KeyError and TypeError."""
    placed = read_placed_ids(head, now)
    return Room(tuple(head.capacity()), placed), head.jobs()


def placed_ids(jobs: Iterable[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], now: float) -> frozenset[str]:
    """The jobs that have their resources, by Ray's submission ids: most have a placement group with all their GPUs."""
    gpus: dict[str, float] = {}
    for group in groups:
        if group.get("state") == "CREATED":
            job_id = str(group.get("creator_job_id"))
            gpus[job_id] = gpus.get(job_id, 0) + sum(bundle.get("GPU", 0) for bundle in bundle_resources(group))
    waiting = {str(group.get("creator_job_id")) for group in groups if group.get("state") in PENDING_GROUP_STATES}
    ids = set()
    for job in jobs:
        demand, job_id = Demand.from_job(job), str(job.get("job_id"))
        has_all = demand is not None and not demand.is_driver_alone and gpus.get(job_id, -1) >= demand.all_gpus
        is_old = now - (job.get("start_time") or now * 1000) / 1000 > UNPLACED_SECONDS and job_id not in waiting
        is_certain = is_old or (demand is not None and demand.is_driver_alone)
        if has_all or (is_certain and job["status"] == "RUNNING"):
            ids.add(str(job["submission_id"]))
    return frozenset(ids)


def bundle_resources(group: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """The resources of each bundle of a placement group, as the state API lists them."""
    return [bundle.get("unit_resources") or {} for bundle in group.get("bundles") or ()]
