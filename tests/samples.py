"""Samples for tests of the cluster: recorded output, a healthy machine with eight GPUs, containers, planned nodes."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.cluster.membership import ExpectedNode
from ansible_collections.argus.verl.plugins.module_utils.argus.common.node_process import NodeProcess
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import (
    CLUSTER_LABEL,
    Container,
    Engine,
    EngineStatus,
    Image,
)
from ansible_collections.argus.verl.plugins.module_utils.cluster.gpus import Gpu
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.paths import PathState
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import ProcessHost
from ansible_collections.argus.verl.plugins.module_utils.network.interfaces import Hca
from ansible_collections.argus.verl.plugins.plugin_utils.inventory.nodes import (
    NodePlan,
    Settings,
    accelerator_of,
    plan_node,
)
from ansible_collections.argus.verl.plugins.plugin_utils.plan.actions import ActionKind, PlannedNode

RECORDED = Path(__file__).parent / "unit" / "fixtures" / "machine"
GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"
DOCKER = Engine("docker", EngineStatus.OK, "27.3.1", root_dir="/var/lib/docker", nvidia=True)
PRIVATE = PathState(
    path="/private",
    exists=True,
    mount_point="/private",
    fstype="nfs4",
    source="storage:/export",
    options=["rw", "vers=4.2"],
    free_bytes=500 * GIB,
    writable=True,
)


def recorded(name: str) -> str:
    """Return the output of a tool; fixtures/machine/README.md lists the sources."""
    return (RECORDED / name).read_text()


def gpus(count: int, name: str = H100) -> list[Gpu]:
    return [Gpu(index, name, f"GPU-{index}", 81559, "550.90.07") for index in range(count)]


def nvidia_smi(count: int) -> str:
    """Return what "nvidia-smi -q -x" prints of so many of the recorded H200."""
    text = (RECORDED.parent / "preflight" / "nvidia_smi_h200.xml").read_text()
    before, gpu, after = re.split(r"(<gpu id.*</gpu>)", text, flags=re.S)
    return before + gpu * count + after


def hca(device: str, state: str) -> Hca:
    return Hca(device, 1, device.replace("mlx5_", "ib"), state)


def container(cluster: str | None = "mvp", **changes: Any) -> Container:
    running = Container(
        id="0123456789abcdef",
        state="running",
        started_at="2026-01-12T08:15:30Z",
        image_id="sha256:1",
        labels={} if cluster is None else {CLUSTER_LABEL: cluster},
        host_ports=[],
        host_network=False,
    )
    return replace(running, **changes)


HEALTHY = Machine(
    cluster="mvp",
    python="/usr/bin/python3",
    missing_packages=[],
    gpus=gpus(8),
    gpus_error=None,
    hcas=[hca("mlx5_0", "up"), hca("mlx5_1", "up")],
    mounts=[PRIVATE],
    disk=replace(PRIVATE, path="/var/lib/docker", mount_point="/", fstype="ext4", source="/dev/vda"),
    memory_bytes=1000 * GIB,
    shm_bytes=500 * GIB,
    uid=1000,
    gid=1000,
    user="ray",
    engine=DOCKER,
    containers={},
    images={},
    ports_in_use=[],
)


def planned(kind: str = "keep", reason: str = "runs as planned", **changes: Any) -> PlannedNode:
    """A planned node; the action disrupts when it recreates the container."""
    plan = PlannedNode(
        accelerator="cpu",
        image="argus-verl-cpu:0.1.0",
        image_missing=False,
        user="1000:1000",
        container={"name": "worker-0"},
        action=ActionKind(kind),
        reason=reason,
        disrupts=kind == "recreate",
        started_at="1970-01-01T00:01:00.123456789Z",
        state="running",
        expected=ExpectedNode("worker-0", cpus=48, gpus=4, resources={"worker_node": 100}),
    )
    return replace(plan, **changes)


IMAGES = {"cpu": "argus-verl-cpu:0.1.0", "cuda": "verlai/verl:vllm024.latest"}
SETTINGS = Settings(
    name="worker-0",
    role="worker",
    machine="box",
    cluster_name="mvp",
    cluster_images=IMAGES,
    accelerator="cpu",
    ray_node_cpus=None,
    ray_node_gpus=None,
    cluster_network="mvp-ray",
    address="worker-0",
    head_address="ray-head",
    cluster_dashboard_port=8265,
    cluster_port_base=20000,
    shared_root="/private",
    shared_root_source="/srv/shared",
    cluster_state_dir="/var/lib/argus-verl",
    cluster_head_storage="rocksdb",
    ray_node_shm_gib=2,
    ray_node_user="",
    ray_node_env={},
    ray_node_read_only=True,
    ray_node_devices=[],
    ray_node_rdma="auto",
    ray_node_groups=[],
    ray_node_ulimits=[],
    rotate_token=False,
)
NAMES = [setting.name for setting in fields(Settings)]
VARIABLES = {name.removeprefix("ray_node_").removeprefix("cluster_"): name for name in NAMES} | {"name": "name"}


def with_settings(base: Settings = SETTINGS, **changes: Any) -> Settings:
    """Settings with changes of variables, whose names may lack their prefix."""
    return replace(base, **{VARIABLES.get(name, name): value for name, value in changes.items()})


WORKERS = ["worker-0", "worker-1"]


def machine(count: int = 0, uid: int = 1001, **changes: Any) -> Machine:
    images = {image: Image(f"sha256:{kind}", {}) for kind, image in IMAGES.items()}
    return replace(HEALTHY, gpus=gpus(count), uid=uid, gid=uid + 1, **{"images": images, **changes})


def plan(gpus_there: int = 0, siblings: list[str] = WORKERS, uid: int = 1001, **changes: Any) -> NodePlan:
    changes.setdefault("accelerator", accelerator_of("auto", [machine(gpus_there)]))
    return plan_node(with_settings(**changes), machine(gpus_there, uid), siblings)


def head(**changes: Any) -> NodePlan:
    return plan(name="ray-head", role="head", **changes)


# The host of a node without a container, and the settings of such a node.
PROCESS_HOST = ProcessHost(
    directory="/home/ml/.local/state/argus-verl/mvp/nodes/worker-0",
    home="/home/ml",
    address="10.0.0.21",
    ray="/opt/verl/bin/ray",
    node=NodeProcess(),
    neighbours=[],
    others=[],
)
PROCESS_SETTINGS = with_settings(
    runtime="process",
    python="/opt/verl/bin/python3",
    network="host",
    address="10.0.0.21",
    head_address="10.0.0.20",
    images={},
)


def process_plan(host: ProcessHost = PROCESS_HOST, **changes: Any) -> NodePlan:
    return plan_node(
        with_settings(PROCESS_SETTINGS, **changes), machine(process=host, user="ml"), [changes.get("name", "worker-0")]
    )
