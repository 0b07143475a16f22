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
XID_LINE = re.compile(r"NVRM: Xid \(PCI:(?P<bus>[0-9a-fA-F:.]+)\): (?P<number>\d+)(?:, )?(?P<text>[^\n]*)")


@dataclass(frozen=True)
class GpuState:
    """One GPU. Texts are empty and numbers are None where the driver does not report them."""

    bus: str
    model: str = ""
    mig: str = ""
    uncorrected: int | None = None
    uncorrected_ever: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    memory_mib: int = 0
    memory_used_mib: int | None = None
    recovery: str = ""
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
    reset = "Reset" if _text(gpu, "gpu_reset_status/reset_required") == "Yes" else ""
    return GpuState(
        # As sysfs and the kernel log write it: 0000:3b:00.0, not 00000000:3B:00.0.
        bus=gpu.get("id", "").lower()[-12:],
        model=_text(gpu, "product_name"),
        mig=_text(gpu, "mig_mode/current_mig"),
        uncorrected=_uncorrected(gpu, "volatile"),
        uncorrected_ever=_uncorrected(gpu, "aggregate"),
        remap_pending=any(_text(gpu, path) == "Yes" for path in PENDING),
        remap_failed=any(_text(gpu, path) == "Yes" for path in UNREPAIRABLE),
        memory_used_mib=_number(gpu, "fb_memory_usage/used"),
        # Newer drivers have one element for what they ask for.
        recovery=_text(gpu, "gpu_recovery_action") or reset,
        processes=tuple(_process(each) for each in gpu.findall("processes/process_info")),
    )


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "" if text.lower() in NONE else text


def _number(element: ElementTree.Element, path: str) -> int | None:
    """The leading number of a text such as "81920 MiB"."""
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


def _process(info: ElementTree.Element) -> Process:
    memory = _number(info, "used_memory") or 0
    return Process(_number(info, "pid") or 0, _text(info, "process_name")[-100:], memory_mib=memory)


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
    log, log_error = _kernel_log(reader)
    return replace(
        answer,
        gpus=tuple(replace(gpu, processes=tuple(map(reader.placed, gpu.processes))) for gpu in answer.gpus),
        xids=parse_xids(log),
        log_error=log_error,
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
        for problem in (*health(gpu), *_use(gpu, context)):
            yield problem._replace(what=f"GPU {index} ({gpu.bus}): {problem.what}")
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
    return (
        Compared("gpu.driver", "the driver", gpus.driver),
        Compared("gpu.same", "the GPUs", listed_counts(gpu.model for gpu in gpus.gpus)),
    )


def columns(gpus: Gpus) -> Mapping[str, str]:
    models = listed_counts(gpu.model for gpu in gpus.gpus)
    return {"GPUs": models, "driver": gpus.driver} if gpus.gpus else {}


TOPIC: Topic[Gpus] = Topic("gpu", read, judge, compared, columns)
