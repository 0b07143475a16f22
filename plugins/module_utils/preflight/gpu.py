# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA GPUs of a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..argus.common.findings import ERROR, NOTE, WARNING, Finding
from .checks import Check, Context, Problem, Topic, differences
from .gpu_answer import Gpus, GpuState, Xid, parse_smi, parse_xids, with_links
from .processes import container_of, is_ours, processes
from .reader import Output, Reader

NOT_INSTALLED = 127
KERNEL_LOG = (("dmesg",), ("journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat"))
# Those that a job causes in its own memory say nothing about the GPU.
XIDS_OF_JOBS = (13, 31, 43, 45)
# The GPU is lost, its memory cannot be repaired, or its firmware does not answer, until it is reset.
FATAL_XIDS = (48, 64, 74, 79, 95, 119, 120, 140)
# Contexts of monitoring programs need less.
FOREIGN_MIB = 1024
MAX_NAMES = 5

DRIVER = Check(
    "gpu.driver", ERROR, "all machines have one driver version", "install one driver version on all machines"
)
VBIOS = Check(
    "gpu.vbios", WARNING, "all GPUs of a model have one VBIOS", "ask the vendor for the same firmware on all GPUs"
)
SAME = Check("gpu.same", WARNING, "all machines have the same GPUs", "use machines with the same GPUs for one job")
PERSISTENCE = Check(
    "gpu.persistence",
    WARNING,
    "persistence mode is on",
    "systemctl enable --now nvidia-persistenced, or nvidia-smi -pm 1; without it each start of a program takes seconds",
)
ECC = Check(
    "gpu.ecc",
    ERROR,
    "no uncorrected memory errors since the driver was loaded",
    "reset the GPU (nvidia-smi --gpu-reset -i INDEX) or reboot; if it comes back, ask the vendor for another GPU",
)
REMAP = Check(
    "gpu.remap",
    ERROR,
    "no memory rows wait for their replacement, or could not be replaced",
    "reset the GPU or reboot; after a failure of the replacement, ask the vendor for another GPU",
)
RECOVERY = Check("gpu.recovery", ERROR, "the driver does not ask for a reset", "do what the driver asks for")
XID = Check(
    "gpu.xid",
    WARNING,
    "no errors of the driver (Xid) in the kernel log",
    "look it up in NVIDIA's list of Xid errors; reboot, which also empties the kernel log",
)
THROTTLE = Check(
    "gpu.throttle",
    ERROR,
    "no GPU is slowed down by its temperature or power supply",
    "check cooling, fans and power supplies of the machine",
)
CLOCK = Check(
    "gpu.clock", WARNING, "no GPU has lowered application clocks", "nvidia-smi --reset-applications-clocks -i INDEX"
)
PCIE = Check(
    "gpu.pcie",
    ERROR,
    "all PCIe links have their full width and generation",
    "reseat the GPU or its riser, and check the slot's settings in the BIOS",
)
NVLINK = Check(
    "gpu.nvlink",
    ERROR,
    "all GPUs of a machine have the same number of NVLinks up",
    "reset the GPUs or reboot; then check bridges and baseboard (nvidia-smi nvlink --status)",
)
FABRIC = Check(
    "gpu.fabric",
    ERROR,
    "the fabric manager runs on machines with NVSwitches, and the fabric is complete",
    "systemctl enable --now nvidia-fabricmanager; its version has to be that of the driver",
)
MIG = Check(
    "gpu.mig", WARNING, "MIG is off", "nvidia-smi -mig 0, and reset the GPU: a job would get slices instead of GPUs"
)
PROCESSES = Check(
    "gpu.processes",
    ERROR,
    "no program besides the cluster's own nodes uses a GPU",
    "end it, or ask its owner to: jobs need all of the memory",
)
MEMORY = Check(
    "gpu.memory",
    WARNING,
    "no memory is in use without a process",
    "look for processes of other containers (fuser -v /dev/nvidia*), or reset the GPU",
)
CHECKS = (
    DRIVER,
    VBIOS,
    SAME,
    PERSISTENCE,
    ECC,
    REMAP,
    RECOVERY,
    XID,
    THROTTLE,
    CLOCK,
    PCIE,
    NVLINK,
    FABRIC,
    MIG,
    PROCESSES,
    MEMORY,
)


