# SPDX-License-Identifier: GPL-3.0-or-later
"""The hosts, groups and variables of the inventory that an allocation of Slurm becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .allocation import AllocatedHost, Allocation
from .scontrol import SlurmError

# The name of the head in the inventory. It is not the host's, as the host may have a worker too.
HEAD_NAME = "ray-head"
# Variables that no role documents: they are for the connection plugin srun, or for people.
SLURM_INVENTORY_VARIABLES = ("slurm_job_name", "slurm_job_id", "slurm_node", "slurm_component", "slurm_memory_mib")


def host_name(node: str) -> str:
    """The name in the inventory for a node of Slurm, whose own name may have capitals, dots and underscores."""
    return re.sub(r"[^a-z0-9-]", "-", node.lower()).strip("-")


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory, with its groups and variables."""

    name: str
    group: str
    variables: Mapping[str, Any]


def inventory_hosts(allocation: Allocation) -> list[InventoryHost]:
    """The head on the first host, and a worker on each host for workers. Raises SlurmError if two names collide."""
    if not allocation.hosts:
        return []
    head = InventoryHost(HEAD_NAME, "head", _variables(allocation, allocation.hosts[0]))
    names: dict[str, str] = {}
    hosts = [head]
    for host in allocation.workers:
        name = host_name(host.name)
        if names.setdefault(name, host.name) != host.name or name == HEAD_NAME:
            raise SlurmError(f"{host.name} cannot be told from {names[name]} in the inventory")
        size = {"ray_node_gpus": host.gpus, "ray_node_cpus": host.cpus, "slurm_memory_mib": host.memory_mib}
        present = {key: value for key, value in size.items() if value}
        hosts.append(InventoryHost(name, "workers", {**_variables(allocation, host), **present}))
    return hosts


def _variables(allocation: Allocation, host: AllocatedHost) -> dict[str, Any]:
    component = {} if host.component is None else {"slurm_component": host.component}
    return {"ansible_host": host.address, "slurm_node": host.name, **component}


def group_variables(allocation: Allocation, uid: int) -> dict[str, Any]:
    """The variables of the group `ray`. uid: of the job's user."""
    ends = {} if allocation.ends_at is None else {"cluster_ends_at": int(allocation.ends_at)}
    return {
        "slurm_job_id": allocation.job_id,
        "ray_node_runtime": "process",
        # The step of the job makes and removes it on each host.
        "cluster_state_dir": f"/tmp/argus-verl-{uid}-{allocation.job_id}",  # noqa: S108
        **ends,
    }
