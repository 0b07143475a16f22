# SPDX-License-Identifier: GPL-3.0-or-later
"""The devices and variables that a node needs for AMD GPUs. They are read from sysfs, so rocm-smi is not needed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..network.interfaces import read_text
from .devices import DeviceFile

KFD, DRI_DIR = "/dev/kfd", "/dev/dri"
# One directory for each processor and each GPU.
KFD_TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
MIB = 1 << 20
# A GPU in a desktop processor has less memory of its own, and is not for training.
MIN_VRAM_MIB = 8192
# Types of memory on the GPU itself, visible to the processor or not (the kernel's kfd_topology.h).
VRAM_HEAP_TYPES = (1, 2)
PROPERTY_LINE = re.compile(r"^(\w+) (\d+)$", re.M)
HIP_VISIBLE_DEVICES = "HIP_VISIBLE_DEVICES"
# Variables that select GPUs, and why a node with ROCm cannot set them.
REFUSED_VARIABLES = {
    "ROCR_VISIBLE_DEVICES": f"Ray raises without {HIP_VISIBLE_DEVICES}, and verl raises with it",
    "CUDA_VISIBLE_DEVICES": f"verl ends where it differs from {HIP_VISIBLE_DEVICES}, which Ray sets for each process",
    HIP_VISIBLE_DEVICES: "the plan of the node sets it to its share of the GPUs",
}


def parse_properties(text: str) -> dict[str, int]:
    """Parse a file "properties" below KFD_TOPOLOGY."""
    return {name: int(value) for name, value in PROPERTY_LINE.findall(text)}


def read_render_devices(root: Path) -> list[str]:
    """Return the device of each AMD GPU, /dev/dri/renderD<n>, in the order in which HIP counts the GPUs.

    root: the directory that holds /sys. Without the driver, the list is empty.
    """
    render_devices: list[str] = []
    for directory in sorted((root / KFD_TOPOLOGY).glob("[0-9]*"), key=lambda path: int(path.name)):
        properties = parse_properties(read_text(directory / "properties"))
        if not properties.get("simd_count"):
            continue  # a processor
        banks = [parse_properties(read_text(bank)) for bank in directory.glob("mem_banks/*/properties")]
        memory = sum(bank.get("size_in_bytes", 0) for bank in banks if bank.get("heap_type") in VRAM_HEAP_TYPES) // MIB
        if memory >= MIN_VRAM_MIB:
            render_devices.append(f"{DRI_DIR}/renderD{properties.get('drm_render_minor', 0)}")
    return render_devices


def read_device_files(root: Path, render_devices: Iterable[str]) -> list[DeviceFile]:
    """Return those device files that exist of the ones that a program needs for these GPUs."""
    paths = [KFD, *render_devices]
    return [DeviceFile.of(root, path) for path in paths if (root / path.lstrip("/")).exists()]


def environment_problem(variables: Mapping[str, object]) -> str:
    """Return why a node with ROCm cannot have these variables, or ""."""
    for name, why in REFUSED_VARIABLES.items():
        if name in variables:
            return f"{name} cannot be set with rocm: {why}; remove it from ray_node_env"
    return ""
