# SPDX-License-Identifier: GPL-3.0-or-later
"""How Ray is started on a node: the command line and the environment, for containers and processes alike.

The hash of all of them shows later whether a running node still is as planned.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ...module_utils.argus.common.identity import AGENT_API, JOBS_API, PROGRAM_DIRECTORY, identity_variables
from ...module_utils.argus.ray import departures
from ...module_utils.cluster.devices import HIP_VISIBLE_DEVICES
from ...module_utils.cluster.ports import DASHBOARD_PORT
from ...module_utils.cluster.state import CURRENT, PROGRAM_PATH, ROCKSDB
from ..inventory.nodes import HEAD, ROCM, WORKER_RESOURCES, NodePlan

# The path of the token in a container. The environment has this path, so that `docker inspect` does not show the token.
TOKEN_PATH = "/run/argus-verl/auth_token"  # noqa: S105
# The directory of the head's GCS tables in its container.
TABLES_PATH = "/var/lib/argus-verl/tables"
# How long workers and their jobs wait for a head that is gone and will restore its tables.
HEAD_PATIENCE_SECONDS = 600
# The label of a Ray node that tells jobs the kind of its accelerator.
ACCELERATOR_LABEL = "argus.verl/accelerator"
# Runs the steward beside Ray's head, and again when it ends, as it does for a new version of the program.
HEAD_SCRIPT = (
    f'while :; do python3 -I "${{{PROGRAM_DIRECTORY}:-{PROGRAM_PATH}}}/{CURRENT}" steward; sleep 1; done & exec "$@"'
)
# getpass and caches need a name and a writable home, and the image's passwd may have no entry for the user.
CONTAINER_VARIABLES = MappingProxyType({"USER": "ray", "HOME": "/tmp"})  # noqa: S108


def api_port(plan: NodePlan) -> int:
    """The port at which the head itself reaches its dashboard and Jobs API."""
    return plan.settings.cluster_dashboard_port if plan.settings.cluster_network == "host" else DASHBOARD_PORT


def start_command(plan: NodePlan) -> list[str]:
    """The command of a node's container or process."""
    steward = ["sh", "-c", HEAD_SCRIPT, "head"] if plan.role == HEAD else []
    return [*steward, *ray_start_arguments(plan)]


def ray_start_arguments(plan: NodePlan) -> list[str]:
    arguments = ["ray", "start", "--block", f"--node-name={plan.name}"]
    if plan.role == HEAD:
        # With the host's network the loopback is that of the machine. In a network of its own the container has to
        # listen on all addresses: the engine publishes the port on the machine's loopback.
        listen = "127.0.0.1" if plan.settings.cluster_network == "host" else "0.0.0.0"  # noqa: S104
        arguments += ["--head", f"--dashboard-host={listen}", f"--dashboard-port={api_port(plan)}"]
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


def ray_environment(
    plan: NodePlan,
    token_path: str = TOKEN_PATH,
    tables_path: str = TABLES_PATH,
    local_variables: Mapping[str, str] = CONTAINER_VARIABLES,
) -> dict[str, str]:
    """The environment of every process of the node, jobs included.

    local_variables: those that depend on where the node runs.
    """
    settings = plan.settings
    # With ROCm, a node sees all GPUs of its machine: this tells Ray its share.
    has_rocm_share = plan.accelerator == ROCM and plan.gpu_ids is not None
    gpu_share = {HIP_VISIBLE_DEVICES: ",".join(map(str, plan.gpu_ids or ()))} if has_rocm_share else {}
    return {
        # Without both, a ~/.ray/auth_token of the image or the user would enable or disable tokens.
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": token_path,
        **local_variables,
        **plan.ports.environment(),
        **storage_environment(plan, tables_path),
        **(head_environment(plan) if plan.role == HEAD else {}),
        **settings.derived_env,
        **settings.ray_node_env,
        **gpu_share,
        # By these, the program `argus` knows the node.
        **identity_variables(plan.name, settings.cluster_name, settings.shared_root, settings.shared_root_source),
    }


def head_environment(plan: NodePlan) -> dict[str, str]:
    local = "http://127.0.0.1"
    return {
        # The seconds between the head's counts of resources in use, for which checks of a job wait; by default 5.
        "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        **departures.health_environment(),
        JOBS_API: f"{local}:{api_port(plan)}",
        AGENT_API: f"{local}:{plan.ports.agent}",
    }


def storage_environment(plan: NodePlan, tables_path: str) -> dict[str, str]:
    """If the GCS tables outlive the head: their path for the head, and how long workers wait for the head."""
    if plan.settings.cluster_head_storage != ROCKSDB:
        return {}
    if plan.role == HEAD:
        return {"RAY_gcs_storage": ROCKSDB, "RAY_gcs_storage_path": tables_path}
    return {"RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_PATIENCE_SECONDS)}


def derived_environment(plan: NodePlan) -> dict[str, str]:
    """The variables derived from all machines, without those that the inventory sets."""
    settings = plan.settings
    return {name: value for name, value in settings.derived_env.items() if name not in settings.ray_node_env}


def compared_environment(plan: NodePlan, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the derived variables: a cable that breaks elsewhere must not restart this node."""
    derived = derived_environment(plan)
    return {name: value for name, value in environment.items() if name not in derived}


def specification_hash(arguments: Mapping[str, Any]) -> str:
    """The hash of all arguments. A running container or process with another hash has to be created again."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
