# SPDX-License-Identifier: GPL-3.0-or-later
"""A node as a process of its host: the request of the verb `node`, from the same plan as a container's arguments."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import Any

from ...module_utils.argus.common.identity import PROGRAM_DIRECTORY
from ...module_utils.argus.common.node_process import MARK
from ...module_utils.argus.ray.admission import REGISTRY_VARIABLE
from ...module_utils.cluster.process_host import ProcessHost, search_path
from ...module_utils.cluster.state import PROGRAM, REGISTRY, TABLES, TOKEN
from ..inventory.nodes import HEAD, NodePlan, PlanError
from ..inventory.settings_label import settings_label
from .ray_start import compared_environment, derived_environment, ray_environment, specification_hash, start_command

# The most characters in the path of a Unix socket (sun_path), and those that Ray appends to the sessions directory.
MAX_SOCKET_CHARS = 107
RAY_SUFFIX_CHARS = len("/ray/session_2026-01-31_23-59-59_999999_4194304/sockets/plasma_store")


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
    process_variables = {"RAY_TMPDIR": sessions, MARK: host.directory, PROGRAM_DIRECTORY: str(token.parent / PROGRAM)}
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
