# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA GPUs: what nvidia-smi, the driver and the kernel log tell of them, as dataclasses, with pure parsers."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from .processes import Process

# What nvidia-smi prints instead of a value, also in brackets.
_NONE = ("", "n/a", "[n/a]", "none", "not supported", "requested functionality has been deprecated")
_PENDING = (
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "ecc_errors/channel_repair_pending",
)
_UNREPAIRABLE = ("remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory")
# Reasons for clocks below what a program asks for. The others are idleness, power and settings, which are no faults.
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")


@dataclass(frozen=True)
class GpuProcess:
    """A process on a GPU, and its memory there."""

    process: Process
    memory_mib: int


@dataclass(frozen=True)
class GpuState:
    """One GPU. Texts are empty and numbers are None where the driver does not report them."""

    bus: str
    model: str = ""
    vbios: str = ""
    persistence: str = ""
    mig: str = ""
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    slowdowns: tuple[str, ...] = ()
    clock_mhz: int | None = None
    default_clock_mhz: int | None = None
    performance_state: str = ""
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    memory_used_mib: int | None = None
    recovery: str = ""
    fabric: str = ""
    links_up: int = 0
    processes: tuple[GpuProcess, ...] = ()


@dataclass(frozen=True)
class Xid:
    """An error that the driver has written to the kernel log since the machine started, and how often."""

    bus: str
    number: int
    count: int
    text: str


@dataclass(frozen=True)
class Gpus:
    """error: why nvidia-smi does not answer. log_error: why the kernel log cannot be read."""

    driver: str = ""
    gpus: tuple[GpuState, ...] = ()
    error: str = ""
    xids: tuple[Xid, ...] = ()
    log_error: str = ""
    nvswitches: int = 0
    fabric_manager: bool = False
    installed: bool = True


def parse_smi(text: str) -> Gpus:
    """Parse "nvidia-smi -q -x". Names of elements differ between drivers; what is missing is empty."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - the machine's own driver, whose process is no job
    except ElementTree.ParseError as error:
        first = " ".join(text.split())[:200]
        return Gpus(error=first if "<" not in first else f"nvidia-smi -q -x prints no XML: {error}")
    return Gpus(_text(root, "driver_version"), tuple(_gpu(gpu) for gpu in root.findall("gpu")))


def _gpu(gpu: ElementTree.Element) -> GpuState:
    pci = "pci/pci_gpu_link_info"
    return GpuState(
        bus=short_bus(gpu.get("id", "")),
        model=_text(gpu, "product_name"),
        vbios=_text(gpu, "vbios_version"),
        persistence=_text(gpu, "persistence_mode"),
        mig=_text(gpu, "mig_mode/current_mig"),
        uncorrected=_uncorrected(gpu, "volatile"),
        uncorrected_ever=_uncorrected(gpu, "aggregate"),
        remap_pending=any(_text(gpu, path) == "Yes" for path in _PENDING),
        remap_failed=any(_text(gpu, path) == "Yes" for path in _UNREPAIRABLE),
        slowdowns=tuple(name for name in SLOWDOWNS if _is_active(gpu, name)),
        clock_mhz=_number(gpu, "applications_clocks/graphics_clock"),
        default_clock_mhz=_number(gpu, "default_applications_clocks/graphics_clock"),
        performance_state=_text(gpu, "performance_state"),
        pcie_gen=_number(gpu, f"{pci}/pcie_gen/current_link_gen"),
        pcie_gen_max=_number(gpu, f"{pci}/pcie_gen/max_link_gen"),
        pcie_width=_number(gpu, f"{pci}/link_widths/current_link_width"),
        pcie_width_max=_number(gpu, f"{pci}/link_widths/max_link_width"),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        recovery=_recovery(gpu),
        fabric=_fabric(gpu),
        processes=tuple(_process(each) for each in gpu.findall("processes/process_info")),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    found = (element.findtext(path) or "").strip()
    return "" if found.lower() in _NONE else found


def _number(element: ElementTree.Element, path: str) -> int | None:
    """The leading number of a text such as "1593 MHz" or "16x"."""
    match = re.match(r"\d+", _text(element, path))
    return int(match[0]) if match else None


def _uncorrected(gpu: ElementTree.Element, period: str) -> int | None:
    """All uncorrected errors: the elements differ between generations of GPUs, but not that word."""
    found = gpu.find(f"ecc_errors/{period}")
    if found is None:
        return None
    # Older ones: double_bit/total.
    numbers = [_number(found, each.tag) for each in found if "uncorrectable" in each.tag]
    numbers.append(_number(found, "double_bit/total"))
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _is_active(gpu: ElementTree.Element, name: str) -> bool:
    paths = (f"clocks_{word}_reasons/clocks_{word}_reason_{name}" for word in ("event", "throttle"))
    return any(_text(gpu, path) == "Active" for path in paths)


def _recovery(gpu: ElementTree.Element) -> str:
    """What the driver itself wants to be done, such as "Reset"; newer drivers have one element for it."""
    wanted = _text(gpu, "gpu_recovery_action")
    if not wanted and _text(gpu, "gpu_reset_status/reset_required") == "Yes":
        return "Reset"
    return wanted


def _fabric(gpu: ElementTree.Element) -> str:
    """The state of the NVSwitch fabric, such as "Completed", with the status unless that is "Success"."""
    state, status = _text(gpu, "fabric/state"), _text(gpu, "fabric/status")
    return f"{state} ({status})" if state and status not in ("", "Success") else state


def _process(info: ElementTree.Element) -> GpuProcess:
    process = Process(_number(info, "pid") or 0, _text(info, "process_name")[-100:])
    return GpuProcess(process, _number(info, "used_memory") or 0)


def short_bus(bus: str) -> str:
    """The PCI address as sysfs and the kernel log write it: 0000:3b:00.0, not 00000000:3B:00.0."""
    return bus.lower()[4:] if len(bus) == len("00000000:3B:00.0") else bus.lower()


def with_links(gpus: tuple[GpuState, ...], text: str) -> tuple[GpuState, ...]:
    """Add what "nvidia-smi nvlink --status" lists: "Link 0: 26.562 GB/s", "Link 3: <inactive>", by "GPU 0: …"."""
    blocks = re.split(r"^GPU (\d+):", text, flags=re.M)[1:]
    links = {int(index): block for index, block in zip(blocks[::2], blocks[1::2])}  # noqa: B905 - Python 3.10
    return tuple(
        replace(gpu, links_up=len(re.findall(r"Link \d+: [\d.]+ GB/s", links.get(index, ""))))
        for index, gpu in enumerate(gpus)
    )


_XID = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:, )?(?P<text>[^\n]*)")


def parse_xids(log: str) -> tuple[Xid, ...]:
    """The Xids of a kernel log, each once for a GPU, with its last text."""
    found: dict[tuple[str, int], Xid] = {}
    for match in _XID.finditer(log):
        key = (match["bus"].lower(), int(match["number"]))
        count = found[key].count + 1 if key in found else 1
        found[key] = Xid(*key, count, match["text"].strip()[:200])
    return tuple(found.values())
