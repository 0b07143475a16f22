# SPDX-License-Identifier: GPL-3.0-or-later
"""The arguments of community.docker.docker_container for a node, which also start it with Podman (`podman.py`)."""

from __future__ import annotations

import json
from typing import Any

from ...module_utils.cluster.devices import DRI, INFINIBAND, KFD, LOCK_CAPABILITY, UNLIMITED_MEMLOCK, groups_of
from ...module_utils.cluster.engine import (
    CLUSTER_LABEL,
    DERIVED_LABEL,
    NODE_LABEL,
    PODMAN,
    ROLE_LABEL,
    SETTINGS_LABEL,
    SPECIFICATION_LABEL,
)
from ...module_utils.cluster.ports import DASHBOARD_PORT
from ...module_utils.cluster.state import COMMAND, PROGRAM, PROGRAM_PATH, REGISTRY, ROCKSDB, TABLES, TOKEN
from ..inventory.nodes import HEAD, ROCM, NodePlan, PlanError
from ..inventory.settings_label import settings_label
from .podman import for_podman
from .ray_start import (
    TABLES_PATH,
    TOKEN_PATH,
    compared_environment,
    derived_environment,
    ray_environment,
    specification_hash,
    start_command,
)

# Where a container has the command `argus`; the directory is on the PATH of every image.
COMMAND_PATH = "/usr/local/bin/argus"
# Where the head's container has the registry of jobs, which the steward reads.
REGISTRY_PATH = "/var/lib/argus-verl/jobs"
# The limits of processes and threads of a container. Ray starts a process for each CPU, with 30 to 200 threads.
MIN_PIDS_LIMIT, PIDS_PER_CPU = 32768, 256


def hardening_arguments(plan: NodePlan) -> dict[str, Any]:
    """The arguments that limit what the processes of a node can do to its machine."""
    settings = plan.settings
    limits = ["core:0:0"]
    arguments: dict[str, Any] = {
        "security_opts": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "pids_limit": max(MIN_PIDS_LIMIT, PIDS_PER_CPU * (plan.cpus or 0)),
        "read_only": settings.ray_node_read_only,
        # Ray's sessions and every cache: a volume without a name, which is removed with the container.
        "volumes": ["/tmp"],  # noqa: S108
        # The user may not reach the image's own working directory, or it is read-only.
        "working_dir": "/tmp",  # noqa: S108
    }
    devices = list(settings.ray_node_devices)
    if plan.rdma:
        arguments["capabilities"] = [LOCK_CAPABILITY]
        devices.append(f"{INFINIBAND}:{INFINIBAND}")
    groups = list(settings.ray_node_groups)
    if plan.amd_devices:
        # A program opens all render nodes to count its GPUs; the environment has the node's share of them.
        devices += [f"{path}:{path}" for path in (KFD, DRI)]
        groups += groups_of(plan.amd_devices)
    if devices:
        arguments["devices"] = list(dict.fromkeys(devices))
        # Devices such as InfiniBand lock the memory that they read and write.
        limits.append(UNLIMITED_MEMLOCK)
    if groups:
        arguments["groups"] = list(dict.fromkeys(groups))
    # A limit of ray_node_ulimits replaces the one of the same name.
    by_name = {limit.partition(":")[0]: limit for limit in [*limits, *settings.ray_node_ulimits]}
    return {**arguments, "ulimits": list(by_name.values())}


def container_arguments(plan: NodePlan) -> dict[str, Any]:
    """All arguments for the container of a node, with labels for later comparisons. Raises PlanError."""
    settings = plan.settings
    state = f"{settings.cluster_state_dir}/{settings.cluster_name}"
    mounts: list[dict[str, Any]] = [
        {"type": "bind", "source": settings.shared_root_source, "target": settings.shared_root},
        {"type": "bind", "source": f"{state}/{TOKEN}", "target": TOKEN_PATH, "read_only": True},
        # The directory is mounted, not a file, so that a new version of the program needs no new container.
        {"type": "bind", "source": f"{state}/{PROGRAM}", "target": PROGRAM_PATH, "read_only": True},
        {"type": "bind", "source": f"{state}/{PROGRAM}/{COMMAND}", "target": COMMAND_PATH, "read_only": True},
    ]
    if plan.role == HEAD:
        mounts.append({"type": "bind", "source": f"{state}/{REGISTRY}", "target": REGISTRY_PATH})
        if settings.cluster_head_storage == ROCKSDB:
            mounts.append({"type": "bind", "source": f"{state}/{TABLES}", "target": TABLES_PATH})
    arguments: dict[str, Any] = {
        **hardening_arguments(plan),
        "name": plan.name,
        "image": plan.image,
        "command": start_command(plan),
        "env": ray_environment(plan),
        "user": plan.user,
        "mounts": mounts,
        "shm_size": f"{int(settings.ray_node_shm_gib * 1024)}M",
        "labels": {CLUSTER_LABEL: settings.cluster_name, NODE_LABEL: plan.name, ROLE_LABEL: plan.role},
    }
    if settings.cluster_network == "host":
        arguments["network_mode"] = "host"
    else:
        arguments["hostname"] = plan.name
        arguments["networks"] = [{"name": settings.cluster_network}]
        if plan.role == HEAD:
            arguments["published_ports"] = [f"127.0.0.1:{settings.cluster_dashboard_port}:{DASHBOARD_PORT}"]
    if plan.gpu_ids is not None and plan.accelerator != ROCM:
        arguments["device_requests"] = [
            {"driver": "nvidia", "device_ids": [str(index) for index in plan.gpu_ids], "capabilities": [["gpu"]]}
        ]
    if settings.cluster_engine == PODMAN and plan.engine:
        if long := [name for name, value in arguments["env"].items() if "\n" in value]:
            problem = f"{plan.name}: {long[0]} in ray_node_env has several lines, which no file of variables has"
            raise PlanError(f"{problem}; put the value into a file on the shared root, and its path into the variable")
        arguments = for_podman(arguments, plan.engine)
    compared = compared_environment(plan, arguments["env"])
    arguments["labels"][SPECIFICATION_LABEL] = specification_hash({**arguments, "env": compared})
    if derived_environment(plan):
        arguments["labels"][DERIVED_LABEL] = json.dumps(derived_environment(plan), sort_keys=True)
    # Not part of the hash: a container without this label, from an earlier release, is kept.
    arguments["labels"][SETTINGS_LABEL] = settings_label(plan)
    return arguments
