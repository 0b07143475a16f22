# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs of a machine: NVIDIA's as nvidia-smi and the kernel log describe them, AMD's from sysfs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..network.interfaces import read_text
from .system import Process, with_origin

NVIDIA_SMI_QUERY = ("nvidia-smi", "-q", "-x")
# What nvidia-smi prints instead of a value, also in brackets.
NOT_REPORTED = ("", "n/a", "[n/a]", "none", "not supported", "requested functionality has been deprecated")
# Elements of nvidia-smi that are "Yes" if memory is repaired at the next reset.
REPAIR_PENDING_PATHS = (
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "ecc_errors/channel_repair_pending",
)
# Elements that are "Yes" if memory cannot be repaired.
UNREPAIRABLE_PATHS = ("remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory")
XID_LINE = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:, )?(?P<text>[^\n]*)")
# As sysfs writes it in the file "vendor".
AMD_VENDOR_ID = "0x1002"
MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU. If the driver does not report a value, a text is empty, a number None, and memory_mib 0."""

    # As nvidia-smi and amd-smi count.
    index: int
    name: str
    uuid: str = ""
    # 0 also if CPU and GPU share their memory.
    memory_mib: int = 0
    driver_version: str = ""
    # The PCI address as in sysfs, such as "0000:3b:00.0".
    bus: str = ""
    # The current MIG mode: "Enabled", "Disabled" or empty.
    mig: str = ""
    # Memory errors that were not corrected: since the driver was loaded, and in all (NVIDIA: volatile, aggregate).
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    # Whether a row remapping, page retirement or channel repair waits for a reset.
    remap_pending: bool = False
    # Whether a row could not be remapped, or memory cannot be repaired.
    remap_failed: bool = False
    memory_used_mib: int | None = None
    # The action that the driver asks for, such as "Reset".
    recovery: str = ""
    # With NVIDIA, those that use this GPU; with AMD, those that use any GPU.
    processes: tuple[Process, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gpu:
        return cls(**{**data, "processes": tuple(Process(**process) for process in data["processes"])})


@dataclass(frozen=True)
class Xid:
    """An error that NVIDIA's driver has written to the kernel log since the machine started, and how often."""

    bus: str
    number: int  # NVIDIA's number of the error
    count: int
    text: str  # of the last one


def parse_nvidia_gpus(text: str) -> tuple[list[Gpu], str]:
    """Parse "nvidia-smi -q -x". Return the GPUs, and the messages outside of their elements, as of a lost GPU.

    Names of elements differ between drivers; a missing element counts as an empty one.
    """
    start, end = text.find("<"), text.rfind(">") + 1
    try:
        root = ElementTree.fromstring(text[start:end])  # noqa: S314 - input comes from the driver, not from a job
    except ElementTree.ParseError as error:
        message = " ".join(text.split())[:200]
        return [], message if start < 0 else f"nvidia-smi -q -x prints no XML: {error}"
    driver = _text(root, "driver_version")
    parts = [text[:start], root.text, *(element.tail for element in root), text[end:]]
    gpus = [_nvidia_gpu(index, gpu, driver) for index, gpu in enumerate(root.findall("gpu"))]
    return gpus, " ".join(" ".join(part for part in parts if part).split())


def _nvidia_gpu(index: int, gpu: ElementTree.Element, driver: str) -> Gpu:
    reset = "Reset" if _text(gpu, "gpu_reset_status/reset_required") == "Yes" else ""
    return Gpu(
        index,
        _text(gpu, "product_name"),
        _text(gpu, "uuid"),
        _number(gpu, "fb_memory_usage/total") or 0,
        driver,
        # As sysfs and the kernel log write it: 0000:3b:00.0, not 00000000:3B:00.0.
        bus=gpu.get("id", "").lower()[-12:],
        mig=_text(gpu, "mig_mode/current_mig"),
        uncorrected=_uncorrected_count(gpu, "volatile"),
        uncorrected_ever=_uncorrected_count(gpu, "aggregate"),
        remap_pending=any(_text(gpu, path) == "Yes" for path in REPAIR_PENDING_PATHS),
        remap_failed=any(_text(gpu, path) == "Yes" for path in UNREPAIRABLE_PATHS),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        # Newer drivers name the action that they ask for in one element.
        recovery=_text(gpu, "gpu_recovery_action") or reset,
        processes=tuple(_process(info) for info in gpu.findall("processes/process_info")),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text.lower() in NOT_REPORTED else text


def _number(element: ElementTree.Element, path: str) -> int | None:
    """Return the leading number of a text such as "81920 MiB"."""
    match = re.match(r"\d+", _text(element, path))
    return int(match[0]) if match else None


def _uncorrected_count(gpu: ElementTree.Element, period: str) -> int | None:
    """Return the sum of uncorrected errors; None without ECC. period: "volatile" or "aggregate"."""
    errors = gpu.find(f"ecc_errors/{period}")
    if errors is None:
        return None
    # Their elements have "uncorrectable" in their names, or on older GPUs are double_bit/total.
    numbers = [_number(errors, error.tag) for error in errors if "uncorrectable" in error.tag]
    counts = [number for number in (*numbers, _number(errors, "double_bit/total")) if number is not None]
    return sum(counts) if counts else None


def _process(info: ElementTree.Element) -> Process:
    memory = _number(info, "used_memory") or 0
    return Process(_number(info, "pid") or 0, _text(info, "process_name")[-100:], memory_mib=memory)


def parse_xids(log: str) -> list[Xid]:
    """Return the Xids of a kernel log, each number once for a GPU."""
    matches = list(XID_LINE.finditer(log))
    counts = Counter((match["bus"].lower(), int(match["number"])) for match in matches)
    texts = {(match["bus"].lower(), int(match["number"])): match["text"].strip()[:200] for match in matches}
    return [Xid(*key, count, texts[key]) for key, count in counts.items()]


def read_amd_gpus(root: Path) -> list[Gpu]:
    """Return AMD's GPUs in the order of amd-smi: that of their PCI addresses. Each lists all processes."""
    cards = [card for card in root.glob("sys/class/drm/card*/device") if read_text(card / "vendor") == AMD_VENDOR_ID]
    devices = sorted((card.resolve() for card in cards), key=lambda device: device.name)
    pids = [int(directory.name) for directory in sorted(root.glob("sys/class/kfd/kfd/proc/[0-9]*"))]
    processes = tuple(with_origin(root, Process(pid, read_text(root / f"proc/{pid}/comm"))) for pid in pids if devices)
    driver = read_text(root / "sys/module/amdgpu/version") or read_text(root / "sys/module/amdgpu/srcversion")
    return [_amd_gpu(index, device, driver, processes) for index, device in enumerate(devices)]


def _amd_gpu(index: int, device: Path, driver: str, processes: tuple[Process, ...]) -> Gpu:
    def size_mib(name: str) -> int | None:
        text = read_text(device / name)
        return int(text) // MIB if text.isdigit() else None

    # Files such as ras/umc_err_count have the lines "ue: 0" and "ce: 0".
    files = [read_text(file) for file in sorted((device / "ras").glob("*_err_count"))]
    errors = [int(count) for text in files for count in re.findall(r"^ue: (\d+)", text, re.M)]
    return Gpu(
        index,
        read_text(device / "product_name") or read_text(device / "device"),
        memory_mib=size_mib("mem_info_vram_total") or 0,
        driver_version=driver,
        bus=device.name,
        uncorrected=sum(errors) if errors else None,
        memory_used_mib=size_mib("mem_info_vram_used"),
        processes=processes,
    )
