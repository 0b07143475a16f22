# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: from what the inventory says and a machine has, to the container that runs Ray.

All of it is pure: settings and the machine as probed in, a plan out.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEAD = "head"
WORKER = "worker"
CPU = "cpu"
CUDA = "cuda"
GCS_PORT = 6379
DASHBOARD_PORT = 8265
# Where nodes find the token; a path in the environment keeps the token itself out of `docker inspect`.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# What forces a job's driver onto a worker asks for one of these; a worker has enough for any number of drivers.
WORKER_RESOURCES = {"worker_node": 100}
# Ray's label that tells a job which kind of accelerator it will find.
ACCELERATOR_LABEL = "argus.verl/accelerator"
# SFT asks for 10 CPUs a process and PPO for 3, whatever they need; logical GPUs come with logical CPUs
# enough for that and for drivers, or a job that fits the GPUs would wait for CPUs for ever.
LOGICAL_CPUS_PER_GPU = 12
LABEL_CLUSTER = "argus.verl.cluster"
LABEL_NODE = "argus.verl.node"
LABEL_ROLE = "argus.verl.role"
LABEL_SPECIFICATION = "argus.verl.specification"
# The user of the CPU image, for machines where Ansible is root: Ray itself never needs to be.
UNPRIVILEGED = (1000, 1000)


class PlanError(Exception):
    """The inventory and the machine do not fit each other; the text says what, where and what to do."""


@dataclass(frozen=True)
class Settings:
    """What the inventory says of one node; see roles/ray_node/README.md for each.

    accelerator: decided, never "auto".
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
    """One Ray node, all decisions made.

    gpu_ids: the machine's GPUs that the node gets; None when its GPUs are logical.
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
    """The machine's GPUs split evenly among its workers, in the order of the inventory."""
    share = machine_gpus // len(siblings)
    first = siblings.index(name) * share
    return tuple(range(first, first + share))


def accelerator_of(asked: str, gpus_of_worker_machines: Sequence[int]) -> str:
    """The cluster's one kind of accelerator: a head has none, and still has to run the image of its workers."""
    if asked != "auto":
        return asked
    return CUDA if any(gpus_of_worker_machines) else CPU


def plan_node(settings: Settings, machine: Mapping[str, Any], siblings: Sequence[str]) -> NodePlan:
    """Decide what one node is.

    machine: as `machine_info` returns it.
    siblings: the names of all workers on the machine, in the order of the inventory.
    """
    gpus_found = len(machine["gpus"])
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
        gpu_ids = gpus_of_node(settings.name, siblings, gpus_found)
        if settings.gpus is not None:
            gpu_ids = gpu_ids[: settings.gpus]
        gpus = len(gpu_ids)
        if not gpus or (settings.gpus or 0) > gpus:
            asked = "its share of the" if settings.gpus is None else settings.gpus
            raise PlanError(
                f"{settings.name}: asks for {asked} GPUs, but {settings.machine} has {gpus_found} for {len(siblings)} "
                "workers; set ray_node_gpus, move workers to other machines, or set ray_node_accelerator: cpu"
            )
    user = settings.user
    if not user:
        uid, gid = (machine["uid"], machine["gid"]) if machine["uid"] else UNPRIVILEGED
        user = f"{uid}:{gid}"
    image = settings.images[accelerator]
    return NodePlan(
        name=settings.name,
        role=settings.role,
        accelerator=accelerator,
        image=image,
        image_id=(machine["images"].get(image) or {}).get("id", ""),
        cpus=cpus,
        gpus=gpus,
        gpu_ids=gpu_ids,
        user=user,
        settings=settings,
    )


def ray_start_arguments(plan: NodePlan) -> list[str]:
    """The argument vector of `ray start`: the same for a container's command and for a process."""
    arguments = ["ray", "start", "--block", f"--node-name={plan.name}"]
    if plan.role == HEAD:
        # With the host's network the loopback is the machine's own; in a network of its own the container has
        # to listen for the engine, which publishes the port on the machine's loopback.
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
    """The environment of every process of the node, jobs included."""
    return {
        # A stray ~/.ray/auth_token would switch tokens on or off by itself: say both.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": TOKEN_PATH,
        # The user may have no entry in the image's passwd: getpass and caches need a name and a writable home.
        "USER": "ray",
        "HOME": "/tmp",  # noqa: S108
        # How often the head counts what is in use, in seconds; at Ray's own 5 the gate waits that long for a count.
        **({"AUTOSCALER_UPDATE_INTERVAL_S": "1"} if plan.role == HEAD else {}),
        **plan.settings.env,
    }


def token_file(state_dir: str, cluster: str) -> str:
    """Where a machine keeps the cluster's token."""
    return f"{state_dir}/{cluster}/auth_token"


def container_arguments(plan: NodePlan) -> dict[str, Any]:
    """What is particular about the node's container, named as the arguments of docker_container."""
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
        "labels": {LABEL_CLUSTER: settings.cluster, LABEL_NODE: plan.name, LABEL_ROLE: plan.role},
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
    arguments["labels"][LABEL_SPECIFICATION] = specification(arguments)
    return arguments


def specification(arguments: Mapping[str, Any]) -> str:
    """A hash of everything that would make another container."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]


KEEP, START, CREATE, RECREATE = "keep", "start", "create", "recreate"


@dataclass(frozen=True)
class Action:
    """What has to be done to a node's container, and why; `disrupts` when something that runs would be ended."""

    kind: str
    reason: str
    disrupts: bool = False


def decide(plan: NodePlan, arguments: Mapping[str, Any], containers: Mapping[str, Mapping[str, Any]]) -> Action:
    """Hold a node's container as planned against what is there.

    containers: the machine's, by name, as `machine_info` returns them.
    """
    there = containers.get(plan.name)
    if there is None:
        return Action(CREATE, "no container")
    runs = there["state"] == "running"
    if there["labels"].get(LABEL_SPECIFICATION) != arguments["labels"][LABEL_SPECIFICATION]:
        return Action(RECREATE, f"its settings changed, it is {there['state']}", disrupts=runs)
    if plan.image_id and there["image_id"] != plan.image_id:
        return Action(RECREATE, f"{plan.image} was rebuilt, it is {there['state']}", disrupts=runs)
    if not runs:
        return Action(START, f"container is {there['state']}")
    return Action(KEEP, "runs as planned")


def expected_node(plan: NodePlan) -> dict[str, Any]:
    """What the gate has to see of the node; `cpus` is None when Ray counts them itself."""
    return {
        "name": plan.name,
        "head": plan.role == HEAD,
        "cpus": plan.cpus,
        "gpus": plan.gpus,
        "resources": {} if plan.role == HEAD else WORKER_RESOURCES,
    }
