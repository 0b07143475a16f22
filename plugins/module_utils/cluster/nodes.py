# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: what a Ray node is, planned from its settings in the inventory and its probed machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..privileges import UNPRIVILEGED
from .machine import Machine
from .membership import ExpectedNode

HEAD = "head"
WORKER = "worker"
CPU = "cpu"
CUDA = "cuda"
# A job's driver requests one of these, which forces it onto a worker; a worker has enough for any number of drivers.
WORKER_RESOURCES = {"worker_node": 100}
# SFT requests 10 CPUs per process and PPO 3, whatever they need; logical GPUs come with enough logical CPUs for that
# and for drivers, or a job that fits the GPUs would wait for CPUs for ever.
LOGICAL_CPUS_PER_GPU = 12


class PlanError(Exception):
    """The inventory and the machine contradict each other; the message has the node, the problem and the fix."""


@dataclass(frozen=True)
class Settings:
    """The settings of one node in the inventory; roles/ray_node/README.md documents each.

    accelerator: resolved, never "auto".
    """

    name: str
    role: str
    machine: str
    cluster: str
    images: Mapping[str, str]
    accelerator: str
    cpus: int | None
    gpus: int | None
    network: str
    address: str
    head_address: str
    dashboard_port: int
    shared_root: str
    shared_root_source: str
    state_dir: str
    shm_gib: float
    user: str
    env: Mapping[str, str]
    pids_limit: int
    read_only: bool
    capabilities: Sequence[str]
    devices: Sequence[str]
    rotate_token: bool


@dataclass(frozen=True)
class NodePlan:
    """One Ray node, with all decisions taken.

    image_id: empty when the machine lacks the image.
    gpu_ids: the GPUs of the machine that the node gets; None when its GPUs are logical.
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
    settings: Settings = field(repr=False)


def gpus_of_node(name: str, siblings: Sequence[str], machine_gpus: int) -> tuple[int, ...]:
    """Split the GPUs of a machine evenly among its workers, in the order of the inventory."""
    share = machine_gpus // len(siblings)
    first = siblings.index(name) * share
    return tuple(range(first, first + share))


def accelerator_of(asked: str, gpus_of_worker_machines: Sequence[int]) -> str:
    """Resolve "auto" to one kind for the whole cluster: a head has no GPUs, but runs the image of its workers."""
    if asked != "auto":
        return asked
    return CUDA if any(gpus_of_worker_machines) else CPU


def plan_node(settings: Settings, machine: Machine, siblings: Sequence[str]) -> NodePlan:
    """Plan one node.

    siblings: the names of all workers on the machine, in the order of the inventory.
    """
    accelerator = settings.accelerator
    if accelerator not in settings.images:
        raise PlanError(
            f"{settings.name}: cluster_images has no image for the accelerator {accelerator!r}, "
            f"only for {', '.join(settings.images)}; add one, or set ray_node_accelerator"
        )
    gpus, gpu_ids, cpus = 0, None, settings.cpus
    if settings.role == HEAD:
        cpus = 0
    elif accelerator == CPU:
        gpus = 4 if settings.gpus is None else settings.gpus
        cpus = gpus * LOGICAL_CPUS_PER_GPU if cpus is None else cpus
    else:
        gpu_ids = _real_gpus(settings, len(machine.gpus), siblings)
        gpus = len(gpu_ids)
    # Where Ansible is root: a user that no person of the machine has. Ray never needs to be root.
    uid, gid = (machine.uid, machine.gid) if machine.uid else (UNPRIVILEGED, UNPRIVILEGED)
    image = machine.images.get(settings.images[accelerator])
    return NodePlan(
        name=settings.name,
        role=settings.role,
        accelerator=accelerator,
        image=settings.images[accelerator],
        image_id=image.id if image else "",
        cpus=cpus,
        gpus=gpus,
        gpu_ids=gpu_ids,
        user=settings.user or f"{uid}:{gid}",
        settings=settings,
    )


def _real_gpus(settings: Settings, found: int, siblings: Sequence[str]) -> tuple[int, ...]:
    """Return the GPUs of a worker: its share, or fewer if its settings ask for fewer."""
    share = gpus_of_node(settings.name, siblings, found)
    gpu_ids = share if settings.gpus is None else share[: settings.gpus]
    if not gpu_ids or (settings.gpus or 0) > len(gpu_ids):
        asked = "its share of the" if settings.gpus is None else settings.gpus
        raise PlanError(
            f"{settings.name}: requests {asked} GPUs, but {settings.machine} has {found} for {len(siblings)} "
            "workers; set ray_node_gpus, move workers to other machines, or set ray_node_accelerator: cpu"
        )
    return gpu_ids


def expected_node(plan: NodePlan) -> ExpectedNode:
    """Return what Ray has to report of the node."""
    return ExpectedNode(
        name=plan.name,
        head=plan.role == HEAD,
        cpus=plan.cpus,
        gpus=plan.gpus,
        resources={} if plan.role == HEAD else WORKER_RESOURCES,
    )
