# SPDX-License-Identifier: Apache-2.0
"""Computes the size of a job and the capacity of a cluster, and checks whether the job can ever fit.

Without these checks, Ray and verl's SFT trainer would wait for ever, without a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.plan import COMMAND, Pool
from ..common.findings import Finding, about
from ..common.text import one_line
from ..queue.demand import UNITS_KEY
from .spec import POOLS, JobSpec
from .verl_releases import EVAL, GRPO, PPO, SFT

RESOURCES_KEY = "ray.resources"
# The CPUs of TransferQueue's controller: transfer_queue/controller.py
CONTROLLER_CPUS = 1
# The CPUs that verl requests with each GPU, in a bundle of its placement groups: single_controller/ray/base.py
CPUS_PER_GPU = {SFT: 10, PPO: 3, GRPO: 3, EVAL: 3, COMMAND: 0}


@dataclass(frozen=True)
class Cluster:
    """The workers of a cluster that are alive and get new work."""

    accelerator: str  # of all workers: cpu, cuda or rocm; "mixed" if they differ
    workers: int
    gpus_per_node: int  # of the worker with the fewest
    cpus_per_node: float  # of the worker with the fewest

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> Cluster:
        """The cluster of the nodes of Ray's state API, where a replaced node is also alive for a while."""
        alive = {node["node_name"]: node for node in nodes if node["state"] == "ALIVE" and not node.get("draining")}
        workers = [node for node in alive.values() if node["resources_total"].get("worker_node")]
        totals = [node["resources_total"] for node in workers]
        labels = {(node.get("labels") or {}).get("argus.verl/accelerator", "cuda") for node in workers}
        return cls(
            accelerator=labels.pop() if len(labels) == 1 else "mixed",
            workers=len(workers),
            gpus_per_node=int(min((total.get("GPU", 0) for total in totals), default=0)),
            cpus_per_node=min((total.get("CPU", 0) for total in totals), default=0),
        )


@dataclass(frozen=True)
class JobSize:
    """The size of a job without its driver."""

    nnodes: int
    gpus_per_node: int
    cpus_per_node: int  # what verl requests with the GPUs

    @property
    def gpus(self) -> int:
        return self.nnodes * self.gpus_per_node

    def max_storage_units(self, cluster: Cluster, driver_cpus: float) -> int:
        """The number of TransferQueue storage units that fit beside the job, its driver and the queue's controller."""
        # verl pins the same number to each worker. Driver and controller may be on any worker that the job uses.
        other_cpus = driver_cpus + CONTROLLER_CPUS if self.nnodes >= cluster.workers else 0
        return int(max(0, cluster.cpus_per_node - self.cpus_per_node - other_cpus)) * cluster.workers


def size_of(spec: JobSpec, cluster: Cluster) -> JobSize:
    """The size that a JobSpec requests: without numbers, all workers and all their GPUs; for a command, none."""
    if spec.workload == COMMAND and not (spec.nnodes or spec.gpus_per_node):
        return JobSize(0, 0, 0)
    gpus = spec.gpus_per_node or cluster.gpus_per_node
    return JobSize(spec.nnodes or cluster.workers, gpus, CPUS_PER_GPU[spec.workload] * gpus)


def pools_of(spec: JobSpec, size: JobSize) -> tuple[Pool, ...]:
    """The GPU pools that a JobSpec asks for beside the trainer's."""
    pools = spec.pools.items()
    return tuple(make_pool(name, nnodes or 0, gpus or size.gpus_per_node) for name, (nnodes, gpus) in pools)


def make_pool(name: str, nnodes: int, gpus: int) -> Pool:
    """A pool with the CPUs that verl requests for it. gpus: on each node."""
    # workers/rollout/replica.py:init_standalone, single_controller/ray/base.py:ResourcePoolManager
    return Pool(name, nnodes, gpus, gpus * (2 if name == "rollout" else CPUS_PER_GPU[GRPO]))


