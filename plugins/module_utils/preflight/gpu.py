# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a machine, as nvidia-smi, the driver and the kernel log describe them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from xml.etree import ElementTree

from ..argus.common.findings import ERROR, NOTE, WARNING
from ..cluster.node_process import RUNNING
from .checks import Compared, Context, Expectation, Problem, Topic, listed_counts
from .reading import Process, Reader

NOT_INSTALLED = 127
KERNEL_LOG = (("dmesg",), ("journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat"))
# Those that a job causes in its own memory say nothing about the GPU.
XIDS_OF_JOBS = (13, 31, 43, 45)
# The GPU is lost, its memory cannot be repaired, or its firmware does not answer, until it is reset.
FATAL_XIDS = (48, 64, 74, 79, 95, 119, 120, 140)
# Contexts of monitoring programs need less.
FOREIGN_MIB = 1024
MAX_NAMES = 5

# What nvidia-smi prints instead of a value, also in brackets.
NONE = ("", "n/a", "[n/a]", "none", "not supported", "requested functionality has been deprecated")
PENDING = (
    "remapped_rows/remapped_row_pending",
    "retired_pages/pending_retirement",
    "ecc_errors/channel_repair_pending",
)
UNREPAIRABLE = ("remapped_rows/remapped_row_failure", "ecc_errors/unrepairable_memory")
# Reasons for clocks below what a program asks for. The others are idleness, power and settings, which are no faults.
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
XID_LINE = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:, )?(?P<text>[^\n]*)")


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
    memory_mib: int = 0
    memory_used_mib: int | None = None
    recovery: str = ""
    fabric: str = ""
    links_up: int = 0
    processes: tuple[Process, ...] = ()


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
    state, status = _text(gpu, "fabric/state"), _text(gpu, "fabric/status")
    reset = "Reset" if _text(gpu, "gpu_reset_status/reset_required") == "Yes" else ""
    return GpuState(
        # As sysfs and the kernel log write it: 0000:3b:00.0, not 00000000:3B:00.0.
        bus=gpu.get("id", "").lower()[-12:],
        model=_text(gpu, "product_name"),
        vbios=_text(gpu, "vbios_version"),
        persistence=_text(gpu, "persistence_mode"),
        mig=_text(gpu, "mig_mode/current_mig"),
        uncorrected=_uncorrected(gpu, "volatile"),
        uncorrected_ever=_uncorrected(gpu, "aggregate"),
        remap_pending=any(_text(gpu, path) == "Yes" for path in PENDING),
        remap_failed=any(_text(gpu, path) == "Yes" for path in UNREPAIRABLE),
        slowdowns=tuple(name for name in SLOWDOWNS if _is_active(gpu, name)),
        clock_mhz=_number(gpu, "applications_clocks/graphics_clock"),
        default_clock_mhz=_number(gpu, "default_applications_clocks/graphics_clock"),
        performance_state=_text(gpu, "performance_state"),
        pcie_gen=_number(gpu, f"{pci}/pcie_gen/current_link_gen"),
        pcie_gen_max=_number(gpu, f"{pci}/pcie_gen/max_link_gen"),
        pcie_width=_number(gpu, f"{pci}/link_widths/current_link_width"),
        pcie_width_max=_number(gpu, f"{pci}/link_widths/max_link_width"),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        # Newer drivers have one element for what they ask for.
        recovery=_text(gpu, "gpu_recovery_action") or reset,
        fabric=f"{state} ({status})" if state and status not in ("", "Success") else state,
        processes=tuple(_process(each) for each in gpu.findall("processes/process_info")),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text.lower() in NONE else text


def _number(element: ElementTree.Element, path: str) -> int | None:
    """The leading number of a text such as "1593 MHz" or "16x"."""
    match = re.match(r"\d+", _text(element, path))
    return int(match[0]) if match else None


def _uncorrected(gpu: ElementTree.Element, period: str) -> int | None:
    """All uncorrected errors: the elements differ between generations of GPUs, but not that word."""
    errors = gpu.find(f"ecc_errors/{period}")
    if errors is None:
        return None
    # Older ones: double_bit/total.
    numbers = [_number(errors, each.tag) for each in errors if "uncorrectable" in each.tag]
    known = [number for number in (*numbers, _number(errors, "double_bit/total")) if number is not None]
    return sum(known) if known else None


def _is_active(gpu: ElementTree.Element, name: str) -> bool:
    paths = (f"clocks_{word}_reasons/clocks_{word}_reason_{name}" for word in ("event", "throttle"))
    return any(_text(gpu, path) == "Active" for path in paths)


def _process(info: ElementTree.Element) -> Process:
    memory = _number(info, "used_memory") or 0
    return Process(_number(info, "pid") or 0, _text(info, "process_name")[-100:], memory_mib=memory)


def links_up(text: str) -> dict[int, int]:
    """By GPU, how many "nvidia-smi nvlink --status" lists as "Link 0: 26.562 GB/s", and not as "Link 3: <inactive>"."""
    blocks = re.split(r"^GPU (\d+):", text, flags=re.M)[1:]
    links = {int(index): block for index, block in zip(blocks[::2], blocks[1::2])}  # noqa: B905 - Python 3.10
    return {index: len(re.findall(r"Link \d+: [\d.]+ GB/s", block)) for index, block in links.items()}


def parse_xids(log: str) -> tuple[Xid, ...]:
    """The Xids of a kernel log, each once for a GPU, with its last text."""
    matches = list(XID_LINE.finditer(log))
    counts = Counter((match["bus"].lower(), int(match["number"])) for match in matches)
    texts = {(match["bus"].lower(), int(match["number"])): match["text"].strip()[:200] for match in matches}
    return tuple(Xid(*key, count, texts[key]) for key, count in counts.items())


def read(reader: Reader, _expected: Expectation = Expectation()) -> Gpus:  # noqa: B008 - it is frozen
    smi = reader.run("nvidia-smi", "-q", "-x")
    if smi.code == NOT_INSTALLED:
        return Gpus(installed=False)
    answer = parse_smi(smi.out) if smi.out.strip() else Gpus(error=smi.error)
    links = links_up(reader.run("nvidia-smi", "nvlink", "--status").out if len(answer.gpus) > 1 else "")
    log, log_error = _kernel_log(reader)
    switches = reader.paths("/proc/driver/nvidia-nvswitch/devices/*")
    return replace(
        answer,
        gpus=tuple(
            replace(
                gpu,
                links_up=links.get(index, 0),
                processes=tuple(map(reader.placed, gpu.processes)),
            )
            for index, gpu in enumerate(answer.gpus)
        ),
        xids=parse_xids(log),
        log_error=log_error,
        nvswitches=len(switches),
        # The kernel keeps 15 characters of a name.
        fabric_manager=bool(switches) and any(each.name == "nv-fabricmanage" for each in reader.processes()),
    )


def _kernel_log(reader: Reader) -> tuple[str, str]:
    """The log, and why it cannot be read. Without rights journalctl ends with 0 and an empty log."""
    problems = []
    for argv in KERNEL_LOG:
        output = reader.run(*argv, seconds=3)
        if output.code == 0 and output.out.strip():
            return output.out, ""
        problems.append(f"{argv[0]}: {output.error}")
    return "", "; ".join(problems)


def judge(gpus: Gpus, context: Context) -> Iterator[Problem]:
    # GPUs that are not used may be as they like, such as those of the head's machine.
    if not gpus.installed or context.expected.gpus == 0:
        return
    if gpus.error:
        yield Problem("gpu.answers", f"nvidia-smi -q -x fails: {gpus.error}", "reload the driver or reboot")
    for index, gpu in enumerate(gpus.gpus):
        for problem in (*health(gpu), *speed(gpu), *_use(gpu, context)):
            yield problem._replace(what=f"GPU {index} ({gpu.bus}): {problem.what}")
    yield from _settings(gpus)
    yield from _links(gpus)
    yield from map(_xid, (xid for xid in gpus.xids if xid.number not in XIDS_OF_JOBS))
    if gpus.log_error:
        yield Problem(
            "gpu.xid",
            f"the kernel log cannot be read, so Xid errors are not known ({gpus.log_error})",
            "set ansible_become: true for the machine, or sysctl kernel.dmesg_restrict=0",
            NOTE,
        )


def health(gpu: GpuState) -> Iterator[Problem]:
    if gpu.uncorrected:
        ever = f", {gpu.uncorrected_ever} ever" if gpu.uncorrected_ever else ""
        yield Problem("gpu.ecc", f"{gpu.uncorrected} uncorrected memory errors since the driver was loaded{ever}")
    if gpu.remap_failed:
        yield Problem("gpu.remap", "a row of its memory could not be replaced", "ask the vendor for another GPU")
    elif gpu.remap_pending:
        yield Problem("gpu.remap", "a bad row of its memory is replaced at the next reset", "reset the GPU or reboot")
    if gpu.recovery:
        yield Problem("gpu.recovery", f'the driver asks for "{gpu.recovery}"')


def speed(gpu: GpuState) -> Iterator[Problem]:
    if gpu.slowdowns:
        yield Problem("gpu.throttle", f"slowed down: {', '.join(gpu.slowdowns)}")
    if gpu.clock_mhz and gpu.clock_mhz < (gpu.default_clock_mhz or 0):
        yield Problem("gpu.clock", f"application clock {gpu.clock_mhz} MHz, the default is {gpu.default_clock_mhz} MHz")
    if gpu.pcie_width and gpu.pcie_width < (gpu.pcie_width_max or 0):
        yield Problem("gpu.pcie", f"PCIe width x{gpu.pcie_width}, it can x{gpu.pcie_width_max}")
    # In other states, an idle GPU lowers the generation by itself.
    if gpu.performance_state == "P0" and gpu.pcie_gen and gpu.pcie_gen < (gpu.pcie_gen_max or 0):
        yield Problem("gpu.pcie", f"PCIe generation {gpu.pcie_gen}, it can {gpu.pcie_gen_max}")


def _use(gpu: GpuState, context: Context) -> Iterator[Problem]:
    if gpu.mig == "Enabled":
        yield Problem("gpu.mig", "MIG is on")
    foreign = context.foreign(gpu.processes)
    if foreign:
        memory = sum(each.memory_mib for each in foreign)
        more = f" and {len(foreign) - MAX_NAMES} more" if len(foreign) > MAX_NAMES else ""
        yield Problem(
            "gpu.processes",
            f"{memory} MiB in use by programs outside of the cluster: {', '.join(map(str, foreign[:MAX_NAMES]))}{more}",
            severity=ERROR if memory >= FOREIGN_MIB else WARNING,
        )
    elif (
        not gpu.processes
        and gpu.mig != "Enabled"
        and (gpu.memory_used_mib or 0) >= FOREIGN_MIB
        # In a container of a platform, nvidia-smi shows no process at all, those of jobs included.
        and not (context.machine.process and context.machine.process.node.state == RUNNING)
    ):
        yield Problem("gpu.memory", f"{gpu.memory_used_mib} MiB in use, but nvidia-smi shows no process")


def _settings(gpus: Gpus) -> Iterator[Problem]:
    off = [str(index) for index, gpu in enumerate(gpus.gpus) if gpu.persistence == "Disabled"]
    if off:
        yield Problem("gpu.persistence", f"persistence mode is off for GPU {', '.join(off)}")
    for model in dict.fromkeys(gpu.model for gpu in gpus.gpus):
        versions = [gpu.vbios for gpu in gpus.gpus if gpu.model == model and gpu.vbios]
        if len(set(versions)) > 1:
            yield Problem("gpu.vbios", f"{model} with different VBIOS: {listed_counts(versions)}")


def _links(gpus: Gpus) -> Iterator[Problem]:
    # Some cards have fewer links than the driver lists. What counts is that all of a machine are alike.
    most = max((gpu.links_up for gpu in gpus.gpus), default=0)
    for index, gpu in enumerate(gpus.gpus):
        if gpu.links_up < most:
            yield Problem("gpu.nvlink", f"GPU {index} ({gpu.bus}): {gpu.links_up} NVLinks up, others have {most}")
    if gpus.nvswitches and not gpus.fabric_manager:
        yield Problem("gpu.fabric", f"{gpus.nvswitches} NVSwitches, but nv-fabricmanager does not run")
    broken = [
        f"GPU {index}: {gpu.fabric}" for index, gpu in enumerate(gpus.gpus) if gpu.fabric not in ("", "Completed")
    ]
    if broken:
        yield Problem("gpu.fabric", f"the NVSwitch fabric is not complete: {', '.join(broken)}")


def _xid(xid: Xid) -> Problem:
    times = f"{xid.count} times " if xid.count > 1 else ""
    text = f": {xid.text}" if xid.text else ""
    return Problem(
        "gpu.xid",
        f"GPU {xid.bus}: Xid {xid.number} {times}in the kernel log{text}",
        severity=ERROR if xid.number in FATAL_XIDS else WARNING,
    )


def compared(gpus: Gpus, context: Context) -> Iterable[Compared]:
    if not gpus.gpus or context.expected.gpus == 0:
        return ()
    # Several are a problem of the machine alone.
    vbios = {f"{gpu.vbios} ({gpu.model})" for gpu in gpus.gpus if gpu.vbios}
    return (
        Compared("gpu.driver", "the driver", gpus.driver),
        Compared("gpu.same", "the GPUs", listed_counts(gpu.model for gpu in gpus.gpus)),
        Compared("gpu.vbios", "the VBIOS", vbios.pop() if len(vbios) == 1 else ""),
        Compared("gpu.nvlink", "the number of NVLinks", str(max(gpu.links_up for gpu in gpus.gpus))),
    )


def columns(gpus: Gpus) -> Mapping[str, str]:
    if not gpus.gpus:
        return {}
    links = max(gpu.links_up for gpu in gpus.gpus)
    vbios = ", ".join(sorted({gpu.vbios for gpu in gpus.gpus if gpu.vbios}))
    models = listed_counts(gpu.model for gpu in gpus.gpus)
    return {"GPUs": models, "driver": gpus.driver, "VBIOS": vbios, "NVLinks": str(links or "")}


TOPIC: Topic[Gpus] = Topic("gpu", read, judge, compared, columns)
