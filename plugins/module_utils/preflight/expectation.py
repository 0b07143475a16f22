# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the inventory expects of a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..cluster.devices import NEVER
from ..cluster.ports import PortRange


@dataclass(frozen=True)
class Expectation:
    """What one machine must have; a zero, an empty text or an empty list expects nothing.

    gpus: the minimum; None accepts any number.
    gpu_model: words in the name of each GPU. gpu_memory_gib: of each GPU, nearly at least.
    hcas: the minimum of HCA ports that are up.
    shared_root: its path on the machine.
    shared_root_fstypes: the file-system types that it may have, as the kernel names them ("nfs4", "lustre").
    disk_free_gib: where the engine keeps images and containers.
    shm_gib: of /dev/shm, where nodes use that of the machine. object_store_gib: of memory, for the largest node.
    user: the nodes' user, as uid:gid; empty for the default.
    token_file: its path on the machine.
    ports: what the nodes of the machine listen on.
    rdma: "auto" or "true" if nodes of the machine may get the devices of RDMA, or "false".
    groups: the nodes' further groups.
    address: at which the nodes of other machines reach this one; empty if nodes do not use the machine's network.
    trains: whether the machine has workers.
    network_env: what the inventory sets of the variables that are derived otherwise.
    python: that of a node without a container; empty where nodes are containers.
    """

    gpus: int | None = None
    gpu_model: str = ""
    gpu_memory_gib: float = 0.0
    hcas: int = 0
    shared_root: str = ""
    shared_root_fstypes: Sequence[str] = ()
    memory_gib_per_gpu: float = 0.0
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    shm_gib: float = 0.0
    object_store_gib: float = 0.0
    user: str = ""
    token_file: str = ""
    ports: Sequence[PortRange] = ()
    rdma: str = NEVER
    groups: Sequence[str] = ()
    address: str = ""
    trains: bool = True
    network_env: Mapping[str, str] = field(default_factory=dict)
    python: str = ""

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Expectation:
        return cls(**{**given, "ports": tuple(PortRange(**ports) for ports in given.get("ports", ()))})
