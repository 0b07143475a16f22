# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: who is placed where, and its checks before any host is touched."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from ..findings import WARNING, Finding
from ..text import nearest
from .names import CHECKS

# Ansible's own: the variables of every host, and the hosts of every group.
Variables = Mapping[str, Any]
HostVars = Mapping[str, Variables]
Groups = Mapping[str, "list[str]"]

# The groups of the inventory.
MACHINES = "machines"
NODES = "ray"
HEADS = "head"
WORKERS = "workers"
# The prefixes of this collection: an unknown variable with one of them is misspelt.
PREFIXES = ("cluster_", "preflight_", "ray_node_", "staging_", "job_", "shared_root")
# Docker's rule for the names of containers and networks, restricted to valid host names.
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def machine_of(node: str, hostvars: HostVars) -> str:
    """Return the machine that holds the node's container; by default, a node is its own machine."""
    return str(hostvars[node].get("ray_node_machine") or node)


def nodes_of(machine: str, hostvars: HostVars, groups: Groups, group: str = NODES) -> list[str]:
    """Return the nodes of a group that are on a machine, in the order of the inventory."""
    return [node for node in groups[group] if machine_of(node, hostvars) == machine]


def cluster_nodes(groups: Groups) -> list[str]:
    """Return heads and workers; unlike the group of all nodes, also those that are not in it by mistake."""
    return list(dict.fromkeys([*groups.get(HEADS, []), *groups.get(WORKERS, [])]))


def group_findings(hostvars: HostVars, groups: Groups) -> list[Finding]:
    found = []
    heads, workers = groups.get(HEADS, []), groups.get(WORKERS, [])
    if len(heads) != 1:
        listed = f" ({', '.join(heads)})" if heads else ""
        found.append(
            Finding(f"group {HEADS}", f"has {len(heads)} hosts{listed}", "a cluster has one head: keep exactly one")
        )
    if not workers:
        found.append(Finding(f"group {WORKERS}", "has no hosts", "add at least one worker: the head never trains"))
    for node in sorted(set(heads) & set(workers)):
        found.append(Finding(node, "is in both head and workers", "the head never trains: remove it from workers"))
    for node in cluster_nodes(groups):
        machine = machine_of(node, hostvars)
        if node not in groups.get(NODES, []):
            found.append(Finding(node, f"is not in the group {NODES}", f"make head and workers children of {NODES}"))
        if machine not in groups.get(MACHINES, []):
            near = nearest(machine, groups.get(MACHINES, []))
            todo = f"add the machine to the group {MACHINES}, or correct ray_node_machine"
            found.append(
                Finding(node, f"its machine {machine!r} is not in the group {MACHINES}", f"{todo}; {near}".rstrip("; "))
            )
    return found


def node_findings(node: str, settings: Variables) -> list[Finding]:
    """Check the variables of one node."""
    found = []
    if not NAME.fullmatch(node):
        todo = "use lower-case letters, digits and dashes, at most 63: it is used as container name and host name"
        found.append(Finding(node, "is not a valid node name", todo))
    for name in ("ray_node_gpus", "ray_node_cpus"):
        value = settings.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            found.append(Finding(node, f"{name} is {value!r}", "set a whole number, or remove it for the default"))
    if settings.get("cluster_network") == "host":
        address = str(settings.get("ray_node_address", ""))
        if not _reachable(address):
            todo = "set the IP address at which the other nodes reach this one; a loopback makes gloo and NCCL fail"
            found.append(Finding(node, f"ray_node_address is {address!r} with cluster_network: host", todo))
    return found


def _reachable(address: str) -> bool:
    """Whether it is an IP address that is not a loopback."""
    try:
        return not ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def placement_findings(hostvars: HostVars, groups: Groups) -> list[Finding]:
    """Check that nodes reach each other, and do not take each other's ports."""
    found = []
    nodes = cluster_nodes(groups)
    machines: dict[str, list[str]] = {}
    for node in nodes:
        machines.setdefault(machine_of(node, hostvars), []).append(node)
    own_network = [node for node in nodes if hostvars[node].get("cluster_network") != "host"]
    if own_network and len(machines) > 1:
        found.append(
            Finding(
                ", ".join(own_network),
                f"a container network does not span {len(machines)} machines ({', '.join(machines)})",
                "set cluster_network: host and ray_node_address for every node",
            )
        )
    for machine, there in machines.items():
        on_host = [node for node in there if node not in own_network]
        if len(on_host) > 1:
            todo = "with the host's network they use the same ports: place each on a machine of its own"
            found.append(Finding(machine, f"holds {len(on_host)} nodes ({', '.join(on_host)})", todo))
    return found


def value_findings(hosts: Iterable[str], hostvars: HostVars) -> list[Finding]:
    """Check names and paths that reach machines, once for all hosts that have the same value."""
    wrong: dict[tuple[str, str, str], list[str]] = {}
    for host in hosts:
        variables = hostvars[host]
        for name, check in CHECKS.items():
            # An explicit null replaces the default, too.
            problem = check(variables[name]) if name in variables else ""
            if problem:
                wrong.setdefault((name, repr(variables[name]), problem), []).append(host)
    return [Finding(", ".join(at), f"{name} is {value}", todo) for (name, value, todo), at in wrong.items()]


def trust_findings(hosts: Iterable[str], hostvars: HostVars) -> list[Finding]:
    """Check that jobs cannot reach the token of other clusters, and are not root."""
    exposed, root = [], []
    for host in hosts:
        variables = hostvars[host]
        shared_root = variables.get("shared_root_source") or variables.get("shared_root")
        path = PurePosixPath(str(variables.get("cluster_state_dir") or ""))
        if shared_root and PurePosixPath(str(shared_root)) in (path, *path.parents):
            exposed.append((host, str(path)))
        if str(variables.get("ray_node_user") or "").startswith("0:"):
            root.append(host)
    found = [
        Finding(host, f"cluster_state_dir {path} lies in the shared root", "move it to where jobs cannot write")
        for host, path in exposed
    ]
    if root:
        todo = 'set another user, such as "61000:61000", or remove ray_node_user for the default'
        what = "ray_node_user is root: so is every job in its container, and on the shared root"
        found.append(Finding(", ".join(root), what, todo, WARNING))
    return found


def unknown_variables(hosts: Iterable[str], hostvars: Mapping[str, Iterable[str]], known: set[str]) -> list[Finding]:
    """Find variables with a prefix of this collection that nothing reads."""
    unknown: dict[str, list[str]] = {}
    for host in hosts:
        for name in hostvars[host]:
            if str(name).startswith(PREFIXES) and name not in known:
                unknown.setdefault(name, []).append(host)
    return [
        Finding(
            ", ".join(at),
            f"variable {name} is unknown",
            nearest(name, known) or "remove it; the roles' READMEs list all variables",
        )
        for name, at in unknown.items()
    ]


def validate(hostvars: HostVars, groups: Groups, known: Iterable[str]) -> list[Finding]:
    """Return every problem of an inventory that is visible without touching a host.

    known: the names of all public variables of the roles.
    """
    found = group_findings(hostvars, groups)
    nodes = cluster_nodes(groups)
    for node in nodes:
        found += node_findings(node, hostvars[node])
    found += placement_findings(hostvars, groups)
    hosts = dict.fromkeys([*groups.get(MACHINES, []), *nodes])
    found += value_findings(hosts, hostvars)
    found += trust_findings(hosts, hostvars)
    return found + unknown_variables(hosts, hostvars, set(known))
