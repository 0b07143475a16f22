# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a Ray node from its variables in the inventory and its probed machine: image, GPUs, CPUs, user and ports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.cluster.devices import DeviceFile, environment_problem, gets_rdma
from ...module_utils.cluster.engine import DOCKER, INPUTS_LABEL, Engine
from ...module_utils.cluster.machine import Machine
from ...module_utils.cluster.ports import PortPlan, node_number
from ...module_utils.cluster.process_host import ProcessHost
from ...module_utils.privileges import UNPRIVILEGED

HEAD = "head"
WORKER = "worker"
# The values of ray_node_runtime: how a node runs.
CONTAINER = "container"
PROCESS = "process"
CPU = "cpu"
CUDA = "cuda"
ROCM = "rocm"
# A job's driver requests one unit, so that Ray places it on a worker. A worker has enough for all drivers.
WORKER_RESOURCES = {"worker_node": 100}
# SFT requests 10 CPUs per process and PPO 3. Logical GPUs come with enough logical CPUs for these and for drivers, or a
# job that fits the GPUs would wait for CPUs for ever.
LOGICAL_CPUS_PER_GPU = 12


class PlanError(Exception):
    """The inventory and the machine contradict each other; the message has the node, the problem and the fix."""


@dataclass(frozen=True)
class Settings:
    """The variables of one node, by their names in the roles' argument specs, and what follows from all machines."""

    name: str
    role: str
    # Its name for people.
    machine: str
    # The kind, never "auto".
    accelerator: str
    # Where other nodes reach this one and the head: an IP address, or a name in a container network.
    address: str
    head_address: str
    cluster_name: str
    cluster_images: Mapping[str, str]
    cluster_network: str
    cluster_dashboard_port: int
    cluster_port_base: int
    cluster_state_dir: str
    cluster_head_storage: str
    shared_root: str
    shared_root_source: str
    ray_node_cpus: int | None
    ray_node_gpus: int | None
    ray_node_shm_gib: float
    ray_node_user: str
    ray_node_env: Mapping[str, str]
    ray_node_read_only: bool
    ray_node_devices: Sequence[str]
    ray_node_rdma: str
    ray_node_groups: Sequence[str]
    ray_node_ulimits: Sequence[str]
    rotate_token: bool
    cluster_engine: str = DOCKER
    ray_node_runtime: str = CONTAINER
    ray_node_python: str = ""
    # The variables of NCCL and gloo; ray_node_env overrides them.
    derived_env: Mapping[str, str] = field(default_factory=dict)
    # The hash of what the image is to be built from; "" if the inventory does not build it.
    image_inputs: str = ""


@dataclass(frozen=True)
class NodePlan:
    """One Ray node, with all decisions taken."""

    name: str
    role: str
    accelerator: str
    # "" for a process.
    image: str
    # "" also if the machine lacks the image, or has it from other inputs.
    image_id: str
    # None if Ray counts the CPUs of the machine itself.
    cpus: int | None
    gpus: int
    # The machine's GPUs that the node gets; None if its GPUs are logical.
    gpu_ids: tuple[int, ...] | None
    # As uid:gid.
    user: str
    ports: PortPlan
    # Whether the container gets the RDMA devices of the machine.
    rdma: bool
    settings: Settings = field(repr=False)
    # Whether the machine has the image, but built from other inputs.
    outdated: bool = False
    # The ROCm devices of the machine, if the node gets any of its GPUs.
    amd_devices: tuple[DeviceFile, ...] = ()
    engine: Engine | None = field(default=None, repr=False)
    # The host of a node that is a process; None for a container.
    host: ProcessHost | None = field(default=None, repr=False)


def gpu_share(name: str, siblings: Sequence[str], machine_gpus: int) -> tuple[int, ...]:
    """The GPUs of one worker, as all GPUs of the machine are split evenly among its workers."""
    share = machine_gpus // len(siblings)
    first = siblings.index(name) * share
    return tuple(range(first, first + share))


def accelerator_of(setting: str, machines: Sequence[Machine]) -> str:
    """The kind of accelerator. "auto" becomes one kind for the whole cluster, also for its head, which has no GPUs.

    machines: those with workers.
    """
    if setting != "auto":
        return setting
    if any(machine.gpus for machine in machines):
        return CUDA
    return ROCM if any(machine.rocm_gpus for machine in machines) else CPU


