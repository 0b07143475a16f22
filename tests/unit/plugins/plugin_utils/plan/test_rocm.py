from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import (
    DeviceFile,
    group_ids,
    read_amd_device_files,
    read_render_devices,
)
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import NodePlan, PlanError, plan_node
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments
from ansible_collections.argus.verl.plugins.plugin_utils.plan.ray_start import ray_environment
from samples import SETTINGS, WORKERS, machine, with_settings

GIB = 1 << 30
CPU = {"cpu_cores_count": 64, "simd_count": 0, "drm_render_minor": 0}
MI300 = {"cpu_cores_count": 0, "simd_count": 1216, "gfx_target_version": 90402}


def node(root: Path, number: int, properties: dict[str, int], *banks: tuple[int, int]) -> None:
    """A node in the tree of the driver, with banks of memory: the kind of the heap, and its size."""
    directory = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    (directory / "mem_banks").mkdir(parents=True)
    (directory / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    for bank, (heap, size) in enumerate(banks):
        path = directory / "mem_banks" / str(bank)
        path.mkdir()
        (path / "properties").write_text(f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two processors and eight GPUs, one of them with a number of two digits, and a small one of the board."""
    node(tmp_path, 0, CPU, (0, 512 * GIB))
    node(tmp_path, 1, CPU, (0, 512 * GIB))
    for gpu in range(8):
        node(tmp_path, 2 + gpu, {**MI300, "drm_render_minor": 128 + 8 * gpu}, (1, 191 * GIB), (2, GIB), (0, 8 * GIB))
    node(tmp_path, 10, {**MI300, "gfx_target_version": 100306, "drm_render_minor": 192}, (1, 8 * GIB - 1))
    (tmp_path / "dev/dri").mkdir(parents=True)
    for device in ("kfd", "dri/renderD128", "dri/renderD136"):
        (tmp_path / "dev" / device).touch()
        (tmp_path / "dev" / device).chmod(0o660)
    return tmp_path


def test_gpus_are_those_of_the_driver_in_the_order_of_hip(root: Path) -> None:
    assert read_render_devices(root) == [f"/dev/dri/renderD{128 + 8 * gpu}" for gpu in range(8)]
    assert read_render_devices(root / "none") == []
    files = read_amd_device_files(root, read_render_devices(root))
    assert [file.path for file in files] == ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD136"]
    assert (files[0].mode, files[0].uid, files[0].gid) == (0o660, os.geteuid(), os.getegid())
    # Those of root, and of devices that are readable only, do not count.
    owners = [(0o660, 109), (0o660, 44), (0o660, 109), (0o660, 0), (0o640, 7)]
    assert group_ids([DeviceFile("/dev/x", mode, 0, gid) for mode, gid in owners]) == ("44", "109")


FILES = (DeviceFile("/dev/kfd", 0o660, 0, 109), DeviceFile("/dev/dri/renderD128", 0o660, 0, 44))
GPUS = tuple(f"/dev/dri/renderD{128 + 8 * index}" for index in range(8))


def plan(**changes: Any) -> NodePlan:
    settings = with_settings(
        SETTINGS, **{"accelerator": "rocm", "images": {"rocm": "verl-rocm:1"}, "network": "host", **changes}
    )
    return plan_node(settings, machine(rocm_gpus=GPUS, rocm_devices=FILES), WORKERS)


def test_the_container_of_a_worker() -> None:
    head = container_arguments(plan(name="ray-head", role="head"))
    assert not {"devices", "groups"} & head.keys() and "HIP_VISIBLE_DEVICES" not in head["env"]
    second = plan(name="worker-1")
    assert (second.gpus, second.gpu_ids, second.cpus) == (4, (4, 5, 6, 7), None)
    assert ray_environment(second)["HIP_VISIBLE_DEVICES"] == "4,5,6,7"
    assert not {"ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & set(ray_environment(second))
    arguments = container_arguments(plan(groups=["109", "audio"], devices=["/dev/fuse:/dev/fuse"]))
    assert arguments["devices"] == ["/dev/fuse:/dev/fuse", "/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
    assert arguments["groups"] == ["109", "audio", "44"]
    assert "memlock:-1:-1" in arguments["ulimits"]
    assert "device_requests" not in arguments
    assert "--labels=argus.verl/accelerator=rocm" in arguments["command"] and "--num-gpus=4" in arguments["command"]


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_variables_that_select_gpus_are_refused(name: str) -> None:
    # On the head they would reach all jobs that run there.
    for node in ({}, {"name": "ray-head", "role": "head"}):
        with pytest.raises(PlanError, match=name):
            plan(env={name: "0,1"}, **node)
    # Without ROCm they are not refused.
    assert plan(accelerator="cpu", images={"cpu": "i"}, env={name: "0"}).accelerator == "cpu"
