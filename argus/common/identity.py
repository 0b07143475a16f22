# SPDX-License-Identifier: Apache-2.0
"""The environment variables that tell a process to which node and cluster it belongs.

A host name tells neither: in a container with the host's network it is that of the machine, and several clusters may
have nodes on one machine.
"""

from __future__ import annotations

import os
import socket

# In the environment of every process of a node: the names of the node and of its cluster.
NODE = "ARGUS_VERL_NODE"
CLUSTER = "ARGUS_VERL_CLUSTER"
# The path of the shared root on the machines; it distinguishes clusters with the same node names.
SHARED_ROOT = "ARGUS_VERL_SHARED_ROOT"
SHARED_ROOT_MOUNT = "ARGUS_VERL_SHARED_ROOT_MOUNT"
# The address of the Jobs API, on the head alone.
JOBS_API = "ARGUS_VERL_JOBS_API"
# The address of the head's dashboard agent, which runs Ray's job manager.
AGENT_API = "ARGUS_VERL_AGENT_API"
# The directory of the program on nodes without a container.
PROGRAM_DIRECTORY = "ARGUS_VERL_PROGRAM"


def identity_variables(node: str, cluster: str, shared_root: str, shared_root_source: str) -> dict[str, str]:
    """The variables for the processes of a node. shared_root_source: the path of the shared root on the machines."""
    return {NODE: node, CLUSTER: cluster, SHARED_ROOT: shared_root_source, SHARED_ROOT_MOUNT: shared_root}


def node_name() -> str:
    """The name of this node in the inventory; elsewhere the host name."""
    return os.environ.get(NODE) or socket.gethostname()


def cluster_name() -> str:
    return os.environ.get(CLUSTER, "")


def cluster_mismatch(shared_root_source: str) -> str:
    """That this node belongs to another cluster than the caller means; "" if it does not, or if that is unknown.

    shared_root_source: the path of the caller's shared root on the machines.
    """
    node_root = os.environ.get(SHARED_ROOT, "")
    if not shared_root_source or not node_root or node_root == shared_root_source:
        return ""
    return (
        f"{node_name()} belongs to a cluster {cluster_name()} with the shared root {node_root}, and the "
        f"inventory has {shared_root_source}: pass the inventory of that cluster (-i), or rename the nodes of yours"
    )
