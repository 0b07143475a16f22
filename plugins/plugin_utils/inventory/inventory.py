# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.cluster.process_host import is_reachable
from .nodes import CONTAINER, PROCESS

# Ansible's own: the variables of every host, and the hosts of every group.
Variables = Mapping[str, Any]
HostVars = Mapping[str, Variables]
Groups = Mapping[str, "list[str]"]

# The groups of the inventory.
NODES = "ray"
HEADS = "head"
WORKERS = "workers"
# Connections that pass on all that a host answers, and the one that does not.
LOCAL = "local"


def runtime_of(variables: Variables) -> str:
    return str(variables.get("ray_node_runtime") or CONTAINER)


def on_host_network(variables: Variables) -> bool:
    return runtime_of(variables) == PROCESS or variables.get("cluster_network") == "host"


def machine_name(node: str, variables: Variables) -> str:
    """The name by which people know a node's machine: of several nodes, that of the first."""
    local = "localhost" if variables.get("ansible_connection") == LOCAL else node
    return node if runtime_of(variables) == PROCESS else str(variables.get("ray_node_machine") or local)


def machine_key(node: str, variables: Variables) -> tuple[str, ...]:
    """The key of a node's machine, which its nodes share. A process has its host for itself."""
    name = machine_name(node, variables)
    if variables.get("ray_node_machine") or name != node or runtime_of(variables) == PROCESS:
        return (name,)
    connection = str(variables.get("ansible_connection") or "ssh")
    return connection, str(variables.get("ansible_host") or node), str(variables.get("ansible_port") or "")


def placement(nodes: Iterable[str], hostvars: HostVars, reached: Iterable[str] = ()) -> dict[str, list[str]]:
    """The nodes of each machine, by the one that represents it: what belongs to the machine is done there.

    reached: the hosts of the run. The first node among them represents a machine; without any, the first node.
    """
    machines: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        machines.setdefault(machine_key(node, hostvars[node]), []).append(node)
    reached_nodes = set(reached)
    return {next((node for node in placed if node in reached_nodes), placed[0]): placed for placed in machines.values()}


def address_of(variables: Variables) -> str:
    """Where other nodes reach one that uses the network of its machine, as far as the inventory says; or ""."""
    host = str(variables.get("ansible_host") or "")
    return str(variables.get("ray_node_address") or (host if is_reachable(host) else ""))


def cluster_nodes(groups: Groups) -> list[str]:
    """Return heads and workers; unlike the group of all nodes, also those that are not in it by mistake."""
    return list(dict.fromkeys([*groups.get(HEADS, []), *groups.get(WORKERS, [])]))
