# SPDX-License-Identifier: Apache-2.0
"""What a job needs of the cluster, the limits of its tags, and whether the free resources of workers are enough."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..archive.plan import Plan, Pool
from ..io.reading import UnreadableError, parse_json
from ..io.schema import MalformedError, parse
from ..ray.records import WorkerCapacity

DEMAND_KEY = "argus_verl_demand"
# The key of verl's configuration with the number of TransferQueue's storage units.
UNITS_KEY = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@dataclass(frozen=True)
class Demand:
    """The resources that a job needs of the workers, as they are stored in Ray's metadata of its attempts."""

    nnodes: int = 0  # the number of workers, each with these GPUs and CPUs; 0 if the driver does all the work
    gpus: float = 0
    cpus: float = 0
    # The CPUs of the driver, and of TransferQueue's controller, each on any worker.
    driver_cpus: float = 0
    controller_cpus: float = 0
    storage_units: int = 0  # TransferQueue's storage units. verl pins them to the workers in turn, each with a CPU.
    exclusive: str = ""  # a backend of TransferQueue that can serve only one job of a cluster; "" for most jobs
    tags: tuple[str, ...] = ()  # the tags by which `job_limits` counts the job
    pools: tuple[Pool, ...] = ()  # more workers, beside the first ones
    driver_gpus: float = 0  # the GPUs of the driver, on the same worker as its CPUs

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
        """The demand in Ray's record of a job; None if this collection did not submit it."""
        try:
            demand = parse(cls, parse_json(record["metadata"][DEMAND_KEY], DEMAND_KEY))
        except (KeyError, TypeError, UnreadableError, MalformedError):
            return None
        amounts = [amount for pool in demand.all_pools for amount in (pool.nnodes, pool.gpus, pool.cpus)]
        amounts += [demand.driver_cpus, demand.driver_gpus, demand.controller_cpus, demand.storage_units]
        return demand if min(amounts) >= 0 else None

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        """All groups of equal workers that the job needs; the first one has no name."""
        if self.is_driver_alone:
            return (Pool("", 1, self.driver_gpus, self.driver_cpus),)
        return (Pool("", self.nnodes, self.gpus, self.cpus), *self.pools)

    @property
    def is_driver_alone(self) -> bool:
        """Whether the driver does all the work, with its own resources."""
        return not self.nnodes

    @property
    def all_gpus(self) -> float:
        return sum(pool.all_gpus for pool in self.all_pools)

    def units_per_worker(self, worker_count: int) -> int:
        return math.ceil(self.storage_units / worker_count) if worker_count else 0

    @property
    def floating_cpus(self) -> tuple[float, ...]:
        """The CPUs of each process that Ray may place on any worker."""
        driver_cpus = 0 if self.is_driver_alone else self.driver_cpus
        return tuple(cpus for cpus in (driver_cpus, self.controller_cpus) if cpus)


def exclusive_problem(demand: Demand, others: Iterable[Mapping[str, Any]]) -> str:
    """Why a job cannot start because another one uses its exclusive backend, or "". others: Ray's active jobs."""
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
    """The maximum that active jobs with a tag may hold together, an entry of `job_limits`; None for no maximum."""

    tag: str
    jobs: int | None = None
    gpus: float | None = None

    @classmethod
    def of(cls, limits: Mapping[str, Mapping[str, Any]], tags: Iterable[str]) -> tuple[Limit, ...]:
        """The limits of a job with these tags. limits: by tag, or by the part of a tag before its "="."""
        return tuple(cls(tag, **limits[key]) for tag in tags for key in (tag, tag.partition("=")[0]) if key in limits)

    def problem(self, demand: Demand, others: Iterable[Mapping[str, Any]]) -> str:
        """Why a job cannot start beside others, or "". others: Ray's active jobs."""
        holders = [other for job in others if (other := Demand.from_job(job)) and self.tag in other.tags]
        if self.jobs is not None and len(holders) >= self.jobs:
            return f"as many jobs with {self.tag} are active as job_limits allows ({self.jobs})"
        gpus = sum(other.all_gpus for other in holders)
        if self.gpus is not None and gpus + demand.all_gpus > self.gpus:
            text = f"the job needs {demand.all_gpus:g} GPUs, and jobs with {self.tag} hold {gpus:g}"
            return f"{text} of the {self.gpus:g} that job_limits allows"
        return ""


def reserve(workers: Sequence[WorkerCapacity], accepted_jobs: Iterable[Demand]) -> list[WorkerCapacity]:
    """The free resources of workers after these jobs have taken theirs, one after the other.

    Ray places a job on the workers that it fills best. A job that does not fit takes what is free: it came first.
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
    """The free resources of workers after a pool has taken its own."""
    fitting = [worker for worker in workers if has_room(worker, pool)]
    chosen = {worker.node_id for worker in sorted(fitting, key=free_resources)[: pool.nnodes]}
    return [take_resources(worker, pool.gpus, pool.cpus) if worker.node_id in chosen else worker for worker in workers]


def free_resources(worker: WorkerCapacity) -> tuple[float, float, str]:
    return worker.free_gpus, worker.free_cpus, worker.name


def has_room(worker: WorkerCapacity, pool: Pool) -> bool:
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
        fitting = [worker for worker in rest if has_room(worker, pool)]
        if len(fitting) < pool.nnodes:
            seen = rest if pool.name else workers
            free = ", ".join(f"{worker.name}: {worker.free_gpus:g} GPU, {worker.free_cpus:g} CPU" for worker in seen)
            units_text = f" and {units} CPU on every worker for TransferQueue's storage units" if units else ""
            who = f"the pool {pool.name} of the job" if pool.name else "the job"
            return (
                f"{who} needs {pool.nnodes} {'worker' if pool.nnodes == 1 else 'workers'} with {pool.gpus:g} GPUs and "
                f"{pool.cpus:g} CPUs{units_text} free; available: {len(fitting)} ({free or 'no worker is alive'})"
            )
        rest = without_pool(rest, pool)
    # Ray may place the driver and the controller on any worker: if the job needs that worker, they must fit beside it.
    cpus = sum(demand.floating_cpus)
    if demand.pools:
        elsewhere = any(worker.free_cpus >= cpus for worker in rest)
        return "" if elsewhere else f"the driver's {cpus:g} CPUs are not free beside the pools of the job"
    fitting = [worker for worker in left if has_room(worker, demand.all_pools[0])]
    roomy = [worker for worker in fitting if worker.free_cpus - demand.cpus >= cpus]
    elsewhere = any(worker.free_cpus >= cpus for worker in left if worker not in fitting)
    if len(roomy) >= demand.nnodes or len(fitting) >= demand.nnodes + len(demand.floating_cpus) or elsewhere:
        return ""
    who = "the driver's" if not demand.controller_cpus else "the driver's and TransferQueue's"
    return f"{who} {cpus:g} CPUs are not free beside the job on each worker that the job needs"
