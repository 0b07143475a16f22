# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: from the settings of the inventory and a probed machine to the container that runs Ray.

Pure functions: settings -> plan -> arguments of the container -> action.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from .engine import CLUSTER_LABEL, RUNNING, Container
from .machine import Machine
from .membership import ExpectedNode

HEAD = "head"
WORKER = "worker"
CPU = "cpu"
CUDA = "cuda"
GCS_PORT = 6379
DASHBOARD_PORT = 8265
# The token inside a node; a path in the environment keeps the token itself out of `docker inspect`.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# A job's driver requests one of these, which forces it onto a worker; a worker has enough for any number of drivers.
WORKER_RESOURCES = {"worker_node": 100}
# Ray's label from which a job learns the kind of accelerator.
ACCELERATOR_LABEL = "argus.verl/accelerator"
# SFT requests 10 CPUs per process and PPO 3, whatever they need; logical GPUs come with enough logical CPUs for that
# and for drivers, or a job that fits the GPUs would wait for CPUs for ever.
LOGICAL_CPUS_PER_GPU = 12
NODE_LABEL = "argus.verl.node"
ROLE_LABEL = "argus.verl.role"
SPECIFICATION_LABEL = "argus.verl.specification"
# The user of the CPU image, for machines where Ansible is root: Ray itself never needs to be.
UNPRIVILEGED = (1000, 1000)


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
    uid, gid = (machine.uid, machine.gid) if machine.uid else UNPRIVILEGED
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


def ray_start_arguments(plan: NodePlan) -> list[str]:
    """Return the command line of `ray start`."""
    arguments = ["ray", "start", "--block", f"--node-name={plan.name}"]
    if plan.role == HEAD:
        # With the host's network the loopback is that of the machine. In a network of its own the container has to
        # listen on all addresses: the engine publishes the port on the machine's loopback.
        listen = "127.0.0.1" if plan.settings.network == "host" else "0.0.0.0"  # noqa: S104
        arguments += [
            "--head",
            f"--port={GCS_PORT}",
            f"--dashboard-host={listen}",
            f"--dashboard-port={plan.settings.dashboard_port if plan.settings.network == 'host' else DASHBOARD_PORT}",
        ]
    else:
        arguments += [
            f"--address={plan.settings.head_address}:{GCS_PORT}",
            f"--resources={json.dumps(WORKER_RESOURCES)}",
        ]
    if plan.settings.network == "host":
        arguments.append(f"--node-ip-address={plan.settings.address}")
    if plan.cpus is not None:
        arguments.append(f"--num-cpus={plan.cpus}")
    arguments += [
        f"--num-gpus={plan.gpus}",
        # Ray's default takes 30 % of the machine's memory for every container on it.
        f"--object-store-memory={int(plan.settings.shm_gib * 2**30 / 2)}",
        f"--labels={ACCELERATOR_LABEL}={plan.accelerator}",
        "--disable-usage-stats",
    ]
    return arguments


def ray_environment(plan: NodePlan) -> dict[str, str]:
    """Return the environment of every process of the node, jobs included."""
    return {
        # Without both, a ~/.ray/auth_token of the image or the user would enable or disable tokens.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": TOKEN_PATH,
        # The user may have no entry in the image's passwd: getpass and caches need a name and a writable home.
        "USER": "ray",
        "HOME": "/tmp",  # noqa: S108
        # How often the head counts the resources in use, in seconds; with Ray's default of 5 the gate of a job waits
        # that long for a count.
        **({"AUTOSCALER_UPDATE_INTERVAL_S": "1"} if plan.role == HEAD else {}),
        **plan.settings.env,
    }


def token_file(state_dir: str, cluster: str) -> str:
    """Return the path at which a machine keeps the cluster's token."""
    return f"{state_dir}/{cluster}/auth_token"


