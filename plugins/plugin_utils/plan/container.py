# SPDX-License-Identifier: GPL-3.0-or-later
"""How a node is started: the arguments of docker_container, those of `podman run`, or the request of the verb `node`.

Podman gets a command, as its socket would need a service for each user, and knows no CDI devices before Podman 5.4. The
environment travels on standard input, as other users of a machine see command lines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ...module_utils.argus.common.identity import PROGRAM_DIRECTORY
from ...module_utils.argus.common.node_process import MARK_VARIABLE
from ...module_utils.argus.ray.admission import REGISTRY_VARIABLE
from ...module_utils.cluster.devices import DRI_DIR, INFINIBAND_DIR, KFD, LOCK_CAPABILITY, UNLIMITED_MEMLOCK, group_ids
from ...module_utils.cluster.engine import (
    CLUSTER_LABEL,
    DERIVED_LABEL,
    NODE_LABEL,
    PODMAN,
    RESTART,
    ROLE_LABEL,
    SETTINGS_LABEL,
    SPECIFICATION_LABEL,
    Engine,
)
from ...module_utils.cluster.ports import DASHBOARD_PORT
from ...module_utils.cluster.process_host import ProcessHost, search_path
from ...module_utils.cluster.state import COMMAND, PROGRAM, PROGRAM_PATH, REGISTRY, ROCKSDB, TABLES, TOKEN
from ..inventory.nodes import HEAD, ROCM, NodePlan, PlanError, settings_label
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
# By argument of docker_container, the option of podman with one value, and with a list. podman_run() has the others.
TEXT_OPTIONS = MappingProxyType(
    {
        "name": "name",
        "user": "user",
        "working_dir": "workdir",
        "pids_limit": "pids-limit",
        "shm_size": "shm-size",
        "network_mode": "network",
        "userns_mode": "userns",
        "hostname": "hostname",
    }
)
LIST_OPTIONS = MappingProxyType(
    {
        "volumes": "volume",
        "security_opts": "security-opt",
        "cap_drop": "cap-drop",
        "capabilities": "cap-add",
        "devices": "device",
        "groups": "group-add",
        "published_ports": "publish",
    }
)
# The user namespace of rootless Podman in which files of the user belong to the same user in the container.
KEEP_ID = "keep-id"
# SELinux must not give the shared root another label than its mount or its other users need.
NO_SELINUX_LABEL = "label=disable"
LOG_OPTIONS = ("--log-driver=k8s-file", "--log-opt=max-size=50m")
# The most characters in the path of a Unix socket (sun_path), and those that Ray appends to the sessions directory.
MAX_SOCKET_CHARS = 107
RAY_SUFFIX_CHARS = len("/ray/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store")


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
        devices.append(f"{INFINIBAND_DIR}:{INFINIBAND_DIR}")
    groups = list(settings.ray_node_groups)
    if plan.amd_devices:
        # A program opens all render nodes to count its GPUs; the environment has the node's share of them.
        devices += [f"{path}:{path}" for path in (KFD, DRI_DIR)]
        groups += group_ids(plan.amd_devices)
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


def for_podman(arguments: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """The arguments with values for Podman, still by the names of docker_container."""
    changed = {**arguments, "security_opts": [*arguments["security_opts"], NO_SELINUX_LABEL]}
    requests = changed.pop("device_requests", [])
    if gpus := [f"nvidia.com/gpu={number}" for request in requests for number in request["device_ids"]]:
        changed["devices"] = [*changed.get("devices", []), *gpus]
    if engine.rootless:
        changed["userns_mode"] = KEEP_ID
    if not engine.limits_pids:
        # Podman would refuse to start a container with a limit that it cannot set.
        changed.pop("pids_limit")
    return changed


def podman_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ansible.builtin.command that start a container: `argv` and `stdin`."""
    argv = [PODMAN, "run", "--detach", "--pull=never", "--init", f"--restart={RESTART}", *LOG_OPTIONS]
    argv += [f"--{option}={arguments[name]}" for name, option in TEXT_OPTIONS.items() if name in arguments]
    argv += [f"--{option}={value}" for name, option in LIST_OPTIONS.items() for value in arguments.get(name, [])]
    # NAME:SOFT:HARD or NAME:BOTH becomes NAME=SOFT:HARD or NAME=BOTH.
    argv += [f"--ulimit={limit.replace(':', '=', 1)}" for limit in arguments["ulimits"]]
    argv += [f"--network={network['name']}" for network in arguments.get("networks", [])]
    argv += [f"--label={name}={value}" for name, value in arguments["labels"].items()]
    argv += [f"--mount={','.join(_mount_parts(mount))}" for mount in arguments["mounts"]]
    if arguments["read_only"]:
        # Podman's own tmpfs would cover /tmp, which is a volume, and /run, which has the token.
        argv += ["--read-only", "--read-only-tmpfs=false"]
    argv += ["--env-file=/dev/stdin", arguments["image"], *arguments["command"]]
    return {"argv": argv, "stdin": "".join(f"{name}={value}\n" for name, value in arguments["env"].items())}


def _mount_parts(mount: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"type={mount['type']}", f"source={mount['source']}", f"target={mount['target']}")
    if mount.get("read_only"):
        yield "readonly"


def sessions_directory(cluster: str, parent: str) -> str:
    """The directory of Ray's sessions: short, and the same on all nodes of this cluster alone. Raises PlanError."""
    path = f"{parent.rstrip('/')}/argus-verl-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
    longest = MAX_SOCKET_CHARS - RAY_SUFFIX_CHARS
    if len(path) > longest:
        raise PlanError(
            f"RAY_TMPDIR {parent} of ray_node_env is too long: with {path}, the paths of Ray's sockets have more than "
            f"{MAX_SOCKET_CHARS} characters; set a directory of at most {longest - len(path) + len(parent)}"
        )
    return path


def process_environment(plan: NodePlan, host: ProcessHost, user: str) -> dict[str, str]:
    """The environment of every process of the node, jobs and modules included: that of SSH is nearly empty.

    user: the name of Ansible's user on the host.
    """
    local_variables = {
        "PATH": search_path(plan.settings.ray_node_python),
        "HOME": host.home,
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
    }
    token = PurePosixPath(host.directory).parents[1] / TOKEN
    environment = ray_environment(plan, str(token), str(token.parent / TABLES), local_variables)
    # Ray's default, /tmp/ray, may have sessions of other users and other clusters.
    sessions = sessions_directory(plan.settings.cluster_name, environment.get("RAY_TMPDIR", "/tmp"))  # noqa: S108
    registry = {REGISTRY_VARIABLE: str(token.parent / REGISTRY)} if plan.role == HEAD else {}
    process_variables = {
        "RAY_TMPDIR": sessions,
        MARK_VARIABLE: host.directory,
        PROGRAM_DIRECTORY: str(token.parent / PROGRAM),
    }
    return {**environment, **registry, **process_variables}


def process_arguments(plan: NodePlan, host: ProcessHost, user: str) -> dict[str, Any]:
    """The request of the verb `node` that starts the process. Raises PlanError."""
    environment = process_environment(plan, host, user)
    arguments: dict[str, Any] = {
        "directory": host.directory,
        "working_directory": environment["RAY_TMPDIR"],
        "command": start_command(plan),
        "environment": environment,
    }
    derived = derived_environment(plan)
    python = plan.settings.ray_node_python
    return {
        **arguments,
        "specification": specification_hash(
            {**arguments, "environment": compared_environment(plan, environment), "python": python}
        ),
        "settings": settings_label(plan),
        "derived": json.dumps(derived, sort_keys=True) if derived else "",
    }
