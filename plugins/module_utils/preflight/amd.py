# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The AMD GPUs of a machine, from sysfs, and from amd-smi where it is installed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..argus.common.findings import ERROR, WARNING, Finding
from ..cluster.probe import AMD
from .checks import Check, Context, Problem, Topic, differences
from .gpu_kind import GPU_REMEDY, kind_problems
from .processes import Process, container_of, is_ours
from .reader import Reader

MIB = 1 << 20
FOREIGN_MIB = 1024

DRIVER = Check("amd.driver", ERROR, "all machines have one amdgpu driver", "install one ROCm version on all machines")
SAME = Check("amd.same", WARNING, "all machines have the same GPUs", "use machines with the same GPUs for one job")
MODEL = Check("amd.model", ERROR, "all GPUs are of the model of preflight_gpu_model", GPU_REMEDY)
MEMORY_SIZE = Check("amd.memory_size", ERROR, "each GPU has the memory of preflight_gpu_memory_gib", GPU_REMEDY)
VBIOS = Check("amd.vbios", WARNING, "all GPUs have one VBIOS", "ask the vendor for the same firmware on all GPUs")
ECC = Check(
    "amd.ecc",
    ERROR,
    "no uncorrected memory errors",
    "reboot; if it comes back (amd-smi metric --ecc), ask the vendor for another GPU",
)
PCIE = Check(
    "amd.pcie",
    ERROR,
    "all PCIe links have their full width",
    "reseat the GPU or its riser, and check the slot's settings in the BIOS",
)
PROCESSES = Check(
    "amd.processes",
    ERROR,
    "no program besides the cluster's own nodes uses a GPU",
    "end it, or ask its owner to: jobs need all of the memory",
)
DEVICES = Check(
    "amd.devices", ERROR, "/dev/kfd exists", "load the driver (modprobe amdgpu), and check dmesg for its error"
)
CHECKS = (DRIVER, SAME, MODEL, MEMORY_SIZE, VBIOS, ECC, PCIE, PROCESSES, DEVICES)


@dataclass(frozen=True)
class AmdGpu:
    """One GPU. Texts are empty and numbers are None where the driver does not report them."""

    bus: str
    model: str = ""
    vbios: str = ""
    uncorrected: int | None = None
    width: int | None = None
    width_max: int | None = None
    memory_used_mib: int | None = None
    memory_mib: int = 0


@dataclass(frozen=True)
class AmdGpus:
    """processes: those that use any of the GPUs. smi_error: why amd-smi, which is installed, does not answer."""

    gpus: tuple[AmdGpu, ...] = ()
    driver: str = ""
    kfd: bool = True
    processes: tuple[Process, ...] = ()
    smi_error: str = ""


def read(reader: Reader) -> AmdGpus:
    devices = [card for card in reader.paths("/sys/class/drm/card*/device") if reader.text(card / "vendor") == AMD]
    if not devices:
        return AmdGpus()
    errors, smi_error = _errors_of_smi(reader)
    # amd-smi counts in the order of the addresses.
    gpus = sorted((_gpu(reader, device) for device in devices), key=lambda gpu: gpu.bus)
    return AmdGpus(
        tuple(_with_errors(gpu, errors.get(index)) for index, gpu in enumerate(gpus)),
        reader.text("/sys/module/amdgpu/version") or reader.text("/sys/module/amdgpu/srcversion"),
        reader.at("/dev/kfd").exists(),
        tuple(_processes(reader)),
        smi_error,
    )


def _gpu(reader: Reader, device: Path) -> AmdGpu:
    used, total = (reader.text(device / f"mem_info_vram_{name}") for name in ("used", "total"))
    return AmdGpu(
        bus=device.resolve().name,
        model=reader.text(device / "product_name") or reader.text(device / "device"),
        vbios=reader.text(device / "vbios_version"),
        uncorrected=_errors_of_sysfs(reader, device),
        width=_number(reader.text(device / "current_link_width")),
        width_max=_number(reader.text(device / "max_link_width")),
        memory_used_mib=int(used) // MIB if used.isdigit() else None,
        memory_mib=int(total) // MIB if total.isdigit() else 0,
    )


def _number(text: str) -> int | None:
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None


def _errors_of_sysfs(reader: Reader, device: Path) -> int | None:
    """Files such as ras/umc_err_count have the lines "ue: 0" and "ce: 0"."""
    counts = [
        int(count)
        for file in sorted((device / "ras").glob("*_err_count"))
        for count in re.findall(r"^ue: (\d+)", reader.text(file), re.M)
    ]
    return sum(counts) if counts else None


