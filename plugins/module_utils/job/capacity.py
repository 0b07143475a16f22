# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..findings import Finding
from .verl_releases import GRPO, PPO, SFT


@dataclass(frozen=True)
class Cluster:
    """The cluster as it is now: workers alive, and the least that each of them has."""

    accelerator: str
    workers: int
    gpus_per_node: int
    cpus_per_node: float

    @classmethod
    def of(cls, nodes: Sequence[Mapping[str, Any]]) -> Cluster:
        """From the nodes as Ray's state API gives them; for a while it holds one for alive that was replaced."""
        alive = {node["node_name"]: node for node in nodes if node["state"] == "ALIVE"}
        workers = [node for node in alive.values() if node["resources_total"].get("worker_node")]
        totals = [node["resources_total"] for node in workers]
        labels = {(node.get("labels") or {}).get("argus.verl/accelerator", "cuda") for node in workers}
        return cls(
            accelerator=labels.pop() if len(labels) == 1 else "mixed",
            workers=len(workers),
            gpus_per_node=int(min((total.get("GPU", 0) for total in totals), default=0)),
            cpus_per_node=min((total.get("CPU", 0) for total in totals), default=0),
        )


def size(spec: Mapping[str, Any], cluster: Cluster) -> tuple[int, int]:
    """nnodes and gpus_per_node; what is not said is the whole cluster."""
    asked = spec["resources"]
    return asked.get("nnodes") or cluster.workers, asked.get("gpus_per_node") or cluster.gpus_per_node


# CPUs that verl asks for beside each GPU of a process group's bundle (single_controller/ray/base.py).
CPUS_PER_GPU = {SFT: 10, PPO: 3, GRPO: 3}


def size_findings(spec: Mapping[str, Any], cluster: Cluster) -> list[Finding]:
    """A job that could only wait for ever: verl's SFT says nothing, and hangs."""
    if not cluster.workers:
        return [Finding("cluster", "no worker is alive", "run cluster_up.yml")]
    if cluster.accelerator == "mixed":
        return [Finding("cluster", "workers have different accelerators", "use workers of one kind in a cluster")]
    found = []
    nnodes, gpus = size(spec, cluster)
    if nnodes > cluster.workers:
        todo = f"ask for at most {cluster.workers}, or add workers to the inventory and run cluster_up.yml"
        found.append(Finding("resources.nnodes", f"asks for {nnodes} workers, {cluster.workers} are alive", todo))
    if gpus > cluster.gpus_per_node or not gpus:
        todo = f"ask for at most {cluster.gpus_per_node}"
        found.append(
            Finding(
                "resources.gpus_per_node", f"asks for {gpus} GPUs a worker, they have {cluster.gpus_per_node}", todo
            )
        )
    cpus = CPUS_PER_GPU[spec["workload"]] * gpus
    # The driver is on one of the workers first, and a job on all of them cannot go around it.
    driver = spec["ray"]["resources"]["entrypoint_num_cpus"] if nnodes >= cluster.workers else 0
    if cpus + driver > cluster.cpus_per_node:
        asked = f"{cpus} CPUs a worker" + (f" and {driver:g} for the driver" if driver else "")
        what = f"{spec['workload']} on {gpus} GPUs asks for {asked}, they have {cluster.cpus_per_node:g}"
        found.append(Finding("resources.gpus_per_node", what, "ask for fewer GPUs, or set ray_node_cpus"))
    return found
