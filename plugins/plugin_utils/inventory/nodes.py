# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: what a Ray node is, planned from its settings in the inventory and its probed machine."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.argus.common.text import one_line
from ...module_utils.cluster.devices import DeviceFile, environment_problem, gets_rdma
from ...module_utils.cluster.engine import DOCKER, INPUTS_LABEL, Engine
from ...module_utils.cluster.machine import Machine
from ...module_utils.cluster.ports import PortPlan, node_number
from ...module_utils.cluster.process_host import ProcessHost
from ...module_utils.privileges import UNPRIVILEGED

HEAD = "head"
WORKER = "worker"
# How a node runs: ray_node_runtime.
CONTAINER = "container"
PROCESS = "process"
CPU = "cpu"
CUDA = "cuda"
ROCM = "rocm"
# A job's driver requests one of these, which forces it onto a worker; a worker has enough for any number of drivers.
WORKER_RESOURCES = {"worker_node": 100}
# SFT requests 10 CPUs per process and PPO 3, whatever they need; logical GPUs come with enough logical CPUs for that
# and for drivers, or a job that fits the GPUs would wait for CPUs for ever.
LOGICAL_CPUS_PER_GPU = 12


class PlanError(Exception):
    """The inventory and the machine contradict each other; the message has the node, the problem and the fix."""


@dataclass(frozen=True)
class Settings:
    """The variables of one node, by their names, and what follows from all machines.

    accelerator: resolved, never "auto".
    derived_env: the variables of NCCL and gloo; ray_node_env overrides them.
    """

    name: str
    role: str
    machine: str
    accelerator: str
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
    derived_env: Mapping[str, str] = field(default_factory=dict)
    # The hash of what the image is to be built from, if the inventory has a Dockerfile for it.
    image_inputs: str = ""


@dataclass(frozen=True)
class NodePlan:
    """One Ray node, with all decisions taken.

    image, image_id: empty without a container. image_id: also when the machine lacks the image.
    gpu_ids: the GPUs of the machine that the node gets; None when its GPUs are logical.
    rdma: whether it gets the devices of RDMA.
    """

    name: str
    role: str
    accelerator: str
    image: str
    image_id: str
    cpus: int | None
    gpus: int
    gpu_ids: tuple[int, ...] | None
    user: str
    ports: PortPlan
    rdma: bool
    settings: Settings = field(repr=False)
    # Whether the machine has the image from other inputs: image_id is empty.
    outdated: bool = False
    # Of ROCm, on the machine.
    amd_devices: tuple[DeviceFile, ...] = ()
    # The engine of its machine.
    engine: Engine | None = field(default=None, repr=False)
    # The host of a node without a container.
    host: ProcessHost | None = field(default=None, repr=False)


def gpus_of_node(name: str, siblings: Sequence[str], machine_gpus: int) -> tuple[int, ...]:
    """Split the GPUs of a machine evenly among its workers, in the order of the inventory."""
    share = machine_gpus // len(siblings)
    first = siblings.index(name) * share
    return tuple(range(first, first + share))


def accelerator_of(setting: str, machines: Sequence[Machine]) -> str:
    """Resolve "auto" to one kind for the whole cluster: a head has no GPUs, but runs the image of its workers.

    machines: those with workers.
    """
    if setting != "auto":
        return setting
    if any(machine.gpus for machine in machines):
        return CUDA
    return ROCM if any(machine.rocm_gpus for machine in machines) else CPU


def plan_node(settings: Settings, machine: Machine, siblings: Sequence[str]) -> NodePlan:
    """Plan one node.

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
    # Where Ansible is root: a user that no person of the machine has. Ray never needs to be root.
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
    # No image, Ansible's own user, and the devices that its host has.
    user = f"{machine.uid}:{machine.gid}"
    return replace(plan, image="", image_id="", outdated=False, user=user, rdma=False, host=machine.process)


def _assigned_gpus(settings: Settings, total: int, siblings: Sequence[str]) -> tuple[int, ...]:
    """Return the GPUs of a worker: its share, or fewer if its settings ask for fewer."""
    share = gpus_of_node(settings.name, siblings, total)
    gpu_ids = share if settings.ray_node_gpus is None else share[: settings.ray_node_gpus]
    if not gpu_ids or (settings.ray_node_gpus or 0) > len(gpu_ids):
        requested = "its share of the" if settings.ray_node_gpus is None else settings.ray_node_gpus
        raise PlanError(
            f"{settings.name}: requests {requested} GPUs, but {settings.machine} has {total} for {len(siblings)} "
            "workers; set ray_node_gpus, move workers to other machines, or set ray_node_accelerator: cpu"
        )
    return gpu_ids


def expected_node(plan: NodePlan) -> ExpectedNode:
    return ExpectedNode(
        name=plan.name,
        head=plan.role == HEAD,
        cpus=plan.cpus,
        gpus=plan.gpus,
        resources={} if plan.role == HEAD else WORKER_RESOURCES,
    )


MAX_VALUE_CHARS, MAX_SETTINGS = 60, 4
ENVIRONMENT = "ray_node_env "
PREFIXES = ("cluster_", "ray_node_", "shared_root")
# With another of the first three there is no container or process to compare with.
UNSHOWN = {"cluster_name", "cluster_engine", "ray_node_runtime", "ray_node_env"}


def settings_label(plan: NodePlan) -> str:
    """The settings by the names of their variables, as JSON. The environment may have secrets: only their hashes."""
    settings = plan.settings
    names = {attribute.name for attribute in fields(settings) if attribute.name.startswith(PREFIXES)} - UNSHOWN
    values: dict[str, object] = {
        **{name: value for name in names if (value := getattr(settings, name)) != ""},
        "cluster_images": plan.image,
        "ray_node_accelerator": plan.accelerator,
        "ray_node_cpus": plan.cpus,
        "ray_node_gpus": plan.gpus,
        "ray_node_rdma": plan.rdma,
        "ray_node_shm_gib": float(settings.ray_node_shm_gib),
        "ray_node_user": plan.user,
        # What a node shares with others, which change with it.
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
        values[f"{ENVIRONMENT}{name}"] = hashlib.sha256(str(value).encode()).hexdigest()[:16]
    return json.dumps(values, sort_keys=True)


def changed_settings(before: str | None, now: str) -> str:
    """The settings that differ, as in ``ray_node_gpus 4 → 2``; nothing if the container has no such label.

    before: the label of the container, which may be from another release of this collection.
    """
    try:
        old = json.loads(before or "")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(old, dict):
        return ""
    changes = list(_changes(old, json.loads(now)))
    more = f" and {len(changes) - MAX_SETTINGS} more" if len(changes) > MAX_SETTINGS else ""
    return f"{', '.join(changes[:MAX_SETTINGS])}{more}"


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name in old and name in new and old[name] == new[name]:
            continue
        if not name.startswith(ENVIRONMENT):
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
