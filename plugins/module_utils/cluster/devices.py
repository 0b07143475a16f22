# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices of nodes: RDMA (InfiniBand and RoCE), and AMD's GPUs with the environment of ROCm.

GPUs are read from the kernel driver's own tree, without a tool of ROCm.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..network.interfaces import Hca, read_text

# All devices of RDMA lie in it; NCCL opens its uverbs* for data, and rdma_cm to connect.
INFINIBAND = "/dev/infiniband"
# Registered memory is locked, far more than the default limit of 64 KiB to 8 MiB.
UNLIMITED_MEMLOCK = "memlock:-1:-1"
# What root needs instead of the limit; a user without root gets it from Podman only.
LOCK_CAPABILITY = "IPC_LOCK"
AUTO, ALWAYS, NEVER = "auto", "true", "false"


@dataclass(frozen=True)
class DeviceFile:
    """A device of a machine, with the permissions of its file."""

    path: str
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, root: Path, path: str) -> DeviceFile:
        """root: the directory that holds /dev."""
        status = (root / path.lstrip("/")).stat()
        return cls(path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def gets_rdma(setting: str, worker: bool, host_network: bool, hcas: Sequence[Hca], files: Sequence[DeviceFile]) -> bool:
    """Whether a node gets the devices of RDMA.

    A port that is down does not change it: a link that fails for a minute must not create the nodes again without RDMA.
    Heads do not train. In a container network, RoCE has no addresses.
    """
    if setting != AUTO:
        return setting == ALWAYS
    return worker and host_network and bool(hcas) and bool(files)


def openable(file: DeviceFile, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user can read and write the device; the kernel takes the first class that fits, and no other."""
    if uid == 0:
        return True
    if file.uid == uid:
        return file.mode & 0o600 == 0o600
    access = 0o060 if file.gid in groups else 0o006
    return file.mode & access == access


KFD, DRI = "/dev/kfd", "/dev/dri"
NODES = "sys/class/kfd/kfd/topology/nodes"
MIB = 1 << 20
# The graphics of a desktop processor have less memory of their own, and train nothing.
MIN_VRAM_MIB = 8192
# Heaps of memory on the GPU itself, visible to the processor or not (the kernel's kfd_topology.h).
OWN_HEAPS = (1, 2)
PROPERTY = re.compile(r"^(\w+) (\d+)$", re.M)
VISIBLE = "HIP_VISIBLE_DEVICES"
# Variables that select GPUs, and why a node with ROCm cannot set them.
REFUSED = {
    "ROCR_VISIBLE_DEVICES": f"Ray raises without {VISIBLE}, and verl raises with it",
    "CUDA_VISIBLE_DEVICES": f"verl ends where it differs from {VISIBLE}, which Ray sets for each process",
    VISIBLE: "the plan of the node sets it to its share of the GPUs",
}


def properties(text: str) -> dict[str, int]:
    """A file of properties in the tree of the driver."""
    return {name: int(value) for name, value in PROPERTY.findall(text)}


def read_gpus(root: Path) -> list[str]:
    """The devices of AMD's GPUs in the order in which HIP counts them; none without the driver."""
    gpus: list[str] = []
    for node in sorted((root / NODES).glob("[0-9]*"), key=lambda path: int(path.name)):
        node_properties = properties(read_text(node / "properties"))
        if not node_properties.get("simd_count"):
            continue  # a processor
        banks = [properties(read_text(bank)) for bank in node.glob("mem_banks/*/properties")]
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in OWN_HEAPS) // MIB
        if memory >= MIN_VRAM_MIB:
            gpus.append(f"{DRI}/renderD{node_properties.get('drm_render_minor', 0)}")
    return gpus


def read_devices(root: Path, gpus: Iterable[str]) -> list[DeviceFile]:
    """The devices that a program needs for these GPUs, as far as they exist."""
    paths = [KFD, *gpus]
    return [DeviceFile.of(root, path) for path in paths if (root / path.lstrip("/")).exists()]


def groups_of(files: Sequence[DeviceFile]) -> tuple[str, ...]:
    """The groups that may open the devices, usually video and render.

    As numbers: those of the machine count, and an image has others of these names.
    """
    return tuple(str(gid) for gid in sorted({file.gid for file in files if file.gid and file.mode & 0o060 == 0o060}))


def environment_problem(variables: Mapping[str, object]) -> str:
    """Why an environment cannot be that of a node with ROCm, or ""."""
    for name, why in REFUSED.items():
        if name in variables:
            return f"{name} cannot be set with rocm: {why}; remove it from ray_node_env"
    return ""
