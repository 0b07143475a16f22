# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks gpu.* and amd.devices: the GPUs of one machine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from ..argus.common.findings import ERROR, NOTE, WARNING
from ..argus.common.node_process import RUNNING
from ..cluster.devices import KFD
from ..cluster.engine import EngineStatus
from ..cluster.gpus import Gpu, Xid
from ..cluster.machine import Machine
from ..cluster.system import Process
from .checks import Expectation, Invariant, Problem, counts_text

# Xids that a job causes by its own errors. They say nothing about the GPU.
XIDS_OF_JOBS = (13, 31, 43, 45)
# Xids after which a GPU has to be reset: it is lost, its memory cannot be repaired, or its firmware does not answer.
FATAL_XIDS = (48, 64, 74, 79, 95, 119, 120, 140)
# From this use of memory on, foreign programs are an error. Programs for monitoring use less.
FOREIGN_MIB = 1024
MAX_NAMES = 5
MODEL_REMEDY = "use machines with these GPUs, or correct preflight_gpu_model in the inventory"


def gpu_problems(machine: Machine, expected: Expectation) -> Iterator[Problem]:
    yield from _count_problems(machine, expected)
    yield from _engine_problems(machine, expected)
    # GPUs that jobs do not use may have any model and state, such as those of the head's machine.
    if expected.gpus != 0:
        yield from _model_problems(gpus_of(machine), expected)
        for gpu in gpus_of(machine):
            for problem in (*_health_problems(gpu), *(_usage_problems(gpu, machine) if machine.gpus else ())):
                yield problem._replace(text=f"GPU {gpu.index} ({gpu.bus}): {problem.text}")
        yield from _kernel_log_problems(machine) if machine.gpus else _amd_problems(machine)


def gpus_of(machine: Machine) -> Sequence[Gpu]:
    """Return the GPUs that jobs use. Beside NVIDIA's GPUs, an AMD GPU is part of the processor."""
    return machine.gpus or machine.amd_gpus


def _count_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    count, expected = len(machine.gpus) or len(machine.rocm_gpus), expectation.gpus
    expected_count = "" if expected is None else f", expected {expected}"
    if machine.gpus_error:
        # With 0, its GPUs are not used: the head's machine works with a broken driver.
        yield Problem(
            "gpu.answers",
            f"nvidia-smi fails and shows {count} GPUs{expected_count}: {machine.gpus_error}",
            "after a driver update reload the nvidia modules or reboot; a GPU lost from the bus shows in dmesg as Xid",
            WARNING if expected == 0 else ERROR,
        )
    elif expected is not None and count < expected:
        yield Problem(
            "gpu.count",
            f"{count} GPUs found, expected at least {expected}",
            "check for GPUs lost from the bus (dmesg, lspci), or lower the number of GPUs in the inventory"
            if count
            else "install the driver (nvidia-smi is not on PATH, amdgpu is not loaded, or this machine has no GPU)",
        )
    models = [gpu.name for gpu in machine.gpus]
    if len(set(models)) > 1:
        yield Problem(
            "gpu.model",
            f"GPUs of different models: {counts_text(models)}, expected one model",
            "exclude the smaller GPUs: a job is limited by the speed and memory of the smallest one",
        )


def _model_problems(gpus: Iterable[Gpu], expected: Expectation) -> Iterator[Problem]:
    # A whole word: "A10" is not an A100.
    words = re.compile(rf"(?<![^\W_]){re.escape(expected.gpu_model)}(?![^\W_])", re.I)
    for name, count in sorted(Counter(gpu.name for gpu in gpus).items()):
        if expected.gpu_model and not words.search(name):
            yield Problem("gpu.model", f"{count} x {name}, expected {expected.gpu_model}", MODEL_REMEDY, ERROR)


def _engine_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    engine, count = machine.engine, len(machine.gpus)
    if count and expectation.gpus != 0 and engine.status == EngineStatus.OK and not engine.nvidia:
        yield Problem(
            "gpu.engine",
            f"{count} GPUs found, but {engine.name} {engine.version} cannot give them to containers: "
            'it has neither a runtime "nvidia" nor a CDI specification for nvidia.com/gpu',
            "install nvidia-container-toolkit, then: nvidia-ctk runtime configure --runtime=docker and restart docker"
            if engine.name == "docker"
            else "install nvidia-container-toolkit, then: nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
        )


