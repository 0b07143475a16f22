# SPDX-License-Identifier: GPL-3.0-or-later
"""Device files of a machine: who can open them, which nodes get those of RDMA, and what nodes need for AMD GPUs."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..network.interfaces import Hca, read_text
from .names import RDMA_ALWAYS, RDMA_AUTO

# Holds all RDMA devices. NCCL opens uverbs* for data, and rdma_cm to connect.
INFINIBAND_DIR = "/dev/infiniband"
# RDMA locks the memory that it registers: far more than the default limit of 64 KiB to 8 MiB.
UNLIMITED_MEMLOCK = "memlock:-1:-1"
# With this capability root locks memory without a limit. To a user without root, only Podman can give it.
LOCK_CAPABILITY = "IPC_LOCK"


@dataclass(frozen=True)
class DeviceFile:
    """A device file with its owner and permissions."""

    path: str
    mode: int
    uid: int
    gid: int

    @classmethod
    def of(cls, root: Path, path: str) -> DeviceFile:
        """root: / or, in tests, a directory in its place."""
        status = (root / path.lstrip("/")).stat()
        return cls(path, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def is_openable(file: DeviceFile, uid: int, groups: Sequence[int]) -> bool:
    """Whether a user can read and write it. Only the owner's bits count for the owner, the group's for its members."""
    if uid == 0:
        return True
    if file.uid == uid:
        return file.mode & 0o600 == 0o600
    access = 0o060 if file.gid in groups else 0o006
    return file.mode & access == access


def group_ids(files: Sequence[DeviceFile]) -> tuple[str, ...]:
    """Return the gids of groups that may open the devices, as an image may have other gids for video and render."""
    return tuple(str(gid) for gid in sorted({file.gid for file in files if file.gid and file.mode & 0o060 == 0o060}))


def read_rdma_devices(root: Path) -> list[DeviceFile]:
    """Return the devices that NCCL opens for data: one for each HCA whose driver is complete."""
    files = sorted((root / INFINIBAND_DIR.lstrip("/")).glob("uverbs*"))
    return [DeviceFile.of(root, f"{INFINIBAND_DIR}/{file.name}") for file in files]


def gets_rdma(setting: str, worker: bool, host_network: bool, hcas: Sequence[Hca], files: Sequence[DeviceFile]) -> bool:
    """Whether a node gets the RDMA devices of its machine.

    With RDMA_AUTO, heads do not, as they do not train, and RoCE has no addresses in a container network.
    hcas: in any state. A link that fails for a minute must not cause containers to be recreated.
    """
    if setting != RDMA_AUTO:
        return setting == RDMA_ALWAYS
    return worker and host_network and bool(hcas) and bool(files)


# AMD GPUs are read from sysfs, so rocm-smi is not needed.
KFD, DRI_DIR = "/dev/kfd", "/dev/dri"
# One directory for each processor and each GPU.
KFD_TOPOLOGY = "/sys/class/kfd/kfd/topology/nodes"
MIB = 1 << 20
# A GPU in a desktop processor has less memory of its own, and is not for training.
MIN_VRAM_MIB = 8192
# Types of memory on the GPU itself, visible to the processor or not (the kernel's kfd_topology.h).
VRAM_HEAP_TYPES = (1, 2)
PROPERTY_LINE = re.compile(r"^(\w+) (\d+)$", re.M)
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
# Variables that select GPUs, and why a node with ROCm cannot set them.
REFUSED_ROCM_VARIABLES = {
    "ROCR_VISIBLE_DEVICES": f"Ray raises without {HIP_VISIBLE_DEVICES}, and verl raises with it",
    "CUDA_VISIBLE_DEVICES": f"verl ends where it differs from {HIP_VISIBLE_DEVICES}, which Ray sets for each process",
    HIP_VISIBLE_DEVICES: "the plan of the node sets it to its share of the GPUs",
}


def parse_properties(text: str) -> dict[str, int]:
    """Parse a file "properties" below KFD_TOPOLOGY."""
    return {name: int(value) for name, value in PROPERTY_LINE.findall(text)}


def read_render_devices(root: Path) -> list[str]:
    """Return the device of each AMD GPU, /dev/dri/renderD<n>, in the order in which HIP counts the GPUs."""
    render_devices: list[str] = []
    for directory in sorted((root / KFD_TOPOLOGY.lstrip("/")).glob("[0-9]*"), key=lambda path: int(path.name)):
        properties = parse_properties(read_text(directory / "properties"))
        if not properties.get("simd_count"):
            continue  # a processor
        banks = [parse_properties(read_text(bank)) for bank in directory.glob("mem_banks/*/properties")]
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in VRAM_HEAP_TYPES) // MIB
        if memory >= MIN_VRAM_MIB:
            render_devices.append(f"{DRI_DIR}/renderD{properties.get('drm_render_minor', 0)}")
    return render_devices


def read_amd_device_files(root: Path, render_devices: Iterable[str]) -> list[DeviceFile]:
    """Return the device files that a program needs for these AMD GPUs: KFD and their render devices, if they exist."""
    paths = [KFD, *render_devices]
    return [DeviceFile.of(root, path) for path in paths if (root / path.lstrip("/")).exists()]


def rocm_environment_problem(variables: Mapping[str, object]) -> str:
    """Return why a node with ROCm cannot have these variables, or ""."""
    for name, why in REFUSED_ROCM_VARIABLES.items():
        if name in variables:
            return f"{name} cannot be set with rocm: {why}; remove it from ray_node_env"
    return ""
