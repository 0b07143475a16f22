# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The capacity of a cluster, and whether a job of a given size can ever fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..common.findings import Finding
from ..launcher.room import UNITS_KEY
from .spec import JobSpec
from .verl_releases import GRPO, PPO, SFT


@dataclass(frozen=True)
class Cluster:
    """The workers that are alive and get new work, and the minimum of GPUs and CPUs that each of them has."""

    accelerator: str
    workers: int
    gpus_per_node: int
    cpus_per_node: float

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> Cluster:
        """From the nodes as Ray's state API returns them. For a while it also lists a replaced node as alive."""
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
    """The size of a job; its driver is not included."""

    nnodes: int
    gpus_per_node: int
    cpus_per_node: int

    @property
    def gpus(self) -> int:
        return self.nnodes * self.gpus_per_node

    def most_storage_units(self, cluster: Cluster, driver_cpus: float) -> int:
        """How many storage units of TransferQueue fit beside the job, its driver and the queue's controller."""
        # verl pins as many to each worker. The driver and the controller may be on one that the job uses.
        anywhere = driver_cpus + CONTROLLER_CPUS if self.nnodes >= cluster.workers else 0
        return int(max(0, cluster.cpus_per_node - self.cpus_per_node - anywhere)) * cluster.workers


# transfer_queue/controller.py
CONTROLLER_CPUS = 1
# CPUs that verl requests with each GPU in a bundle of its placement groups (single_controller/ray/base.py).
CPUS_PER_GPU = {SFT: 10, PPO: 3, GRPO: 3}


def size_of(spec: JobSpec, cluster: Cluster) -> JobSize:
    """The size that a JobSpec requests. Without a number it is all workers, and all their GPUs."""
    gpus = spec.gpus_per_node or cluster.gpus_per_node
    return JobSize(spec.nnodes or cluster.workers, gpus, CPUS_PER_GPU[spec.workload] * gpus)


def size_findings(spec: JobSpec, cluster: Cluster) -> list[Finding]:
    """Why a job can never fit the cluster. verl's SFT would wait forever, without a message."""
    if not cluster.workers:
        return [Finding("cluster", "no worker is alive", "run cluster_up.yml", key="cluster")]
    if cluster.accelerator == "mixed":
        todo = "use workers of one kind in a cluster"
        return [Finding("cluster", "workers have different accelerators", todo, key="cluster")]
    found = []
    size, gpus_key = size_of(spec, cluster), "resources.gpus_per_node"
    if size.nnodes > cluster.workers:
        todo = f"ask for at most {cluster.workers}, or add workers to the inventory and run cluster_up.yml"
        what = f"asks for {size.nnodes} workers, but {cluster.workers} are alive"
        found.append(Finding("resources.nnodes", what, todo, key="resources.nnodes"))
    if size.gpus_per_node > cluster.gpus_per_node or not size.gpus_per_node:
        what = f"asks for {size.gpus_per_node} GPUs per worker, but workers have {cluster.gpus_per_node}"
        found.append(Finding(gpus_key, what, f"ask for at most {cluster.gpus_per_node}", key=gpus_key))
    # The driver starts first, on one of the workers. A job that uses all workers also uses that one.
    driver = spec.entrypoint_num_cpus if size.nnodes >= cluster.workers else 0
    if size.cpus_per_node + driver > cluster.cpus_per_node:
        asked = f"{size.cpus_per_node} CPUs per worker" + (f" and {driver:g} for the driver" if driver else "")
        what = f"{spec.workload} on {size.gpus_per_node} GPUs asks for {asked}, workers have {cluster.cpus_per_node:g}"
        found.append(Finding(gpus_key, what, "ask for fewer GPUs, or set ray_node_cpus", key=gpus_key))
    return found


def storage_findings(spec: JobSpec, cluster: Cluster, units: int) -> list[Finding]:
    """Why the storage units of a TransferQueue can never fit beside their job. verl would wait for ever."""
    size = size_of(spec, cluster)
    most = size.most_storage_units(cluster, spec.entrypoint_num_cpus)
    if units <= most:
        return []
    each = -(-units // cluster.workers)
    what = (
        f"is {units}: TransferQueue takes {each} CPUs of every worker, besides {CONTROLLER_CPUS} for its controller, "
        f"{spec.entrypoint_num_cpus:g} for the driver and {size.cpus_per_node} per worker for {spec.workload}; workers "
        f"have {cluster.cpus_per_node:g}"
    )
    todo = f"set it to {most} in trainer_overrides" if most else "ask for fewer GPUs, or set ray_node_cpus"
    return [Finding(UNITS_KEY, what, todo, key=UNITS_KEY)]