def read(reader: Reader) -> Gpus:
    smi = reader.run("nvidia-smi", "-q", "-x")
    if smi.code == NOT_INSTALLED:
        return Gpus(installed=False)
    found = parse_smi(smi.out) if smi.out.strip() else Gpus(error=_error(smi))
    if found.gpus:
        found = replace(found, gpus=tuple(_with_containers(reader, gpu) for gpu in found.gpus))
        if len(found.gpus) > 1:
            links = reader.run("nvidia-smi", "nvlink", "--status")
            found = replace(found, gpus=with_links(found.gpus, links.out))
    log, log_error = _kernel_log(reader)
    switches = reader.paths("/proc/driver/nvidia-nvswitch/devices/*")
    # The kernel keeps 15 characters of a name.
    manager = bool(switches) and any(each.name.startswith("nv-fabricmanage") for each in processes(reader))
    return replace(found, xids=parse_xids(log), log_error=log_error, nvswitches=len(switches), fabric_manager=manager)


def _error(output: Output) -> str:
    return " ".join(output.err.split())[:200] or f"exit code {output.code} without a message"


def _with_containers(reader: Reader, gpu: GpuState) -> GpuState:
    return replace(
        gpu,
        processes=tuple(
            replace(each, process=replace(each.process, container=container_of(reader, each.process.pid)))
            for each in gpu.processes
        ),
    )


def _kernel_log(reader: Reader) -> tuple[str, str]:
    """The log, and why it cannot be read. Without rights journalctl ends with 0 and an empty log."""
    problems = []
    for argv in KERNEL_LOG:
        output = reader.run(*argv, seconds=3)
        if output.code == 0 and output.out.strip():
            return output.out, ""
        problems.append(f"{argv[0]}: {_error(output)}")
    return "", "; ".join(problems)


def judge(gpus: Gpus, context: Context) -> Iterator[Problem]:
    # GPUs that are not used may be as they like, such as those of the head's machine.
    if not gpus.installed or context.expected.gpus == 0:
        return
    if gpus.error:
        yield Problem(TOPIC.answers, f"nvidia-smi -q -x fails: {gpus.error}", "reload the driver or reboot")
    ours = {container.id for container in context.machine.containers.values() if container.cluster}
    for index, gpu in enumerate(gpus.gpus):
        for problem in (*_health(gpu), *_speed(gpu), *_use(gpu, ours)):
            yield problem._replace(what=f"GPU {index} ({gpu.bus}): {problem.what}")
    yield from _settings(gpus)
    yield from _links(gpus)
    yield from map(_xid, (xid for xid in gpus.xids if xid.number not in XIDS_OF_JOBS))
    if gpus.log_error:
        yield Problem(
            XID,
            f"the kernel log cannot be read, so Xid errors are not known ({gpus.log_error})",
            "set ansible_become: true for the machine, or sysctl kernel.dmesg_restrict=0",
            NOTE,
        )


def _health(gpu: GpuState) -> Iterator[Problem]:
    if gpu.uncorrected:
        ever = f", {gpu.uncorrected_ever} ever" if gpu.uncorrected_ever else ""
        yield Problem(ECC, f"{gpu.uncorrected} uncorrected memory errors since the driver was loaded{ever}")
    if gpu.remap_failed:
        yield Problem(REMAP, "a row of its memory could not be replaced", "ask the vendor for another GPU")
    elif gpu.remap_pending:
        yield Problem(REMAP, "a bad row of its memory is replaced at the next reset", "reset the GPU or reboot")
    if gpu.recovery:
        yield Problem(RECOVERY, f'the driver asks for "{gpu.recovery}"')


def _speed(gpu: GpuState) -> Iterator[Problem]:
    if gpu.slowdowns:
        yield Problem(THROTTLE, f"slowed down: {', '.join(gpu.slowdowns)}")
    if gpu.clock_mhz and gpu.default_clock_mhz and gpu.clock_mhz < gpu.default_clock_mhz:
        yield Problem(CLOCK, f"application clock {gpu.clock_mhz} MHz, the default is {gpu.default_clock_mhz} MHz")
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        yield Problem(PCIE, f"PCIe width x{gpu.pcie_width}, it can x{gpu.pcie_width_max}")
    # In other states, an idle GPU lowers the generation by itself.
    awake = gpu.performance_state == "P0"
    if awake and gpu.pcie_gen and gpu.pcie_gen_max and gpu.pcie_gen < gpu.pcie_gen_max:
        yield Problem(PCIE, f"PCIe generation {gpu.pcie_gen}, it can {gpu.pcie_gen_max}")


