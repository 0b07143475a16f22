# SPDX-License-Identifier: GPL-3.0-or-later
"""The hardware and kernel state of a machine: its memory, mounts and ports, and its GPUs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..network.interfaces import read_text
from .system import Process, with_origin

# Memory, mounts and ports, as the kernel prints them.

# A line of /proc/net/tcp and tcp6: number, local address and port, remote ones, state. 0A is LISTEN.
LISTENER = re.compile(r"^\s*\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ", re.M)


def parse_meminfo(text: str) -> dict[str, int]:
    """Return sizes in bytes by name; entries without a unit are no sizes."""
    return {match[1]: int(match[2]) * 1024 for match in re.finditer(r"^(\w+):\s+(\d+) kB$", text, re.M)}


def parse_listeners(text: str) -> set[int]:
    """Return the TCP ports on which a process listens, at any address; connections do not count."""
    return {int(port, 16) for port in LISTENER.findall(text)}


def parse_reserved_ports(text: str) -> list[tuple[int, int]]:
    """Parse net.ipv4.ip_local_reserved_ports, such as ``8080,20000-21999``."""
    matches = re.findall(r"(\d+)(?:-(\d+))?", text)
    return [(int(first), int(last or first)) for first, last in matches]


def parse_ephemeral_range(text: str) -> tuple[int, int] | None:
    """Parse net.ipv4.ip_local_port_range: the first and the last port of outgoing connections."""
    numbers = text.split()
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


@dataclass(frozen=True)
class Mount:
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]


@dataclass(frozen=True)
class PathState:
    """The mount that holds a path, and its space.

    For a path that does not exist, mount, space and writable are those of its nearest parent.
    error: why the path cannot be read, as with a file server that does not answer.
    mode, owner: of the path, the owner as uid:gid; None if it does not exist.
    archives_owner: the owner (uid:gid) of jobs/ below the path; None if there is none.
    """

    path: str
    exists: bool
    mount_point: str
    fstype: str
    source: str
    options: Sequence[str]
    free_bytes: int
    writable: bool
    error: str | None = None
    mode: int | None = None
    owner: str | None = None
    archives_owner: str | None = None


def _unescape(text: str) -> str:
    """The kernel writes space, tab, newline and backslash as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts in the order in which they were mounted. Format: proc_pid_mountinfo(5)."""
    mounts = []
    for line in text.splitlines():
        # The optional fields before the dash vary in number.
        before, dash, after = line.partition(" - ")
        if not dash:
            continue
        point, mount_options = before.split(" ")[4:6]
        fstype, source, super_options = after.split(" ", 2)
        # A mount is read-only when either the mount or the file system under it is.
        options = [*mount_options.split(","), *super_options.strip().split(",")]
        access = "ro" if "ro" in options else "rw"
        rest = dict.fromkeys(option for option in options if option not in ("ro", "rw"))
        mounts.append(Mount(_unescape(point), fstype, _unescape(source), [access, *map(_unescape, rest)]))
    return mounts


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """Return the mount that holds a path; of two on one mount point, the later hides the earlier."""
    deepest: Mount | None = None
    for mount in mounts:
        below = mount.mount_point.rstrip("/") + "/"
        if f"{path}/".startswith(below) and (deepest is None or len(mount.mount_point) >= len(deepest.mount_point)):
            deepest = mount
    return deepest


# The GPUs of a machine: NVIDIA's as nvidia-smi and the kernel log describe them, AMD's from sysfs.

NVIDIA_SMI_QUERY = ("nvidia-smi", "-q", "-x")
# What nvidia-smi prints instead of a value, also in brackets.
NOT_REPORTED = ("", "n/a", "[n/a]", "none", "not supported", "requested functionality has been deprecated")
REPAIR_PENDING_PATHS = (
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "ecc_errors/channel_repair_pending",
)
UNREPAIRABLE_PATHS = ("remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory")
XID_LINE = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:, )?(?P<text>[^\n]*)")
# The vendor, as sysfs writes it.
AMD_VENDOR_ID = "0x1002"
MIB = 1 << 20


@dataclass(frozen=True)
class Gpu:
    """One GPU. Texts are empty and numbers are None where the driver does not report them.

    memory_mib is 0 where the driver does not report it, as with memory shared between CPU and GPU.
    bus: its PCI address as in sysfs. mig: the current mode. recovery: the action that the driver asks for.
    uncorrected, uncorrected_ever: memory errors since the driver was loaded, and in all (NVIDIA: volatile, aggregate).
    remap_pending: a row remapping, page retirement or channel repair waits for a reset.
    remap_failed: a row could not be remapped, or memory cannot be repaired.
    """

    index: int
    name: str
    uuid: str = ""
    memory_mib: int = 0
    driver_version: str = ""
    bus: str = ""
    mig: str = ""
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    memory_used_mib: int | None = None
    recovery: str = ""
    processes: tuple[Process, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Gpu:
        return cls(**{**data, "processes": tuple(Process(**process) for process in data["processes"])})


@dataclass(frozen=True)
class Xid:
    """An error that the driver has written to the kernel log since the machine started, and how often."""

    bus: str
    number: int
    count: int
    text: str


def parse_nvidia_gpus(text: str) -> tuple[list[Gpu], str]:
    """Parse "nvidia-smi -q -x": the GPUs, and text between their elements, as about a GPU lost from the bus.

    Names of elements differ between drivers; what is missing is empty.
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
        uncorrected=_uncorrected(gpu, "volatile"),
        uncorrected_ever=_uncorrected(gpu, "aggregate"),
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
    """The leading number of a text such as "81920 MiB"."""
    match = re.match(r"\d+", _text(element, path))
    return int(match[0]) if match else None


