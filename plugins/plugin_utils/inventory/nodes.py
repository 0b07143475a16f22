# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans a Ray node from its variables and its probed machine: image, GPUs, CPUs, user and ports.

The label of a running container or process tells later which of these settings have changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.argus.common.text import one_line
from ...module_utils.cluster.devices import DeviceFile, gets_rdma, rocm_environment_problem
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
# The most characters of a value, and the most settings, in a message.
MAX_VALUE_CHARS, MAX_SETTINGS = 60, 4
# Before the name of a variable in ray_node_env.
ENVIRONMENT_PREFIX = "ray_node_env "
SETTING_PREFIXES = ("cluster_", "ray_node_", "shared_root")
# Not in the label: with another of the first three there is nothing to compare, and the last has a key per variable.
OMITTED_SETTINGS = {"cluster_name", "cluster_engine", "ray_node_runtime", "ray_node_env"}


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
    if problem := rocm_environment_problem(settings.ray_node_env) if accelerator == ROCM else "":
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


def settings_label(plan: NodePlan) -> str:
    """The settings as JSON, by their variables. Values of ray_node_env are hashed, as they may be secrets."""
    settings = plan.settings
    names = {attribute.name for attribute in fields(settings) if attribute.name.startswith(SETTING_PREFIXES)}
    values: dict[str, object] = {
        **{name: value for name in names - OMITTED_SETTINGS if (value := getattr(settings, name)) != ""},
        "cluster_images": plan.image,
        "ray_node_accelerator": plan.accelerator,
        "ray_node_cpus": plan.cpus,
        "ray_node_gpus": plan.gpus,
        "ray_node_rdma": plan.rdma,
        "ray_node_shm_gib": float(settings.ray_node_shm_gib),
        "ray_node_user": plan.user,
        # These follow from the other nodes of the machine.
        "its role": plan.role,
        "its GPUs": plan.gpu_ids and list(plan.gpu_ids),
        "its number on its machine": plan.ports.number,
    }
    if plan.role != HEAD:
        del values["cluster_dashboard_port"]
        values["the head's address"] = settings.head_address
    if settings.cluster_network == "host":
        values["ray_node_address"] = settings.address
    for name, value in settings.ray_node_env.items():
        values[f"{ENVIRONMENT_PREFIX}{name}"] = hashlib.sha256(str(value).encode()).hexdigest()[:16]
    return json.dumps(values, sort_keys=True)


def changed_settings(before: str | None, now: str) -> str:
    """The settings that differ, such as `ray_node_gpus 4 → 2`; "" if the label before cannot be read.

    before: the label of the running container or process, which may be from another release of this collection.
    """
    try:
        old = json.loads(before or "")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(old, dict):
        return ""
    changes = list(_change_texts(old, json.loads(now)))
    more = f" and {len(changes) - MAX_SETTINGS} more" if len(changes) > MAX_SETTINGS else ""
    return f"{', '.join(changes[:MAX_SETTINGS])}{more}"


def _change_texts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name in old and name in new and old[name] == new[name]:
            continue
        if not name.startswith(ENVIRONMENT_PREFIX):
            yield f"{one_line(name)} {_value_text(old.get(name))} → {_value_text(new.get(name))}"
        elif name not in new:
            yield f"{one_line(name)} removed"
        else:
            yield f"{one_line(name)} {'changed' if name in old else 'added'}"


def _value_text(value: object) -> str:
    """A value as YAML users write it; "-" for one that is not set."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return one_line(text, MAX_VALUE_CHARS) or '""'