def _use(gpu: GpuState, ours: set[str]) -> Iterator[Problem]:
    if gpu.mig == "Enabled":
        yield Problem(MIG, "MIG is on")
    foreign = [each for each in gpu.processes if not is_ours(each.process.container, ours)]
    if foreign:
        memory = sum(each.memory_mib for each in foreign)
        names = ", ".join(
            f"{each.process.name} (pid {each.process.pid}{_where(each.process.container)})"
            for each in foreign[:MAX_NAMES]
        )
        more = f" and {len(foreign) - MAX_NAMES} more" if len(foreign) > MAX_NAMES else ""
        yield Problem(
            PROCESSES,
            f"{memory} MiB in use by programs outside of the cluster: {names}{more}",
            severity=ERROR if memory >= FOREIGN_MIB else WARNING,
        )
    elif not gpu.processes and gpu.mig != "Enabled" and (gpu.memory_used_mib or 0) >= FOREIGN_MIB:
        yield Problem(MEMORY, f"{gpu.memory_used_mib} MiB in use, but nvidia-smi shows no process")


def _where(container: str) -> str:
    return f", container {container[:12]}" if container else ""


def _settings(gpus: Gpus) -> Iterator[Problem]:
    off = [str(index) for index, gpu in enumerate(gpus.gpus) if gpu.persistence == "Disabled"]
    if off:
        yield Problem(PERSISTENCE, f"persistence mode is off for GPU {', '.join(off)}")
    for model in dict.fromkeys(gpu.model for gpu in gpus.gpus):
        versions = Counter(gpu.vbios for gpu in gpus.gpus if gpu.model == model and gpu.vbios)
        if len(versions) > 1:
            listed = ", ".join(f"{count} x {version}" for version, count in versions.most_common())
            yield Problem(VBIOS, f"{model} with different VBIOS: {listed}")


def _links(gpus: Gpus) -> Iterator[Problem]:
    # Some cards have fewer links than the driver lists. What counts is that all of a machine are alike.
    most = max((gpu.links_up for gpu in gpus.gpus), default=0)
    for index, gpu in enumerate(gpus.gpus):
        if gpu.links_up < most:
            yield Problem(NVLINK, f"GPU {index} ({gpu.bus}): {gpu.links_up} NVLinks up, others have {most}")
    if gpus.nvswitches and not gpus.fabric_manager:
        yield Problem(FABRIC, f"{gpus.nvswitches} NVSwitches, but nv-fabricmanager does not run")
    broken = [(index, gpu.fabric) for index, gpu in enumerate(gpus.gpus) if gpu.fabric not in ("", "Completed")]
    if broken:
        listed = ", ".join(f"GPU {index}: {state}" for index, state in broken)
        yield Problem(FABRIC, f"the NVSwitch fabric is not complete: {listed}")


def _xid(xid: Xid) -> Problem:
    times = f"{xid.count} times " if xid.count > 1 else ""
    text = f": {xid.text}" if xid.text else ""
    return Problem(
        XID,
        f"GPU {xid.bus}: Xid {xid.number} {times}in the kernel log{text}",
        severity=ERROR if xid.number in FATAL_XIDS else WARNING,
    )


def compare(answers: Mapping[str, Gpus], contexts: Mapping[str, Context]) -> Iterator[Finding]:
    used = {host: gpus for host, gpus in answers.items() if gpus.gpus and contexts[host].expected.gpus != 0}
    yield from differences(DRIVER, "the driver", {host: gpus.driver for host, gpus in used.items()})
    yield from differences(SAME, "the GPUs", {host: models(gpus) for host, gpus in used.items()})
    yield from differences(VBIOS, "the VBIOS", {host: _one_vbios(gpus) for host, gpus in used.items()})
    links = {host: max(gpu.links_up for gpu in gpus.gpus) for host, gpus in used.items()}
    yield from differences(NVLINK, "the number of NVLinks", {host: str(count) for host, count in links.items()})


def models(gpus: Gpus) -> str:
    counts = Counter(gpu.model for gpu in gpus.gpus)
    return ", ".join(f"{count} x {model}" for model, count in sorted(counts.items()))


def _one_vbios(gpus: Gpus) -> str:
    """The model with its VBIOS, unless there are several, which is a problem of the machine alone."""
    versions = {f"{gpu.vbios} ({gpu.model})" for gpu in gpus.gpus if gpu.vbios}
    return versions.pop() if len(versions) == 1 else ""


def columns(gpus: Gpus) -> Mapping[str, str]:
    if not gpus.gpus:
        return {}
    links = max(gpu.links_up for gpu in gpus.gpus)
    vbios = ", ".join(sorted({gpu.vbios for gpu in gpus.gpus if gpu.vbios}))
    return {"GPUs": models(gpus), "driver": gpus.driver, "VBIOS": vbios, "NVLinks": str(links or "")}


TOPIC: Topic[Gpus] = Topic("gpu", Gpus, CHECKS, read, judge, compare, columns=columns)
