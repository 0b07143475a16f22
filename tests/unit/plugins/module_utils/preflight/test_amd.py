"""A tree of sysfs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.preflight import amd
from ansible_collections.argus.verl.plugins.module_utils.preflight.amd import AmdGpus
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation, Problem
from ansible_collections.argus.verl.plugins.module_utils.preflight.gpu import GpuState
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Process
from preflight_tree import OURS, THEIRS, Tree, context, differences
from samples import HEALTHY, container

GPU = GpuState(
    "0000:05:00.0",
    "AMD Instinct MI300X",
    uncorrected=0,
    memory_used_mib=283,
    memory_mib=196592,
)
GPUS = AmdGpus((GPU, replace(GPU, bus="0000:26:00.0")), "6.8.5")


def with_gpu(tree: Tree, card: int, bus: str, **files: str) -> None:
    device = f"/sys/devices/{bus}"
    known = {
        "vendor": "0x1002",
        "product_name": "AMD Instinct MI300X",
        "mem_info_vram_used": str(283 << 20),
        "mem_info_vram_total": str(196592 << 20),
        "ras/umc_err_count": "ue: 0\nce: 7\n",
    }
    for name, text in {**known, **files}.items():
        tree.file(f"{device}/{name}", f"{text}\n")
    directory = tree.root / f"sys/class/drm/card{card}"
    directory.mkdir(parents=True)
    (directory / "device").symlink_to(tree.root / device.lstrip("/"))


def judged(answer: AmdGpus, **changes: Any) -> list[Problem]:
    return list(amd.judge(answer, context(**changes)))


def only(answer: AmdGpus, **changes: Any) -> Problem:
    problems = judged(answer, **changes)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_tree_of_sysfs(tree: Tree) -> None:
    with_gpu(tree, 1, "0000:26:00.0", **{"ras/sdma_err_count": "ue: 2\nce: 0\n", "ras/umc_err_count": "ue: 1\nce: 9\n"})
    with_gpu(tree, 10, "0000:05:00.0")
    with_gpu(tree, 0, "0000:01:00.0", vendor="0x1a03")
    tree.file("/sys/module/amdgpu/version", "6.8.5\n")
    tree.file("/dev/kfd")
    (tree.root / "sys/class/kfd/kfd/proc/77").mkdir(parents=True)
    tree.process(77, "python3", container=OURS)
    assert amd.read(tree.reader()) == AmdGpus(
        (GPU, replace(GPU, bus="0000:26:00.0", uncorrected=3)), "6.8.5", True, (Process(77, "python3", "", OURS),)
    )


def test_a_machine_without_amd_gpus(tree: Tree) -> None:
    with_gpu(tree, 0, "0000:01:00.0", vendor="0x10de")
    assert amd.read(tree.reader()) == AmdGpus()
    assert judged(AmdGpus()) == []
    assert amd.columns(AmdGpus()) == {}


def test_healthy_gpus_have_no_problem() -> None:
    assert judged(GPUS) == []


@pytest.mark.parametrize(
    ("answer", "key", "severity", "what"),
    [
        (replace(GPUS, kfd=False), "amd.devices", ERROR, "2 AMD GPUs, but no /dev/kfd"),
        (
            replace(GPUS, gpus=(GPU, replace(GPU, uncorrected=1))),
            "amd.ecc",
            ERROR,
            "GPU 1 (0000:05:00.0): 1 uncorrected memory errors since the driver was loaded",
        ),
        (
            replace(GPUS, processes=(Process(7, "python3", "", THEIRS),)),
            "amd.processes",
            WARNING,
            "programs outside of the cluster use the GPUs: python3 (pid 7, container bbbbbbbbbbbb); 566 MiB in use",
        ),
        (
            replace(GPUS, gpus=(replace(GPU, memory_used_mib=1024),), processes=(Process(7, "python3"),)),
            "amd.processes",
            ERROR,
            "programs outside of the cluster use the GPUs: python3 (pid 7); 1024 MiB in use",
        ),
    ],
)
def test_problems(answer: AmdGpus, key: str, severity: str, what: str) -> None:
    finding = only(answer).finding("gpu-1")
    assert (finding.key, finding.severity, finding.what) == (key, severity, what)
    assert judged(answer, expected=Expectation(gpus=0)) == []


@pytest.mark.parametrize(
    ("expected", "keys"),
    [
        ({"gpu_model": "MI300X", "gpu_memory_gib": 192}, []),
        ({"gpu_model": "MI300", "gpu_memory_gib": 256}, ["amd.model", "amd.memory_size"]),
    ],
)
def test_gpus_are_compared_with_the_expected_ones(tree: Tree, expected: dict[str, Any], keys: list[str]) -> None:
    with_gpu(tree, 0, "0000:05:00.0")
    tree.file("/dev/kfd")
    problems = judged(amd.read(tree.reader()), expected=Expectation(**expected))
    assert [problem.key for problem in problems] == keys
    for problem in problems:
        assert "AMD Instinct MI300X" in problem.what
    assert judged(GPUS, expected=Expectation(gpus=0, **expected)) == []


def test_programs_of_the_cluster_may_use_gpus() -> None:
    machine = replace(HEALTHY, containers={"mvp-0": replace(container("mvp-0"), id=OURS)})
    answer = replace(GPUS, processes=(Process(7, "python3", "", OURS),))
    assert judged(answer, machine=machine) == []


def test_machines_are_compared() -> None:
    def different(other: AmdGpus) -> list[tuple[str, str]]:
        facts = {"a": GPUS, "b": GPUS, "c": other, "d": AmdGpus()}
        return [(each.where, each.key) for each in differences(amd.TOPIC, facts)]

    assert different(GPUS) == []
    assert different(replace(GPUS, driver="1")) == [("c", "amd.driver")]
    assert different(replace(GPUS, gpus=GPUS.gpus[:1])) == [("c", "amd.same")]
    assert amd.columns(GPUS) == {"GPUs": "2 x AMD Instinct MI300X", "driver": "6.8.5"}
