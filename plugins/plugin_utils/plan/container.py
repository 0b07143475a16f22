# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on its machine: Ray's command line, the arguments of its container, or the request for its process."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

from ...module_utils.argus.common.identity import AGENT_API, JOBS_API, PROGRAM_DIRECTORY, identity_variables
from ...module_utils.argus.common.node_process import MARK_VARIABLE
from ...module_utils.argus.ray import departures
from ...module_utils.argus.ray.admission import REGISTRY_VARIABLE
from ...module_utils.cluster.devices import (
    DRI,
    INFINIBAND,
    KFD,
    LOCK_CAPABILITY,
    UNLIMITED_MEMLOCK,
    VISIBLE,
    groups_of,
)
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
from ...module_utils.cluster.state import COMMAND, CURRENT, PROGRAM, PROGRAM_PATH, REGISTRY, ROCKSDB, TABLES, TOKEN
from ..inventory.nodes import HEAD, ROCM, WORKER_RESOURCES, NodePlan, PlanError, settings_label

# The container of a node: the command line of Ray, its environment, and the arguments of docker_container.
#
# With Podman it is started by Podman's own command, rather than its socket: that is a service which has to run beside
# it for each user, and it knows no CDI devices before Podman 5.4. The environment is passed on stdin: other users of
# a machine see command lines.

# The token inside a node; a path in the environment keeps the token itself out of `docker inspect`.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# On the PATH of every image.
COMMAND_PATH = "/usr/local/bin/argus"
# The registry of jobs inside the head, where the steward runs.
REGISTRY_PATH = "/var/lib/argus-verl/jobs"
# The tables of Ray's head.
TABLES_PATH = "/var/lib/argus-verl/tables"
# How long workers and their jobs wait for a head that is gone.
HEAD_PATIENCE_SECONDS = 600
# The limit of processes and threads of a node. Ray starts a process for each CPU, with 30 to 200 threads.
MIN_PIDS_LIMIT, PIDS_PER_CPU = 32768, 256
# Ray's label from which a job learns the kind of accelerator.
ACCELERATOR_LABEL = "argus.verl/accelerator"


def api_port(plan: NodePlan) -> int:
    """The port of the dashboard and the Jobs API, as the head itself reaches it."""
    return plan.settings.cluster_dashboard_port if plan.settings.cluster_network == "host" else DASHBOARD_PORT


# Beside Ray's head, the steward of the cluster looks after the jobs. It ends for a new version, and with the node.
WITH_STEWARD = (
    f'while :; do python3 -I "${{{PROGRAM_DIRECTORY}:-{PROGRAM_PATH}}}/{CURRENT}" steward; sleep 1; done & exec "$@"'
)


def start_command(plan: NodePlan) -> list[str]:
    steward = ["sh", "-c", WITH_STEWARD, "head"] if plan.role == HEAD else []
    return [*steward, *ray_start_arguments(plan)]


def ray_start_arguments(plan: NodePlan) -> list[str]:
    arguments = ["ray", "start", "--block", f"--node-name={plan.name}"]
    if plan.role == HEAD:
        # With the host's network the loopback is that of the machine. In a network of its own the container has to
        # listen on all addresses: the engine publishes the port on the machine's loopback.
        listen = "127.0.0.1" if plan.settings.cluster_network == "host" else "0.0.0.0"  # noqa: S104
        arguments += [
            "--head",
            f"--dashboard-host={listen}",
            f"--dashboard-port={api_port(plan)}",
        ]
    else:
        arguments += [
            f"--address={plan.settings.head_address}:{plan.ports.base}",
            f"--resources={json.dumps(WORKER_RESOURCES)}",
        ]
    if plan.settings.cluster_network == "host":
        arguments.append(f"--node-ip-address={plan.settings.address}")
    arguments += plan.ports.options()
    if plan.cpus is not None:
        arguments.append(f"--num-cpus={plan.cpus}")
    arguments += [
        f"--num-gpus={plan.gpus}",
        # Ray's default takes 30 % of the machine's memory for every container on it.
        f"--object-store-memory={int(plan.settings.ray_node_shm_gib * 2**30 / 2)}",
        f"--labels={ACCELERATOR_LABEL}={plan.accelerator}",
        "--disable-usage-stats",
    ]
    return arguments


# The user may have no entry in the image's passwd: getpass and caches need a name and a writable home.
IN_CONTAINER = MappingProxyType({"USER": "ray", "HOME": "/tmp"})  # noqa: S108


def ray_environment(
    plan: NodePlan,
    token_path: str = TOKEN_PATH,
    tables_path: str = TABLES_PATH,
    local: Mapping[str, str] = IN_CONTAINER,
) -> dict[str, str]:
    """Return the environment of every process of the node, jobs included.

    local: the variables that depend on where the node runs.
    """
    settings = plan.settings
    # Tells Ray the node's share of its machine's GPUs, where its devices do not.
    shared = (
        {VISIBLE: ",".join(map(str, plan.gpu_ids))} if plan.accelerator == ROCM and plan.gpu_ids is not None else {}
    )
    return {
        # Without both, a ~/.ray/auth_token of the image or the user would enable or disable tokens.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token_path,
        **local,
        **plan.ports.environment(),
        **storage_environment(plan, tables_path),
        **(head_environment(plan) if plan.role == HEAD else {}),
        **settings.derived_env,
        **settings.ray_node_env,
        **shared,
        # The program of jobs knows the node by these.
        **identity_variables(plan.name, settings.cluster_name, settings.shared_root, settings.shared_root_source),
    }


