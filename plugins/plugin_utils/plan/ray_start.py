# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...module_utils.argus.common.identity import AGENT_API, JOBS_API, PROGRAM_DIRECTORY, identity
from ...module_utils.argus.ray import departures
from ...module_utils.cluster.devices import VISIBLE
from ...module_utils.cluster.ports import DASHBOARD_PORT
from ...module_utils.cluster.state import CURRENT, PROGRAM_PATH, ROCKSDB
from ..inventory.nodes import HEAD, ROCM, WORKER_RESOURCES, NodePlan

# The token inside a node; a path in the environment keeps the token itself out of `docker inspect`.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# The tables of Ray's head.
TABLES_PATH = "/var/lib/argus-verl/tables"
# How long workers and their jobs wait for a head that is gone.
HEAD_PATIENCE_SECONDS = 600
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
        **identity(plan.name, settings.cluster_name, settings.shared_root, settings.shared_root_source),
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


def specification(arguments: Mapping[str, Any]) -> str:
    """Return a hash of every argument; a container with another hash has to be created again."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
