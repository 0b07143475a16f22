from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster.devices import (
    DeviceFile,
    groups_of,
    read_devices,
    read_gpus,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import NodePlan, PlanError, plan_node
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import container_arguments, ray_environment
from samples import PROCESS_HOST, PROCESS_SETTINGS, SETTINGS, WORKERS, machine, with_settings

GIB = 1 << 30
CPU = {"cpu_cores_count": 64, "simd_count": 0, "drm_render_minor": 0}
MI300 = {"cpu_cores_count": 0, "simd_count": 1216, "gfx_target_version": 90402}


def node(root: Path, number: int, properties: dict[str, int], *banks: tuple[int, int]) -> None:
    """A node in the tree of the driver, with banks of memory: the kind of the heap, and its size."""
    directory = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
    (directory / "mem_banks").mkdir(parents=True)
    (directory / "properties").write_text("".join(f"{name} {value}\n" for name, value in properties.items()))
    for bank, (heap, size) in enumerate(banks):
        there = directory / "mem_banks" / str(bank)
        there.mkdir()
        (there / "properties").write_text(f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\n")


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
    assert read_gpus(root) == [f"/dev/dri/renderD{128 + 8 * gpu}" for gpu in range(8)]
    assert read_gpus(root / "none") == []


def test_devices_are_those_that_exist(root: Path) -> None:
    files = read_devices(root, read_gpus(root))
    assert [file.path for file in files] == ["/dev/kfd", "/dev/dri/renderD128", "/dev/dri/renderD136"]
    assert (files[0].mode, files[0].uid, files[0].gid) == (0o660, os.geteuid(), os.getegid())


def test_the_groups_of_devices() -> None:
    files = [
        DeviceFile("/dev/kfd", 0o660, 0, 109),
        DeviceFile("/dev/dri/renderD128", 0o660, 0, 44),
        DeviceFile("/dev/dri/renderD129", 0o660, 0, 109),
        # Open to all, of root, or readable only.
        DeviceFile("/dev/dri/renderD130", 0o660, 0, 0),
        DeviceFile("/dev/dri/renderD131", 0o640, 0, 7),
    ]
    assert groups_of(files) == ("44", "109")


def test_a_probed_machine_keeps_its_gpus_as_json(root: Path) -> None:
    found = Probe(run=lambda argv: (127, "", "not found"), root=root).machine(cluster="mvp", engine="none")
    again = Machine.from_json({**found.to_json(), "process": None})
    assert again.rocm_gpus == found.rocm_gpus
    assert again.rocm_devices == found.rocm_devices != ()
    # The answer of an earlier version has none.
    old = {name: value for name, value in found.to_json().items() if not name.startswith("rocm")}
    assert (Machine.from_json(old).rocm_gpus, Machine.from_json(old).rocm_devices) == ((), ())


FILES = (DeviceFile("/dev/kfd", 0o660, 0, 109), DeviceFile("/dev/dri/renderD128", 0o660, 0, 44))
GPUS = tuple(f"/dev/dri/renderD{128 + 8 * index}" for index in range(8))


def plan(**changes: Any) -> NodePlan:
    settings = with_settings(
        SETTINGS, **{"accelerator": "rocm", "images": {"rocm": "verl-rocm:1"}, "network": "host", **changes}
    )
    return plan_node(settings, machine(rocm_gpus=GPUS, rocm_devices=FILES), WORKERS)


def test_workers_share_the_gpus_of_a_machine() -> None:
    first, second = plan(), plan(name="worker-1")
    assert (first.gpus, first.gpu_ids, first.cpus) == (4, (0, 1, 2, 3), None)
    assert second.gpu_ids == (4, 5, 6, 7)
    assert ray_environment(second)["HIP_VISIBLE_DEVICES"] == "4,5,6,7"
    assert not {"ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & set(ray_environment(second))


def test_the_container_of_a_worker() -> None:
    arguments = container_arguments(plan(groups=["109", "audio"], devices=["/dev/fuse:/dev/fuse"]))
    assert arguments["devices"] == ["/dev/fuse:/dev/fuse", "/dev/kfd:/dev/kfd", "/dev/dri:/dev/dri"]
    assert arguments["groups"] == ["109", "audio", "44"]
    assert "memlock:-1:-1" in arguments["ulimits"]
    assert "device_requests" not in arguments
    assert "--labels=argus.verl/accelerator=rocm" in arguments["command"] and "--num-gpus=4" in arguments["command"]


def test_a_head_has_no_gpus() -> None:
    head = plan(name="ray-head", role="head")
    assert (head.accelerator, head.gpus, head.amd_devices) == ("rocm", 0, ())
    arguments = container_arguments(head)
    assert "devices" not in arguments and "groups" not in arguments
    assert "HIP_VISIBLE_DEVICES" not in arguments["env"]


def test_other_kinds_get_no_device_of_amd() -> None:
    arguments = container_arguments(plan(accelerator="cpu", images={"cpu": "i"}))
    assert "devices" not in arguments and "HIP_VISIBLE_DEVICES" not in arguments["env"]


def test_a_process_has_the_share_as_well() -> None:
    settings = with_settings(PROCESS_SETTINGS, accelerator="rocm", gpus=2)
    found = plan_node(settings, machine(process=PROCESS_HOST, rocm_gpus=GPUS, rocm_devices=FILES), ["worker-0"])
    assert ray_environment(found)["HIP_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize("name", ["ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"])
def test_variables_that_select_gpus_are_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"worker-0: {name} cannot be set with rocm"):
        plan(env={name: "0,1"})
    # On the head they would reach all jobs that run there.
    with pytest.raises(PlanError):
        plan(name="ray-head", role="head", env={name: "0,1"})
    assert plan(env={"NCCL_DEBUG": "INFO"}).gpus == 4
    # Of NVIDIA, they are the inventory's own business.
    assert plan(accelerator="cpu", images={"cpu": "i"}, env={name: "0"}).accelerator == "cpu"