def plan_node(settings: Settings, machine: Machine, siblings: Sequence[str]) -> NodePlan:
    """Plan one node. Raises PlanError.

    siblings: the names of all workers on the machine, in the order of the inventory.
    """
    accelerator = settings.accelerator
    if settings.ray_node_runtime == CONTAINER and accelerator not in settings.cluster_images:
        raise PlanError(
            f"{settings.name}: cluster_images has no image for the accelerator {accelerator!r}, "
            f"only for {', '.join(settings.cluster_images)}; add one, or set ray_node_accelerator"
        )
    gpus, gpu_ids, cpus = 0, None, settings.ray_node_cpus
    if settings.role == HEAD:
        cpus = 0
    elif accelerator == CPU:
        gpus = 4 if settings.ray_node_gpus is None else settings.ray_node_gpus
        cpus = gpus * LOGICAL_CPUS_PER_GPU if cpus is None else cpus
    else:
        machine_gpus = machine.gpus if accelerator == CUDA else machine.rocm_gpus
        gpu_ids = _assigned_gpus(settings, len(machine_gpus), siblings)
        gpus = len(gpu_ids)
    amd = machine.rocm_devices if accelerator == ROCM and gpu_ids else ()
    if problem := environment_problem(settings.ray_node_env) if accelerator == ROCM else "":
        raise PlanError(f"{settings.name}: {problem}")
    # Ray never runs as root: if Ansible does, the node gets a user that no person of the machine has.
    uid, gid = (machine.uid, machine.gid) if machine.uid else (UNPRIVILEGED, UNPRIVILEGED)
    reference = settings.cluster_images.get(accelerator, "")
    image = machine.images.get(reference)
    current = image if image and settings.image_inputs in ("", image.labels.get(INPUTS_LABEL)) else None
    head, host_network = settings.role == HEAD, settings.cluster_network == "host"
    plan = NodePlan(
        name=settings.name,
        role=settings.role,
        accelerator=accelerator,
        image=reference,
        image_id=current.id if current else "",
        cpus=cpus,
        gpus=gpus,
        gpu_ids=gpu_ids,
        user=settings.ray_node_user or f"{uid}:{gid}",
        ports=PortPlan(settings.cluster_port_base, node_number(settings.name, head, host_network, siblings)),
        rdma=gets_rdma(settings.ray_node_rdma.lower(), not head, host_network, machine.hcas, machine.rdma_devices),
        settings=settings,
        outdated=image is not None and current is None,
        amd_devices=tuple(amd),
        engine=machine.engine,
    )
    if settings.ray_node_runtime != PROCESS:
        return plan
    # A process has no image and no devices of its own, and runs as Ansible's user.
    user = f"{machine.uid}:{machine.gid}"
    return replace(plan, image="", image_id="", outdated=False, user=user, rdma=False, host=machine.process)


def _assigned_gpus(settings: Settings, total: int, siblings: Sequence[str]) -> tuple[int, ...]:
    """The GPUs of a worker: its share, or fewer if ray_node_gpus is less. Raises PlanError."""
    share = gpu_share(settings.name, siblings, total)
    gpu_ids = share if settings.ray_node_gpus is None else share[: settings.ray_node_gpus]
    if not gpu_ids or (settings.ray_node_gpus or 0) > len(gpu_ids):
        requested = "its share of the" if settings.ray_node_gpus is None else settings.ray_node_gpus
        raise PlanError(
            f"{settings.name}: requests {requested} GPUs, but {settings.machine} has {total} for {len(siblings)} "
            "workers; set ray_node_gpus, move workers to other machines, or set ray_node_accelerator: cpu"
        )
    return gpu_ids


def expected_node(plan: NodePlan) -> ExpectedNode:
    """What Ray has to report of a node."""
    return ExpectedNode(
        name=plan.name,
        head=plan.role == HEAD,
        cpus=plan.cpus,
        gpus=plan.gpus,
        resources={} if plan.role == HEAD else WORKER_RESOURCES,
    )
