# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD GPUs as nodes use them: which there are, their devices, and the environment of ROCm.

All of it is read from the kernel driver's own tree, without a tool of ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..network.sysfs import read
from .devices import DeviceFile

KFD, DRI = "/dev/kfd", "/dev/dri"
NODES = "sys/class/kfd/kfd/topology/nodes"
MIB = 1 << 20
# The graphics of a desktop processor have less of their own, and train nothing.
SMALLEST_MIB = 8192
# Heaps of memory on the GPU itself, visible to the processor or not (the kernel's kfd_topology.h).
OWN_HEAPS = (1, 2)
PROPERTY = re.compile(r"^(\w+) (\d+)$", re.M)
VISIBLE = "HIP_VISIBLE_DEVICES"
# What Ray's and verl's code does with other variables that select GPUs.
REFUSED = {
    "ROCR_VISIBLE_DEVICES": f"Ray raises without {VISIBLE}, and verl raises with it",
    "CUDA_VISIBLE_DEVICES": f"verl ends where it differs from {VISIBLE}, which Ray sets for each process",
    VISIBLE: "the plan of the node sets it to its share of the GPUs",
}
# Settings for MI300 machines with RoCE, by the name of the profile; docs/rocm.md has the reason of each.
PROFILES: Mapping[str, Mapping[str, str]] = {
    "mi300": {
        "GPU_MAX_HW_QUEUES": "2",
        "TORCH_NCCL_HIGH_PRIORITY": "1",
        "NCCL_CHECKS_DISABLE": "1",
        "NCCL_CROSS_NIC": "0",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_PROTO": "Simple",
        "RCCL_MSCCL_ENABLE": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "HSA_NO_SCRATCH_RECLAIM": "1",
    },
}


@dataclass(frozen=True)
class RocmGpu:
    """A GPU of the driver amdgpu. index: as HIP counts; gfx: its instruction set, such as gfx942."""

    index: int
    gfx: str
    memory_mib: int
    render: str


def properties(text: str) -> dict[str, int]:
    """A file of properties in the tree of the driver."""
    return {name: int(value) for name, value in PROPERTY.findall(text)}


def gfx_name(version: int) -> str:
    """90402 is gfx942: major and minor number and stepping, the last two in hexadecimal digits."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def read_gpus(root: Path) -> list[RocmGpu]:
    """The GPUs of a machine in the order in which HIP counts them; none without the driver."""
    found: list[RocmGpu] = []
    for node in sorted((root / NODES).glob("[0-9]*"), key=lambda path: int(path.name)):
        own = properties(read(node / "properties"))
        if not own.get("simd_count"):
            continue  # a processor
        banks = [properties(read(bank)) for bank in node.glob("mem_banks/*/properties")]
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in OWN_HEAPS) // MIB
        if memory >= SMALLEST_MIB:
            render = f"{DRI}/renderD{own.get('drm_render_minor', 0)}"
            found.append(RocmGpu(len(found), gfx_name(own.get("gfx_target_version", 0)), memory, render))
    return found


def read_devices(root: Path, gpus: Iterable[RocmGpu]) -> list[DeviceFile]:
    """The devices that a program needs for these GPUs, as far as they exist."""
    paths = [KFD, *(gpu.render for gpu in gpus)]
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
