# SPDX-License-Identifier: Apache-2.0
"""Whether free resources of workers are enough for a job, and what remains of them after other jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..archive.plan import Pool
from ..ray.records import WorkerCapacity
from .demand import UNITS_KEY, Demand


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
