# SPDX-License-Identifier: Apache-2.0
"""Whether the cluster has room for a job now. Resources of jobs that were just accepted count as taken.

A job takes its GPUs seconds to minutes after its submission. Until then Ray counts them as free, and a second job would
hang without a message. So each submission stores the demand of the job in Ray's metadata, where Ray's list of jobs has
it for the whole cluster, whichever shared root a job is on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..archive.plan import Plan, Pool
from ..evidence.evidence import is_of
from ..io.reading import UnreadableError, parse_json
from ..io.schema import MalformedError, parse
from ..ray.api import RayHead
from ..ray.records import JobRecord, WorkerCapacity

# The key of Ray's metadata of a job.
DEMAND_KEY = "argus_verl_demand"
# A job that has no placement group after this time takes its resources in another way, which Ray counts.
UNPLACED_SECONDS = 600.0
ACTIVE = ("PENDING", "RUNNING")
# The states of a placement group that waits for resources.
PENDING_GROUP_STATES = ("PENDING", "RESCHEDULING")
PLACEMENT_GROUPS = "/api/v0/placement_groups?detail=1&limit=10000"
UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@dataclass(frozen=True)
class Demand:
    """The resources that a job needs of the workers.

    gpus, cpus: on each of `nnodes` workers. pools: beside these.
    driver_cpus, controller_cpus: on any worker, of the driver and of TransferQueue's controller.
    driver_gpus: of the driver, on the worker with its CPUs.
    storage_units: of TransferQueue. verl pins them to the workers in turn, each with a CPU.
    exclusive: the name of a service that the cluster can have only once; "" for most jobs.
    tags: by which `job_limits` counts the job.
    """

    nnodes: int = 0
    gpus: float = 0
    cpus: float = 0
    driver_cpus: float = 0
    controller_cpus: float = 0
    storage_units: int = 0
    exclusive: str = ""
    tags: tuple[str, ...] = ()
    pools: tuple[Pool, ...] = ()
    driver_gpus: float = 0

    @classmethod
    def of(cls, plan: Plan) -> Demand:
        return cls(
            nnodes=plan.nnodes,
            gpus=plan.gpus_per_node,
            cpus=plan.cpus_per_node,
            driver_cpus=plan.entrypoint_num_cpus,
            driver_gpus=plan.entrypoint_num_gpus,
            controller_cpus=1 if plan.transfer_queue else 0,
            storage_units=plan.storage_units,
            exclusive=plan.exclusive_backend,
            tags=plan.tags,
            pools=plan.pools,
        )

    def to_metadata(self) -> dict[str, str]:
        return {DEMAND_KEY: json.dumps(asdict(self))}

    @classmethod
    def from_job(cls, record: Mapping[str, Any]) -> Demand | None:
        """The demand in a record of Ray's; None for a job that was not submitted by this collection."""
        try:
            demand = parse(cls, parse_json(record["metadata"][DEMAND_KEY], DEMAND_KEY))
        except (KeyError, TypeError, UnreadableError, MalformedError):
            return None
        amounts = [amount for pool in demand.all_pools for amount in (pool.nnodes, pool.gpus, pool.cpus)]
        further = (demand.driver_cpus, demand.driver_gpus, demand.controller_cpus, demand.storage_units)
        return demand if min(*amounts, *further) >= 0 else None

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        if self.is_driver_alone:
            return (Pool("", 1, self.driver_gpus, self.driver_cpus),)
        return (Pool("", self.nnodes, self.gpus, self.cpus), *self.pools)

    @property
    def is_driver_alone(self) -> bool:
        """Whether the driver does all the work, with what the job asks for."""
        return not self.nnodes

    @property
    def all_gpus(self) -> float:
        return sum(pool.all_gpus for pool in self.all_pools)

    def units_per_worker(self, workers: int) -> int:
        return math.ceil(self.storage_units / workers) if workers else 0

    @property
    def floating_cpus(self) -> tuple[float, ...]:
        """The CPUs that may be on any worker, each on one."""
        driver_cpus = 0 if self.is_driver_alone else self.driver_cpus
        return tuple(cpus for cpus in (driver_cpus, self.controller_cpus) if cpus)


