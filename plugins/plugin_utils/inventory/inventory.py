# SPDX-License-Identifier: GPL-3.0-or-later
"""The groups of an inventory, and on which machine each of its nodes is: several nodes may share a machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.cluster.process_host import is_reachable
from .nodes import CONTAINER, PROCESS

# As Ansible has them: the variables of a host, those of all hosts, and the hosts of all groups.
Variables = Mapping[str, Any]
HostVars = Mapping[str, Variables]
Groups = Mapping[str, "list[str]"]

# The groups of the inventory.
NODES = "ray"
HEADS = "head"
WORKERS = "workers"
# The value of ansible_connection for the controller itself.
LOCAL = "local"


def runtime_of(variables: Variables) -> str:
    return str(variables.get("ray_node_runtime") or CONTAINER)


def on_host_network(variables: Variables) -> bool:
    return runtime_of(variables) == PROCESS or variables.get("cluster_network") == "host"


def machine_name(node: str, variables: Variables) -> str:
    """The name of a node's machine for people. If its nodes have several names for it, people know the first node's."""
    local = "localhost" if variables.get("ansible_connection") == LOCAL else node
    return node if runtime_of(variables) == PROCESS else str(variables.get("ray_node_machine") or local)


def machine_key(node: str, variables: Variables) -> tuple[str, ...]:
    """A key that the nodes of one machine share. A process has its host for itself."""
    name = machine_name(node, variables)
    if variables.get("ray_node_machine") or name != node or runtime_of(variables) == PROCESS:
        return (name,)
    connection = str(variables.get("ansible_connection") or "ssh")
    return connection, str(variables.get("ansible_host") or node), str(variables.get("ansible_port") or "")


def placement(nodes: Iterable[str], hostvars: HostVars, reached: Iterable[str] = ()) -> dict[str, list[str]]:
    """The nodes of each machine, by the host that represents it, on which tasks for the machine run.

    reached: the hosts of the run. The first node among them represents its machine; without any, the first node.
    """
    machines: dict[tuple[str, ...], list[str]] = {}
    for node in nodes:
        machines.setdefault(machine_key(node, hostvars[node]), []).append(node)
    reached_nodes = set(reached)
    return {next((node for node in placed if node in reached_nodes), placed[0]): placed for placed in machines.values()}


def address_of(variables: Variables) -> str:
    """Where other nodes reach a node on its machine's network; "" if the inventory does not say it."""
    host = str(variables.get("ansible_host") or "")
    return str(variables.get("ray_node_address") or (host if is_reachable(host) else ""))


def cluster_nodes(groups: Groups) -> list[str]:
    """The heads and workers, also those that are missing in the group of all nodes by mistake."""
    return list(dict.fromkeys([*groups.get(HEADS, []), *groups.get(WORKERS, [])]))