def pool_overrides(pools: Iterable[Pool]) -> dict[str, Any]:
    """The settings of pools, by their keys. The composed configuration must have them."""
    values: dict[str, Any] = {}
    for pool in pools:
        section = POOLS[pool.name]
        values |= {f"{section}.nnodes": pool.nnodes, f"{section}.n_gpus_per_node": int(pool.gpus)}
        values |= {f"{section}.enable_resource_pool": True} if pool.name == "reward" else {}
    return values


def size_findings(spec: JobSpec, cluster: Cluster) -> Iterator[Finding]:
    """Findings about a job that can never fit the cluster."""
    if not cluster.workers:
        yield about("cluster", "no worker is alive", "run cluster_up.yml")
        return
    if cluster.accelerator == "mixed":
        yield about("cluster", "workers have different accelerators", "use workers of one kind in a cluster")
        return
    size, gpus_key = size_of(spec, cluster), "resources.gpus_per_node"
    if size.nnodes > cluster.workers:
        remedy = f"ask for at most {cluster.workers}, or add workers to the inventory and run cluster_up.yml"
        problem = f"asks for {size.nnodes} workers, but {cluster.workers} are alive"
        yield about("resources.nnodes", problem, remedy)
    if size.gpus_per_node > cluster.gpus_per_node or (size.nnodes and not size.gpus_per_node):
        problem = f"asks for {size.gpus_per_node} GPUs per worker, but workers have {cluster.gpus_per_node}"
        yield about(gpus_key, problem, f"ask for at most {cluster.gpus_per_node}")
    # The driver starts first, on one of the workers. A job that uses all workers also uses that one.
    driver = spec.entrypoint_num_cpus if size.nnodes >= cluster.workers else 0
    if size.cpus_per_node + driver > cluster.cpus_per_node:
        cpus = f"{size.cpus_per_node} CPUs per worker" + (f" and {driver:g} for the driver" if driver else "")
        problem = (
            f"{spec.workload} on {size.gpus_per_node} GPUs asks for {cpus}, workers have {cluster.cpus_per_node:g}"
        )
        yield about(gpus_key, problem, "ask for fewer GPUs, or set ray_node_cpus")


def storage_findings(spec: JobSpec, cluster: Cluster, units: int) -> list[Finding]:
    """A finding if the storage units of TransferQueue can never fit beside their job: verl would wait for ever."""
    size = size_of(spec, cluster)
    max_units = size.max_storage_units(cluster, spec.entrypoint_num_cpus)
    if units <= max_units:
        return []
    share = -(-units // cluster.workers)
    # Each unit takes a CPU.
    problem = (
        f"is {units}: TransferQueue takes {share} CPUs of every worker, besides {CONTROLLER_CPUS} for its controller, "
        f"{spec.entrypoint_num_cpus:g} for the driver and {size.cpus_per_node} per worker for {spec.workload}; workers "
        f"have {cluster.cpus_per_node:g}"
    )
    remedy = f"set it to {max_units} in trainer_overrides" if max_units else "ask for fewer GPUs, or set ray_node_cpus"
    return [about(UNITS_KEY, problem, remedy)]


def driver_findings(spec: JobSpec, nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """A finding if no worker has the resources that the driver asks for, even when nothing else runs.

    nodes: as Ray's state API returns them.
    """
    alive = (node for node in nodes if node["state"] == "ALIVE")
    workers = [total for node in alive if (total := node["resources_total"]).get("worker_node")]
    requested = {**spec.entrypoint_resources, "CPU": spec.entrypoint_num_cpus, "GPU": spec.gpus}
    amounts = {name: amount for name, amount in requested.items() if amount}
    if not workers or any(all(total.get(name, 0) >= amounts[name] for name in amounts) for total in workers):
        return []
    most = {name: max(total.get(name, 0) for total in workers) for name in amounts}
    ask, largest = (
        ", ".join(f"{amount:g} {one_line(name, 100)}" for name, amount in part.items()) for part in (amounts, most)
    )
    problem = f"no worker has all of {ask} for the driver; the largest amounts are {largest}"
    return [about(RESOURCES_KEY, problem, "ask for what one worker has; cluster_status.yml shows them")]