@dataclass(frozen=True)
class Room:
    """The free resources as Ray counted them, and the jobs (by Ray's ids) whose resources it counted as taken."""

    workers: tuple[WorkerCapacity, ...] = ()
    placed: frozenset[str] = field(default_factory=frozenset)

    def problem(self, submission_id: str, demand: Demand, jobs: Iterable[Mapping[str, Any]]) -> str:
        """Why a job cannot start now, or "".

        jobs: Ray's records at this moment, perhaps newer than what Ray counted.
        """
        others = [job for job in list_active(jobs) if not is_of(submission_id, job)]
        if problem := exclusive_problem(demand, others) or capacity_problem(self.workers, demand):
            return problem
        starting = self.starting(others)
        problem = capacity_problem(reserve(self.workers, starting.values()), demand)
        return f"{problem}, once {', '.join(starting)} has what it needs" if problem else ""

    def starting(self, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Demand]:
        """The resources that active jobs are about to take, by Ray's submission ids."""
        waiting = (job for job in list_active(jobs) if job["submission_id"] not in self.placed)
        return {str(job["submission_id"]): demand for job in waiting if (demand := pending_demand(job))}

    def remaining(self, jobs: Iterable[Mapping[str, Any]]) -> list[WorkerCapacity]:
        """The free resources after the active jobs have taken theirs."""
        return reserve(self.workers, self.starting(jobs).values())


