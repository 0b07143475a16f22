# SPDX-License-Identifier: GPL-3.0-or-later
"""Device files of a machine and who can open them, and which nodes get those of RDMA (InfiniBand and RoCE)."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..network.hcas import Hca

# Holds all RDMA devices. NCCL opens uverbs* for data, and rdma_cm to connect.
INFINIBAND_DIR = "/dev/infiniband"
# RDMA locks the memory that it registers: far more than the default limit of 64 KiB to 8 MiB.
UNLIMITED_MEMLOCK = "memlock:-1:-1"
# With this capability root locks memory without a limit. To a user without root, only Podman can give it.
LOCK_CAPABILITY = "IPC_LOCK"
# The values of ray_node_rdma.
RDMA_AUTO, RDMA_ALWAYS, RDMA_NEVER = "auto", "true", "false"


@dataclass(frozen=True)
class DeviceFile:
    """A device file with its owner and permissions."""

    path: str
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, root: Path, path: str) -> DeviceFile:
        """root: the directory that holds /dev."""
        status = (root / path.lstrip("/")).stat()
        return cls(path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def is_openable(file: DeviceFile, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user can read and write the device.

    As in the kernel, only the first class that fits counts: owner, group or others.
    """
    if uid == 0:
        return True
    if file.uid == uid:
        return file.mode & 0o600 == 0o600
    access = 0o060 if file.gid in groups else 0o006
    return file.mode & access == access


def groups_of(files: Sequence[DeviceFile]) -> tuple[str, ...]:
    """Return the groups that may open the devices, usually video and render.

    They are numbers, because a group may have another number in an image than on the machine.
    """
    return tuple(str(gid) for gid in sorted({file.gid for file in files if file.gid and file.mode & 0o060 == 0o060}))


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