def _uncorrected(gpu: ElementTree.Element, period: str) -> int | None:
    """The sum of uncorrected errors, whose elements have "uncorrectable" in their names in every generation of GPUs."""
    errors = gpu.find(f"ecc_errors/{period}")
    if errors is None:
        return None
    # Older GPUs have double_bit/total.
    numbers = [_number(errors, error.tag) for error in errors if "uncorrectable" in error.tag]
    counts = [number for number in (*numbers, _number(errors, "double_bit/total")) if number is not None]
    return sum(counts) if counts else None


def _process(info: ElementTree.Element) -> Process:
    memory = _number(info, "used_memory") or 0
    return Process(_number(info, "pid") or 0, _text(info, "process_name")[-100:], memory_mib=memory)


def parse_xids(log: str) -> list[Xid]:
    """The Xids of a kernel log, each once for a GPU, with its last text."""
    matches = list(XID_LINE.finditer(log))
    counts = Counter((match["bus"].lower(), int(match["number"])) for match in matches)
    texts = {(match["bus"].lower(), int(match["number"])): match["text"].strip()[:200] for match in matches}
    return [Xid(*key, count, texts[key]) for key, count in counts.items()]


def read_amd_gpus(root: Path) -> list[Gpu]:
    """AMD's GPUs in the order of amd-smi, that of their addresses. Each lists the processes that use any of them."""
    cards = [card for card in root.glob("sys/class/drm/card*/device") if read_text(card / "vendor") == AMD_VENDOR_ID]
    devices = sorted((card.resolve() for card in cards), key=lambda device: device.name)
    pids = [int(directory.name) for directory in sorted(root.glob("sys/class/kfd/kfd/proc/[0-9]*"))]
    processes = tuple(with_origin(root, Process(pid, read_text(root / f"proc/{pid}/comm"))) for pid in pids if devices)
    driver = read_text(root / "sys/module/amdgpu/version") or read_text(root / "sys/module/amdgpu/srcversion")
    return [_amd_gpu(index, device, driver, processes) for index, device in enumerate(devices)]


def _amd_gpu(index: int, device: Path, driver: str, processes: tuple[Process, ...]) -> Gpu:
    def mib(name: str) -> int | None:
        text = read_text(device / name)
        return int(text) // MIB if text.isdigit() else None

    # Files such as ras/umc_err_count have the lines "ue: 0" and "ce: 0".
    files = [read_text(file) for file in sorted((device / "ras").glob("*_err_count"))]
    errors = [int(count) for text in files for count in re.findall(r"^ue: (\d+)", text, re.M)]
    return Gpu(
        index,
        read_text(device / "product_name") or read_text(device / "device"),
        memory_mib=mib("mem_info_vram_total") or 0,
        driver_version=driver,
        bus=device.name,
        uncorrected=sum(errors) if errors else None,
        memory_used_mib=mib("mem_info_vram_used"),
        processes=processes,
    )