def list_active(jobs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The jobs that wait for their driver or run, in the order of their submission."""
    active_jobs = [job for job in jobs if job.get("status") in ACTIVE and isinstance(job.get("submission_id"), str)]
    return sorted(active_jobs, key=lambda job: (job.get("start_time") or 0, job["submission_id"]))


def exclusive_problem(demand: Demand, others: Iterable[Mapping[str, Any]]) -> str:
    for job in others:
        other = Demand.from_job(job)
        if demand.exclusive and other and other.exclusive == demand.exclusive:
            return (
                f"job {job['submission_id']} is active, and TransferQueue's backend {demand.exclusive} serves one job "
                "per cluster"
            )
    return ""


@dataclass(frozen=True)
class Limit:
    """The maximum that jobs with a tag may hold at once; None: any amount."""

    tag: str
    jobs: int | None = None
    gpus: float | None = None

    @classmethod
    def of(cls, limits: Mapping[str, Mapping[str, Any]], tags: Iterable[str]) -> tuple[Limit, ...]:
        """The limits of a job. limits: by tag, or by the name of one for each of its values."""
        return tuple(cls(tag, **limits[key]) for tag in tags for key in (tag, tag.partition("=")[0]) if key in limits)

    def problem(self, demand: Demand, others: Iterable[Mapping[str, Any]]) -> str:
        """Why a job cannot start beside others, or "". others: Ray's records of active jobs."""
        holders = [other for job in others if (other := Demand.from_job(job)) and self.tag in other.tags]
        if self.jobs is not None and len(holders) >= self.jobs:
            return f"as many jobs with {self.tag} are active as job_limits allows ({self.jobs})"
        gpus = sum(other.all_gpus for other in holders)
        if self.gpus is not None and gpus + demand.all_gpus > self.gpus:
            text = f"the job needs {demand.all_gpus:g} GPUs, and jobs with {self.tag} hold {gpus:g}"
            return f"{text} of the {self.gpus:g} that job_limits allows"
        return ""


def pending_demand(job: Mapping[str, Any]) -> Demand | None:
    """The resources that an active job is about to take; None if unknown."""
    demand = Demand.from_job(job)
    # The driver of a job that is running has its CPUs.
    return replace(demand, driver_cpus=0) if demand and not JobRecord.from_api(job).pending else demand


def placement_groups(head: RayHead) -> list[dict[str, Any]]:
    return list(head.get(PLACEMENT_GROUPS)["data"]["result"]["result"])


def find_placed_ids(head: RayHead, now: float) -> frozenset[str]:
    """The active jobs that have their resources. Ask this before the free resources, so that these include them."""
    jobs = [job for job in list_active(head.jobs()) if Demand.from_job(job)]
    return placed_ids(jobs, placement_groups(head), now) if jobs else frozenset()


def look(head: RayHead, now: float) -> tuple[Room, list[dict[str, Any]]]:
    """The free resources, and Ray's newer records of jobs. Raises RayApiError, KeyError and TypeError."""
    placed = find_placed_ids(head, now)
    return Room(tuple(head.capacity()), placed), head.jobs()


def placed_ids(jobs: Iterable[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], now: float) -> frozenset[str]:
    """The jobs whose placement groups have all their GPUs, by Ray's submission ids."""
    gpus: dict[str, float] = {}
    for group in groups:
        if group.get("state") == "CREATED":
            job_id = str(group.get("creator_job_id"))
            gpus[job_id] = gpus.get(job_id, 0) + sum(bundle.get("GPU", 0) for bundle in bundles(group))
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


def bundles(group: Mapping[str, Any]) -> list[Mapping[str, float]]:
    """The resources of each bundle of a placement group, as the state API lists them."""
    return [bundle.get("unit_resources") or {} for bundle in group.get("bundles") or ()]


def reserve(workers: Sequence[WorkerCapacity], accepted_jobs: Iterable[Demand]) -> list[WorkerCapacity]:
    """The free resources after these jobs have taken theirs, one after the other.

    Ray gives a job the workers that it fills best. A job that does not fit takes what there is: it came first.
    """
    left = list(workers)
    for demand in accepted_jobs:
        units = demand.units_per_worker(len(left))
        left = [replace(worker, free_cpus=worker.free_cpus - units) for worker in left]
        for pool in demand.all_pools:
            left = without_pool(left, pool)
        for cpus in demand.floating_cpus:
            roomiest = max(left, key=lambda worker: worker.free_cpus, default=None)
            left = [take_resources(worker, 0, cpus) if worker is roomiest else worker for worker in left]
    return left


def without_pool(workers: Sequence[WorkerCapacity], pool: Pool) -> list[WorkerCapacity]:
    """The free resources after a pool has taken its own."""
    fitting = [worker for worker in workers if fits(worker, pool)]
    chosen = {worker.node_id for worker in sorted(fitting, key=by_free)[: pool.nnodes]}
    return [take_resources(worker, pool.gpus, pool.cpus) if worker.node_id in chosen else worker for worker in workers]


def by_free(worker: WorkerCapacity) -> tuple[float, float, str]:
    return worker.free_gpus, worker.free_cpus, worker.name


def fits(worker: WorkerCapacity, pool: Pool) -> bool:
    return worker.free_gpus >= pool.gpus and worker.free_cpus >= pool.cpus


def take_resources(worker: WorkerCapacity, gpus: float, cpus: float) -> WorkerCapacity:
    return replace(worker, free_gpus=worker.free_gpus - gpus, free_cpus=worker.free_cpus - cpus)


def capacity_problem(workers: Sequence[WorkerCapacity], demand: Demand) -> str:
    """Why a job cannot start with these resources free, or ""."""
    units = demand.units_per_worker(len(workers))
    full = [worker for worker in workers if worker.free_cpus < units]
    if full:
        free = ", ".join(f"{worker.name}: {worker.free_cpus:g} CPU" for worker in full)
        return (
            f"TransferQueue needs {units} CPU on every worker for its {demand.storage_units} storage units; available: "
            f"{free}. {UNITS_KEY} sets their number"
        )
    left = [take_resources(worker, 0, units) for worker in workers]
    rest = left
    for pool in demand.all_pools:
        fitting = [worker for worker in rest if fits(worker, pool)]
        if len(fitting) < pool.nnodes:
            seen = rest if pool.name else workers
            free = ", ".join(f"{worker.name}: {worker.free_gpus:g} GPU, {worker.free_cpus:g} CPU" for worker in seen)
            beside = f" and {units} CPU on every worker for TransferQueue's storage units" if units else ""
            who = f"the pool {pool.name} of the job" if pool.name else "the job"
            return (
                f"{who} needs {pool.nnodes} {'worker' if pool.nnodes == 1 else 'workers'} with {pool.gpus:g} GPUs and "
                f"{pool.cpus:g} CPUs{beside} free; available: {len(fitting)} ({free or 'no worker is alive'})"
            )
        rest = without_pool(rest, pool)
    # Ray may place these on any worker with free CPUs: if the job needs that worker, they must fit beside the job.
    cpus = sum(demand.floating_cpus)
    if demand.pools:
        elsewhere = any(worker.free_cpus >= cpus for worker in rest)
        return "" if elsewhere else f"the driver's {cpus:g} CPUs are not free beside the pools of the job"
    fitting = [worker for worker in left if fits(worker, demand.all_pools[0])]
    roomy = [worker for worker in fitting if worker.free_cpus - demand.cpus >= cpus]
    elsewhere = any(worker.free_cpus >= cpus for worker in left if worker not in fitting)
    if len(roomy) >= demand.nnodes or len(fitting) >= demand.nnodes + len(demand.floating_cpus) or elsewhere:
        return ""
    who = "the driver's" if not demand.controller_cpus else "the driver's and TransferQueue's"
    return f"{who} {cpus:g} CPUs are not free beside the job on each worker that the job needs"