def _errors_of_smi(reader: Reader) -> tuple[dict[int, int], str]:
    """Uncorrected errors by the index of the GPU, and why there are none."""
    output = reader.run("amd-smi", "metric", "--ecc", "--json")
    if output.code == 127:
        return {}, ""
    if output.code:
        return {}, " ".join((output.err or output.out).split())[:200] or f"exit code {output.code}"
    return parse_errors(output.out), ""


def parse_errors(text: str) -> dict[int, int]:
    """Older versions print a list, newer ones {"gpu_data": […]}; a number that is not known is "N/A"."""
    try:
        loaded: Any = json.loads(text)
    except ValueError:
        return {}
    rows = loaded.get("gpu_data") if isinstance(loaded, dict) else loaded
    found = {}
    for row in rows if isinstance(rows, list) else []:
        errors = row.get("ecc") if isinstance(row, dict) else None
        count = errors.get("total_uncorrectable_count") if isinstance(errors, dict) else None
        if isinstance(count, int) and isinstance(row.get("gpu"), int):
            found[row["gpu"]] = count
    return found


def _with_errors(gpu: AmdGpu, errors: int | None) -> AmdGpu:
    counts = [count for count in (gpu.uncorrected, errors) if count is not None]
    # Both count the same errors; sysfs may be root's alone.
    return AmdGpu(**{**vars(gpu), "uncorrected": max(counts, default=None)})


def _processes(reader: Reader) -> Iterator[Process]:
    for directory in reader.paths("/sys/class/kfd/kfd/proc/[0-9]*"):
        pid = int(directory.name)
        yield Process(pid, reader.text(f"/proc/{pid}/comm"), "", container_of(reader, pid))


def judge(answer: AmdGpus, context: Context) -> Iterator[Problem]:
    if not answer.gpus or context.expected.gpus == 0:
        return
    if not answer.kfd:
        yield Problem(DEVICES, f"{len(answer.gpus)} AMD GPUs, but no /dev/kfd")
    if answer.smi_error:
        yield Problem(TOPIC.answers, f"amd-smi fails: {answer.smi_error}", "reload the driver or reboot", WARNING)
    for index, gpu in enumerate(answer.gpus):
        if gpu.uncorrected:
            yield Problem(ECC, f"GPU {index} ({gpu.bus}): {gpu.uncorrected} uncorrected memory errors")
        if gpu.width and gpu.width_max and gpu.width < gpu.width_max:
            yield Problem(PCIE, f"GPU {index} ({gpu.bus}): PCIe width x{gpu.width}, it can x{gpu.width_max}")
    kinds = ((gpu.model, gpu.memory_mib) for gpu in answer.gpus)
    yield from kind_problems(kinds, context.expected, MODEL, MEMORY_SIZE)
    ours = {container.id for container in context.machine.containers.values() if container.cluster}
    foreign = [each for each in answer.processes if not is_ours(each.container, ours)]
    memory = sum(gpu.memory_used_mib or 0 for gpu in answer.gpus)
    if foreign:
        names = ", ".join(f"{each.name} (pid {each.pid})" for each in foreign[:5])
        yield Problem(
            PROCESSES,
            f"programs outside of the cluster use the GPUs: {names}; {memory} MiB in use",
            severity=ERROR if memory >= FOREIGN_MIB else WARNING,
        )


def compare(answers: Mapping[str, AmdGpus], contexts: Mapping[str, Context]) -> Iterator[Finding]:
    used = {host: found for host, found in answers.items() if found.gpus and contexts[host].expected.gpus != 0}
    yield from differences(DRIVER, "the driver", {host: found.driver for host, found in used.items()})
    yield from differences(SAME, "the GPUs", {host: models(found) for host, found in used.items()})
    vbios = {host: ", ".join(sorted({gpu.vbios for gpu in found.gpus})) for host, found in used.items()}
    yield from differences(VBIOS, "the VBIOS", vbios)


def models(answer: AmdGpus) -> str:
    counts: dict[str, int] = {}
    for gpu in answer.gpus:
        counts[gpu.model] = counts.get(gpu.model, 0) + 1
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))


def columns(answer: AmdGpus) -> Mapping[str, str]:
    return {"GPUs": models(answer), "driver": answer.driver} if answer.gpus else {}


TOPIC: Topic[AmdGpus] = Topic("amd", AmdGpus, CHECKS, read, judge, compare, columns=columns)
