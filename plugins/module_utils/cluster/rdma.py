# SPDX-License-Identifier: GPL-3.0-or-later
"""RDMA devices (InfiniBand and RoCE) of a machine, and whether a node gets them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..network.hcas import Hca
from .device_files import DeviceFile

# Holds all RDMA devices. NCCL opens uverbs* for data, and rdma_cm to connect.
INFINIBAND_DIR = "/dev/infiniband"
# RDMA locks the memory that it registers: far more than the default limit of 64 KiB to 8 MiB.
UNLIMITED_MEMLOCK = "memlock:-1:-1"
# With this capability root locks memory without a limit. To a user without root, only Podman can give it.
LOCK_CAPABILITY = "IPC_LOCK"
# The values of ray_node_rdma.
RDMA_AUTO, RDMA_ALWAYS, RDMA_NEVER = "auto", "true", "false"


def read_rdma_devices(root: Path) -> list[DeviceFile]:
    """Return the devices that NCCL opens for data: one for each HCA whose driver is complete.

    root: the directory that holds /dev.
    """
    files = sorted((root / INFINIBAND_DIR.lstrip("/")).glob("uverbs*"))
    return [DeviceFile.of(root, f"{INFINIBAND_DIR}/{file.name}") for file in files]


def gets_rdma(setting: str, worker: bool, host_network: bool, hcas: Sequence[Hca], files: Sequence[DeviceFile]) -> bool:
    """Whether a node gets the RDMA devices of its machine.

    setting: ray_node_rdma; with "auto", only workers get them, as heads do not train, and only on the host's network,
    as RoCE has no addresses in a container network.
    hcas: HCA ports in any state. A link that fails for a minute must not cause containers to be recreated.
    """
    if setting != RDMA_AUTO:
        return setting == RDMA_ALWAYS
    return worker and host_network and bool(hcas) and bool(files)