def head_environment(plan: NodePlan) -> dict[str, str]:
    local = "http://127.0.0.1"
    return {
        # How often the head counts the resources in use, in seconds; with Ray's default of 5 the gate of a job waits
        # that long for a count.
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        **departures.health_environment(),
        JOBS_API: f"{local}:{api_port(plan)}",
        AGENT_API: f"{local}:{plan.ports.agent}",
    }


def storage_environment(plan: NodePlan, tables_path: str) -> dict[str, str]:
    """With tables that outlive the head: where they are, and for workers how long they wait for it."""
    if plan.settings.cluster_head_storage != ROCKSDB:
        return {}
    if plan.role == HEAD:
        return {"RAY_gcs_storage": ROCKSDB, "RAY_gcs_storage_path": tables_path}
    return {"RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_PATIENCE_SECONDS)}


def derived_environment(plan: NodePlan) -> dict[str, str]:
    """Return the derived variables that the inventory does not set."""
    settings = plan.settings
    return {name: value for name, value in settings.derived_env.items() if name not in settings.ray_node_env}


def compared_environment(plan: NodePlan, environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that is compared with that of a running node.

    Without the variables derived from all machines: a cable that breaks elsewhere must not restart this node.
    """
    derived = derived_environment(plan)
    return {name: value for name, value in environment.items() if name not in derived}


def token_file(state_dir: str, cluster: str) -> str:
    return f"{state_dir}/{cluster}/{TOKEN}"


def hardening(plan: NodePlan) -> dict[str, Any]:
    """Return the arguments that limit what the processes of a node can do to its machine."""
    settings = plan.settings
    limits = ["core:0:0"]
    arguments: dict[str, Any] = {
        "security_opts": ["no-new-privileges:true"],
        "cap_drop": ["ALL"],
        "pids_limit": max(MIN_PIDS_LIMIT, PIDS_PER_CPU * (plan.cpus or 0)),
        "read_only": settings.ray_node_read_only,
        # Ray's sessions and every cache: a volume without a name, which is removed with the container.
        "volumes": ["/tmp"],  # noqa: S108
        # The image's own may be out of reach for the user, or read-only.
        "working_dir": "/tmp",  # noqa: S108
    }
    devices = list(settings.ray_node_devices)
    if plan.rdma:
        arguments["capabilities"] = [LOCK_CAPABILITY]
        devices.append(f"{INFINIBAND}:{INFINIBAND}")
    groups = list(settings.ray_node_groups)
    if plan.amd_devices:
        # A program opens all render nodes to count its GPUs; the share of the node is in its environment.
        devices += [f"{path}:{path}" for path in (KFD, DRI)]
        groups += groups_of(plan.amd_devices)
    if devices:
        arguments["devices"] = list(dict.fromkeys(devices))
        # Devices such as InfiniBand lock the memory that they read and write.
        limits.append(UNLIMITED_MEMLOCK)
    if groups:
        arguments["groups"] = list(dict.fromkeys(groups))
    # A limit of the settings replaces the one of the same name.
    by_name = {limit.partition(":")[0]: limit for limit in [*limits, *settings.ray_node_ulimits]}
    return {**arguments, "ulimits": list(by_name.values())}


def container_arguments(plan: NodePlan) -> dict[str, Any]:
    settings = plan.settings
    state = f"{settings.cluster_state_dir}/{settings.cluster_name}"
    mounts: list[dict[str, Any]] = [
        {"type": "bind", "source": settings.shared_root_source, "target": settings.shared_root},
        {"type": "bind", "source": f"{state}/{TOKEN}", "target": TOKEN_PATH, "read_only": True},
        # A directory: a new version of the program needs no new container.
        {"type": "bind", "source": f"{state}/{PROGRAM}", "target": PROGRAM_PATH, "read_only": True},
        {"type": "bind", "source": f"{state}/{PROGRAM}/{COMMAND}", "target": COMMAND_PATH, "read_only": True},
    ]
    if plan.role == HEAD:
        mounts.append({"type": "bind", "source": f"{state}/{REGISTRY}", "target": REGISTRY_PATH})
        if settings.cluster_head_storage == ROCKSDB:
            mounts.append({"type": "bind", "source": f"{state}/{TABLES}", "target": TABLES_PATH})
    arguments: dict[str, Any] = {
        **hardening(plan),
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
    arguments["labels"][SPECIFICATION_LABEL] = specification({**arguments, "env": compared})
    if derived_environment(plan):
        arguments["labels"][DERIVED_LABEL] = json.dumps(derived_environment(plan), sort_keys=True)
    # Not part of the specification: a container without it is no other container.
    arguments["labels"][SETTINGS_LABEL] = settings_label(plan)
    return arguments


def specification(arguments: Mapping[str, Any]) -> str:
    """Return a hash of every argument; a container with another hash has to be created again."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]


# The arguments of docker_container, by kind. Those that are not here are in podman_run().
TEXTS = MappingProxyType(
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
LISTS = MappingProxyType(
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
# For a user without root, Podman gives files of this user to the same user in the container, and to no other.
KEEP_ID = "keep-id"
# Files of the shared root have the label that its mount or its other users need: they are not labelled again.
NO_SELINUX_LABEL = "label=disable"
LOG = ("--log-driver=k8s-file", "--log-opt=max-size=50m")


def for_podman(arguments: Mapping[str, Any], engine: Engine) -> dict[str, Any]:
    """Adapt arguments of docker_container to Podman, still by the names of docker_container."""
    changed = {**arguments, "security_opts": [*arguments["security_opts"], NO_SELINUX_LABEL]}
    requests = changed.pop("device_requests", [])
    if gpus := [f"nvidia.com/gpu={number}" for request in requests for number in request["device_ids"]]:
        changed["devices"] = [*changed.get("devices", []), *gpus]
    if engine.rootless:
        changed["userns_mode"] = KEEP_ID
    if not engine.limits_pids:
        # Where it cannot be limited, Podman refuses to start the container.
        changed.pop("pids_limit")
    return changed


def podman_run(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The command that starts a container with these arguments of docker_container, and its input."""
    argv = [PODMAN, "run", "--detach", "--pull=never", "--init", f"--restart={RESTART}", *LOG]
    argv += [f"--{option}={arguments[name]}" for name, option in TEXTS.items() if name in arguments]
    argv += [f"--{option}={value}" for name, option in LISTS.items() for value in arguments.get(name, [])]
    # NAME:SOFT:HARD or NAME:BOTH.
    argv += [f"--ulimit={limit.replace(':', '=', 1)}" for limit in arguments["ulimits"]]
    argv += [f"--network={network['name']}" for network in arguments.get("networks", [])]
    argv += [f"--label={name}={value}" for name, value in arguments["labels"].items()]
    argv += [f"--mount={','.join(_mount(mount))}" for mount in arguments["mounts"]]
    if arguments["read_only"]:
        # Without Podman's own tmpfs: /tmp is a volume, and /run holds the token.
        argv += ["--read-only", "--read-only-tmpfs=false"]
    argv += ["--env-file=/dev/stdin", arguments["image"], *arguments["command"]]
    return {"argv": argv, "stdin": "".join(f"{name}={value}\n" for name, value in arguments["env"].items())}


def _mount(mount: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"type={mount['type']}", f"source={mount['source']}", f"target={mount['target']}")
    if mount.get("read_only"):
        yield "readonly"


# The process of a node: the request of the verb `node`, from the same plan as a container's.

# The most characters in the path of a socket (sun_path), and those that Ray adds to a directory.
SOCKET_CHARACTERS = 107
RAYS_CHARACTERS = len("/ray/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store")


def sessions_directory(cluster: str, above: str) -> str:
    """The directory of Ray's sessions: short, the same on all nodes, and no other cluster's."""
    path = f"{above.rstrip('/')}/argus-verl-{hashlib.sha256(cluster.encode()).hexdigest()[:8]}"
    longest = SOCKET_CHARACTERS - RAYS_CHARACTERS
    if len(path) > longest:
        raise PlanError(
            f"RAY_TMPDIR {above} of ray_node_env is too long: with {path}, the paths of Ray's sockets have more than "
            f"{SOCKET_CHARACTERS} characters; set a directory of at most {longest - len(path) + len(above)}"
        )
    return path


def process_environment(plan: NodePlan, host: ProcessHost, user: str) -> dict[str, str]:
    """The environment of every process of the node, jobs and modules included: over SSH it is nearly empty."""
    local = {
        "PATH": search_path(plan.settings.ray_node_python),
        "HOME": host.home,
        "USER": user,
        "LOGNAME": user,
        "LANG": "C.UTF-8",
    }
    token = PurePosixPath(host.directory).parents[1] / TOKEN
    environment = ray_environment(plan, str(token), str(token.parent / TABLES), local)
    # The sessions of other users, and of other clusters of this one, are in /tmp/ray.
    sessions = sessions_directory(plan.settings.cluster_name, environment.get("RAY_TMPDIR", "/tmp"))  # noqa: S108
    registry = {REGISTRY_VARIABLE: str(token.parent / REGISTRY)} if plan.role == HEAD else {}
    process_variables = {
        "RAY_TMPDIR": sessions,
        MARK_VARIABLE: host.directory,
        PROGRAM_DIRECTORY: str(token.parent / PROGRAM),
    }
    return {**environment, **registry, **process_variables}


def process_arguments(plan: NodePlan, host: ProcessHost, user: str) -> dict[str, Any]:
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
        "specification": specification(
            {**arguments, "environment": compared_environment(plan, environment), "python": python}
        ),
        "settings": settings_label(plan),
        "derived": json.dumps(derived, sort_keys=True) if derived else "",
    }
