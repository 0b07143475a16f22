# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container of a node: the command line of Ray, its environment, and the arguments of docker_container."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .engine import CLUSTER_LABEL
from .nodes import HEAD, WORKER_RESOURCES, NodePlan
from .settings_label import SETTINGS_LABEL, settings_label
from .state import REGISTRY, TOKEN

GCS_PORT = 6379
DASHBOARD_PORT = 8265
# The token inside a node; a path in the environment keeps the token itself out of `docker inspect`.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# The registry of jobs inside the head, where its stewards run.
REGISTRY_PATH = "/var/lib/argus-verl/jobs"
# Ray's label from which a job learns the kind of accelerator.
ACCELERATOR_LABEL = "argus.verl/accelerator"
NODE_LABEL = "argus.verl.node"
ROLE_LABEL = "argus.verl.role"
SPECIFICATION_LABEL = "argus.verl.specification"


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
    return f"{state_dir}/{cluster}/{TOKEN}"


def hardening(plan: NodePlan) -> dict[str, Any]:
    """Return the arguments that limit what the processes of a node can do to its machine."""
    settings = plan.settings
    ulimits = ["core:0:0"]
    arguments: dict[str, Any] = {
        "security_opts": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "pids_limit": settings.pids_limit,
        "read_only": settings.read_only,
        # Ray's sessions and every cache: a volume without a name, which is removed with the container.
        "volumes": ["/tmp"],  # noqa: S108
        # The image's own may be out of reach for the user, or read-only.
        "working_dir": "/tmp",  # noqa: S108
    }
    if settings.capabilities:
        arguments["capabilities"] = list(settings.capabilities)
    if settings.devices:
        arguments["devices"] = list(settings.devices)
        # InfiniBand locks the memory that it reads and writes. A capability would not help: only root gets it.
        ulimits.append("memlock:-1:-1")
    return {**arguments, "ulimits": ulimits}


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
    if plan.role == HEAD:
        registry = f"{settings.state_dir}/{settings.cluster}/{REGISTRY}"
        mounts.append({"type": "bind", "source": registry, "target": REGISTRY_PATH})
    arguments: dict[str, Any] = {
        **hardening(plan),
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
    # Not part of the specification: a container without it is no other container.
    arguments["labels"][SETTINGS_LABEL] = settings_label(plan)
    return arguments


def specification(arguments: Mapping[str, Any]) -> str:
    """Return a hash of every argument; a container with another hash has to be created again."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
