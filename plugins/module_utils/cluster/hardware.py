# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPUs and memory: pure parsers of what nvidia-smi and the kernel print."""

from __future__ import annotations

import re
from dataclasses import dataclass

GPU_QUERY = (
    "nvidia-smi",
    "--query-gpu=index,name,uuid,memory.total,driver_version",
    "--format=csv,noheader,nounits",
)


@dataclass(frozen=True)
class Gpu:
    """memory_mib is 0 where the driver does not report it, as with memory shared between CPU and GPU."""

    index: int
    name: str
    uuid: str
    memory_mib: int
    driver_version: str


def parse_gpus(text: str) -> tuple[list[Gpu], list[str]]:
    """Return the GPUs, and the lines that describe none: a GPU lost from the bus appears as such a line."""
    gpus: list[Gpu] = []
    other_lines: list[str] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != 5 or not cells[0].isdigit():
            other_lines.append(line)
            continue
        index, name, uuid, memory, driver = cells
        gpus.append(Gpu(int(index), name, uuid, int(memory) if memory.isdigit() else 0, driver))
    return gpus, other_lines


def parse_meminfo(text: str) -> dict[str, int]:
    """Return sizes in bytes by name; entries without a unit are no sizes."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.M)}
