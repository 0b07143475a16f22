"""What is wrong with GPUs of NVIDIA and AMD."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, NOTE, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import KFD, DeviceFile
from ansible_collections.argus.verl.plugins.module_utils.cluster.gpus import Gpu, Xid
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.node_process import FoundProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.processes import Process
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Probed, judged
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import H100, HEALTHY, PROCESS_HOST, container

OURS, THEIRS = "a" * 64, "b" * 64
GPU = Gpu(0, H100, "GPU-0", 81559, "550.90.07", "0000:01:00.0", "Disabled", 0, 0, memory_used_mib=4)
NVIDIA = replace(HEALTHY, gpus=[GPU])
MI300X = Gpu(0, "AMD Instinct MI300X", "", 196592, "6.8.5", "0000:05:00.0", uncorrected=0, memory_used_mib=283)
AMD = replace(
    HEALTHY, gpus=[], amd_gpus=[MI300X], rocm_gpus=["/dev/dri/renderD128"], rocm_devices=[DeviceFile(KFD, 0o666, 0, 0)]
)


def found(machine: Machine, **expected: Any) -> list[Finding]:
    return machine_findings("gpu-1", machine, Expectation(**expected))


def nvidia(**changes: Any) -> Machine:
    return replace(NVIDIA, gpus=[replace(GPU, **changes)])


def amd(**changes: Any) -> Machine:
    return replace(AMD, amd_gpus=[replace(MI300X, **changes)])


@pytest.mark.parametrize(
    ("machine", "key", "severity", "what"),
    [
        (nvidia(uncorrected=2, uncorrected_ever=5), "gpu.ecc", ERROR, "2 uncorrected memory errors .*, 5 ever"),
        (nvidia(remap_pending=True), "gpu.remap", ERROR, "next reset"),
        (nvidia(remap_failed=True, remap_pending=True), "gpu.remap", ERROR, "could not be replaced"),
        (nvidia(recovery="Drain and Reset"), "gpu.recovery", ERROR, '"Drain and Reset"'),
        (nvidia(mig="Enabled", memory_used_mib=40_000), "gpu.mig", WARNING, "MIG"),
        (nvidia(memory_used_mib=1024), "gpu.memory", WARNING, "1024 MiB in use, but nvidia-smi shows no process"),
        (amd(uncorrected=1), "amd.ecc", ERROR, "1 uncorrected"),
        (replace(AMD, rocm_devices=[]), "amd.devices", ERROR, "no /dev/kfd"),
        (amd(processes=(Process(7, "python3", "", THEIRS),)), "amd.processes", WARNING, "283 MiB in use"),
        (amd(processes=(Process(7, "python3"),), memory_used_mib=1024), "amd.processes", ERROR, "python3 .pid 7."),
    ],
)
def test_problems(machine: Machine, key: str, severity: str, what: str) -> None:
    (finding,) = found(machine)
    assert (finding.key, finding.severity, bool(finding.todo)) == (key, severity, True)
    assert re.search(what, finding.what)
    # GPUs that nobody uses may be as they like.
    assert found(machine, gpus=0) == []


def test_healthy_gpus_have_no_problem() -> None:
    assert found(nvidia(memory_used_mib=1023)) == found(AMD) == found(replace(HEALTHY, gpus=[])) == []


def test_amd_gpus_are_compared_with_the_expected_ones() -> None:
    assert found(AMD, gpu_model="MI300X", gpu_memory_gib=192) == []
    keys = [finding.key for finding in found(AMD, gpu_model="MI300", gpu_memory_gib=256)]
    assert keys == ["amd.model", "amd.memory_size"]


def test_programs_of_the_cluster_may_use_gpus_and_others_may_not() -> None:
    ours, theirs = (Process(pid, "python3", "", place, 70_000) for pid, place in ((1, OURS), (2, THEIRS)))
    monitor = Process(3, "exporter", memory_mib=1023)
    containers = {"mvp-0": replace(container("mvp-0"), id=OURS)}

    def with_processes(*processes: Process) -> list[Finding]:
        return found(replace(nvidia(processes=processes, memory_used_mib=80_000), containers=containers), gpus=1)

    # The container has another name than its node.
    assert [finding.key for finding in with_processes(ours)] == ["machine.node_name"]
    shown = {finding.key: finding for finding in with_processes(ours, theirs)}["gpu.processes"]
    assert "70000 MiB" in shown.what and f"(pid 2, container {THEIRS[:12]})" in shown.what
    severities = [
        {finding.key: finding.severity for finding in with_processes(process)}["gpu.processes"]
        for process in (theirs, monitor, replace(monitor, memory_mib=1024))
    ]
    assert severities == [ERROR, WARNING, ERROR]
    of_node = Process(4, "ray::WorkerDict", memory_mib=70_000, of_node=True)
    assert "gpu.processes" not in [finding.key for finding in with_processes(of_node)]


def test_memory_of_processes_that_are_not_shown_is_that_of_jobs_where_a_node_runs() -> None:
    """In a container of a platform, nvidia-smi shows no processes."""
    for state, keys in (("", ["gpu.memory"]), ("running", [])):
        process = replace(PROCESS_HOST, node=FoundProcess(state=state))
        machine = replace(nvidia(memory_used_mib=80_000), process=process)
        assert [finding.key for finding in found(machine)] == keys


def test_xids() -> None:
    # That of a job's own mistake is left out.
    xids = [Xid("0000:3b:00", 31, 1, "x"), Xid("0000:5e:00", 63, 1, "y"), Xid("0000:83:00", 79, 2, "off the bus")]
    warning, error = found(replace(NVIDIA, xids=xids))
    assert (warning.severity, error.severity) == (WARNING, ERROR)
    assert error.what == "GPU 0000:83:00: Xid 79 2 times in the kernel log: off the bus"
    (note,) = found(replace(NVIDIA, kernel_log_error="dmesg: not permitted"))
    assert (note.key, note.severity) == ("gpu.xid", NOTE)


def test_machines_are_compared() -> None:
    def different(other: Machine) -> list[tuple[str, str]]:
        machines = {"a": NVIDIA, "b": NVIDIA, "c": other, "d": replace(HEALTHY, gpus=[])}
        probed = {name: Probed(Context(name, each, Expectation()), []) for name, each in machines.items()}
        return [(each.where, each.key) for each in judged(list(probed), probed, "fast").findings]

    assert different(NVIDIA) == different(AMD) == []
    assert different(nvidia(driver_version="1")) == [("c", "gpu.driver")]
    assert different(replace(NVIDIA, gpus=[GPU, GPU])) == [("c", "gpu.same")]