def _kernel_log_problems(machine: Machine) -> Iterator[Problem]:
    yield from map(_xid_problem, (xid for xid in machine.xids if xid.number not in XIDS_OF_JOBS))
    if machine.kernel_log_error:
        yield Problem(
            "gpu.xid",
            f"the kernel log cannot be read, so Xid errors are not known ({machine.kernel_log_error})",
            "set ansible_become: true for the machine, or sysctl kernel.dmesg_restrict=0",
            NOTE,
        )


def _amd_problems(machine: Machine) -> Iterator[Problem]:
    gpus = machine.amd_gpus
    if gpus and KFD not in [file.path for file in machine.rocm_devices]:
        yield Problem("amd.devices", f"{len(gpus)} AMD GPUs, but no {KFD}")
    # Sysfs does not tell which GPU a process uses, so each GPU lists all of them.
    foreign = _foreign_processes(machine, gpus[0].processes) if gpus else []
    memory = sum(gpu.memory_used_mib or 0 for gpu in gpus)
    if foreign:
        yield Problem(
            "gpu.processes",
            f"programs outside of the cluster use the GPUs: {', '.join(map(str, foreign[:MAX_NAMES]))}; "
            f"{memory} MiB in use",
            severity=ERROR if memory >= FOREIGN_MIB else WARNING,
        )


def _health_problems(gpu: Gpu) -> Iterator[Problem]:
    if gpu.uncorrected:
        ever = f", {gpu.uncorrected_ever} ever" if gpu.uncorrected_ever else ""
        yield Problem("gpu.ecc", f"{gpu.uncorrected} uncorrected memory errors since the driver was loaded{ever}")
    if gpu.remap_failed:
        yield Problem("gpu.remap", "a row of its memory could not be replaced", "ask the vendor for another GPU")
    elif gpu.remap_pending:
        yield Problem("gpu.remap", "a bad row of its memory is replaced at the next reset", "reset the GPU or reboot")
    if gpu.recovery:
        yield Problem("gpu.recovery", f'the driver asks for "{gpu.recovery}"')


def _usage_problems(gpu: Gpu, machine: Machine) -> Iterator[Problem]:
    if gpu.mig == "Enabled":
        yield Problem("gpu.mig", "MIG is on")
    foreign = _foreign_processes(machine, gpu.processes)
    if foreign:
        memory = sum(process.memory_mib for process in foreign)
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
        # In the container of a compute platform, nvidia-smi shows no processes, not even those of jobs.
        and not (machine.process and machine.process.node.state == RUNNING)
    ):
        yield Problem("gpu.memory", f"{gpu.memory_used_mib} MiB in use, but nvidia-smi shows no process")


def _foreign_processes(machine: Machine, processes: Iterable[Process]) -> list[Process]:
    """Return the processes that belong to no cluster, and should use no GPU."""
    cluster_containers = {container.id for container in machine.containers.values() if container.cluster}
    return [process for process in processes if not process.of_node and process.container not in cluster_containers]


def _xid_problem(xid: Xid) -> Problem:
    times = f"{xid.count} times " if xid.count > 1 else ""
    text = f": {xid.text}" if xid.text else ""
    return Problem(
        "gpu.xid",
        f"GPU {xid.bus}: Xid {xid.number} {times}in the kernel log{text}",
        severity=ERROR if xid.number in FATAL_XIDS else WARNING,
    )


def gpu_invariants(machine: Machine, expected: Expectation) -> Iterator[Invariant]:
    gpus = gpus_of(machine)
    if gpus and expected.gpus != 0:
        yield Invariant("gpu.driver", "the driver", gpus[0].driver_version)
        yield Invariant("gpu.same", "the GPUs", models_text(gpus))


def models_text(gpus: Sequence[Gpu]) -> str:
    return counts_text(gpu.name for gpu in gpus)