def container_arguments(plan: NodePlan) -> dict[str, Any]:
    """Return the arguments of community.docker.docker_container that depend on the node."""
    settings = plan.settings
    mounts = [
        {"type": "bind", "source": settings.shared_root_source, "target": settings.shared_root},
        {
            "type": "bind",
            "source": token_file(settings.state_dir, settings.cluster),
            "target": TOKEN_PATH,
            "read_only": True,
        },
    ]
    arguments: dict[str, Any] = {
        "name": plan.name,
        "image": plan.image,
        "command": ray_start_arguments(plan),
        "env": ray_environment(plan),
        "user": plan.user,
        "mounts": mounts,
        "shm_size": f"{int(settings.shm_gib * 1024)}M",
        "labels": {CLUSTER_LABEL: settings.cluster, NODE_LABEL: plan.name, ROLE_LABEL: plan.role},
    }
    if settings.network == "host":
        arguments["network_mode"] = "host"
    else:
        arguments["hostname"] = plan.name
        arguments["networks"] = [{"name": settings.network}]
        if plan.role == HEAD:
            arguments["published_ports"] = [f"127.0.0.1:{settings.dashboard_port}:{DASHBOARD_PORT}"]
    if plan.gpu_ids is not None:
        arguments["device_requests"] = [
            {"driver": "nvidia", "device_ids": [str(index) for index in plan.gpu_ids], "capabilities": [["gpu"]]}
        ]
    arguments["labels"][SPECIFICATION_LABEL] = specification(arguments)
    return arguments


def specification(arguments: Mapping[str, Any]) -> str:
    """Return a hash of every argument; a container with another hash has to be created again."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]


class ActionKind(StrEnum):
    KEEP = "keep"
    START = "start"
    CREATE = "create"
    RECREATE = "recreate"


@dataclass(frozen=True)
class Action:
    """What has to be done to a node's container, and why; it disrupts when it ends a running container."""

    kind: ActionKind
    reason: str
    disrupts: bool = False


def decide(plan: NodePlan, arguments: Mapping[str, Any], containers: Mapping[str, Container]) -> Action:
    """Compare the planned container of a node with the containers of its machine, by name."""
    there = containers.get(plan.name)
    if there is None:
        return Action(ActionKind.CREATE, "no container")
    running = there.state == RUNNING
    if there.labels.get(SPECIFICATION_LABEL) != arguments["labels"][SPECIFICATION_LABEL]:
        return Action(ActionKind.RECREATE, f"its settings changed, it is {there.state}", disrupts=running)
    if plan.image_id and there.image_id != plan.image_id:
        return Action(ActionKind.RECREATE, f"{plan.image} was rebuilt, it is {there.state}", disrupts=running)
    if not running:
        return Action(ActionKind.START, f"container is {there.state}")
    return Action(ActionKind.KEEP, "runs as planned")


def expected_node(plan: NodePlan) -> ExpectedNode:
    """Return what Ray has to report of the node."""
    return ExpectedNode(
        name=plan.name,
        head=plan.role == HEAD,
        cpus=plan.cpus,
        gpus=plan.gpus,
        resources={} if plan.role == HEAD else WORKER_RESOURCES,
    )


@dataclass(frozen=True)
class PlannedNode:
    """A planned node and the action for its container: the answer of the filter node_plan.

    image_missing: whether the machine lacks the image.
    container: arguments of community.docker.docker_container.
    started_at: when the container was last started, as the engine reports it; None for a new one.
    """

    accelerator: str
    image: str
    image_missing: bool
    user: str
    container: dict[str, Any]
    action: Action
    started_at: str | None
    expected: ExpectedNode

    def to_json(self) -> dict[str, Any]:
        """Return the fact __ray_node_plan; the roles read the fields of the action at its top level."""
        answer = asdict(self)
        action = answer.pop("action")
        return {**answer, "action": self.action.kind.value, "reason": action["reason"], "disrupts": action["disrupts"]}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> PlannedNode:
        fields = dict(answer)
        action = Action(ActionKind(str(fields.pop("action"))), fields.pop("reason"), fields.pop("disrupts"))
        return cls(**{**fields, "action": action, "expected": ExpectedNode.from_json(answer["expected"])})


def planned_node(settings: Settings, machine: Machine, siblings: Sequence[str]) -> PlannedNode:
    """Plan a node and decide what has to be done; PlanError when the machine cannot hold it."""
    plan = plan_node(settings, machine, siblings)
    arguments = container_arguments(plan)
    there = machine.containers.get(plan.name)
    return PlannedNode(
        accelerator=plan.accelerator,
        image=plan.image,
        image_missing=not plan.image_id,
        user=plan.user,
        container=arguments,
        action=decide(plan, arguments, machine.containers),
        started_at=there.started_at if there else None,
        expected=expected_node(plan),
    )
