# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AMD GPUs of a machine, from sysfs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..argus.common.findings import ERROR, WARNING
from .checks import Compared, Context, Expectation, Problem, Topic, listed_counts
from .gpu import FOREIGN_MIB, GpuState, health
from .machine import kind_problems
from .reading import Process, Reader

# The vendor, as sysfs writes it.
AMD = "0x1002"
MIB = 1 << 20


@dataclass(frozen=True)
class AmdGpus:
    """processes: those that use any of the GPUs."""

    gpus: tuple[GpuState, ...] = ()
    driver: str = ""
    kfd: bool = True
    processes: tuple[Process, ...] = ()


def read(reader: Reader, _expected: Expectation = Expectation()) -> AmdGpus:  # noqa: B008 - it is frozen
    devices = [card for card in reader.paths("/sys/class/drm/card*/device") if reader.text(card / "vendor") == AMD]
    if not devices:
        return AmdGpus()
    pids = [int(directory.name) for directory in reader.paths("/sys/class/kfd/kfd/proc/[0-9]*")]
    return AmdGpus(
        # amd-smi counts in the order of the addresses.
        tuple(sorted((_gpu(reader, device) for device in devices), key=lambda gpu: gpu.bus)),
        reader.text("/sys/module/amdgpu/version") or reader.text("/sys/module/amdgpu/srcversion"),
        reader.at("/dev/kfd").exists(),
        tuple(reader.placed(Process(pid, reader.text(f"/proc/{pid}/comm"))) for pid in pids),
    )


def _gpu(reader: Reader, device: Path) -> GpuState:
    def number(name: str) -> int | None:
        match = re.match(r"\d+", reader.text(device / name))
        return int(match[0]) if match else None

    used, total = number("mem_info_vram_used"), number("mem_info_vram_total")
    # Files such as ras/umc_err_count have the lines "ue: 0" and "ce: 0".
    files = [reader.text(file) for file in sorted((device / "ras").glob("*_err_count"))]
    errors = [int(count) for text in files for count in re.findall(r"^ue: (\d+)", text, re.M)]
    return GpuState(
        bus=device.resolve().name,
        model=reader.text(device / "product_name") or reader.text(device / "device"),
        uncorrected=sum(errors) if errors else None,
        memory_used_mib=None if used is None else used // MIB,
        memory_mib=(total or 0) // MIB,
    )


def judge(answer: AmdGpus, context: Context) -> Iterator[Problem]:
    if not answer.gpus or context.expected.gpus == 0:
        return
    if not answer.kfd:
        yield Problem("amd.devices", f"{len(answer.gpus)} AMD GPUs, but no /dev/kfd")
    for index, gpu in enumerate(answer.gpus):
        for problem in health(gpu):
            yield problem._replace(
                key=problem.key.replace("gpu.", "amd."), what=f"GPU {index} ({gpu.bus}): {problem.what}"
            )
    kinds = ((gpu.model, gpu.memory_mib) for gpu in answer.gpus)
    yield from kind_problems(kinds, context.expected, "amd.model", "amd.memory_size")
    foreign = context.foreign(answer.processes)
    memory = sum(gpu.memory_used_mib or 0 for gpu in answer.gpus)
    if foreign:
        yield Problem(
            "amd.processes",
            f"programs outside of the cluster use the GPUs: {', '.join(map(str, foreign[:5]))}; {memory} MiB in use",
            severity=ERROR if memory >= FOREIGN_MIB else WARNING,
        )


def compared(answer: AmdGpus, context: Context) -> Iterable[Compared]:
    if not answer.gpus or context.expected.gpus == 0:
        return ()
    return (
        Compared("amd.driver", "the driver", answer.driver),
        Compared("amd.same", "the GPUs", listed_counts(gpu.model for gpu in answer.gpus)),
    )


def columns(answer: AmdGpus) -> Mapping[str, str]:
    models = listed_counts(gpu.model for gpu in answer.gpus)
    return {"GPUs": models, "driver": answer.driver} if answer.gpus else {}


TOPIC: Topic[AmdGpus] = Topic("amd", read, judge, compared, columns)
