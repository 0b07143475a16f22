# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory: who is placed where, and its checks before any host is touched."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ..findings import WARNING, Finding
from ..text import misspelt, nearest
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
# What lies beside the hosts, and is none.
BESIDE = ("jobspecs", "rewards")
# The prefixes of this collection: an unknown variable with one of them is misspelt. Others may be a user's own.
PREFIXES = ("cluster_", "preflight_", "ray_node_", "staging_", "job_", "shared_root")
WHOLE_NUMBER = re.compile("[0-9]+")
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
    if len(heads) > 1:
        what = f"has {len(heads)} hosts ({', '.join(heads)})"
        found.append(Finding(f"group {HEADS}", what, "a cluster has one head: keep exactly one"))
    if not heads:
        found.append(empty_group(HEADS, "add the head: a cluster has exactly one", groups))
    if not workers:
        found.append(empty_group(WORKERS, "add at least one worker: the head never trains", groups))
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


def empty_group(name: str, todo: str, groups: Groups) -> Finding:
    """The finding about a group without hosts, with the name of another one that it may be."""
    others = [group for group, hosts in groups.items() if hosts and group not in (MACHINES, NODES, HEADS, WORKERS)]
    near = nearest(name, others)
    return Finding(f"group {name}", "has no hosts", f"{todo}; {near}".rstrip("; "))


def run_findings(reached: Iterable[str], works_on: Iterable[str], hostvars: HostVars, groups: Groups) -> list[Finding]:
    """Check that a run reaches what its playbook works on: Ansible skips a group without hosts, and succeeds.

    reached: the hosts that --limit leaves.
    """
    there, wanted = set(reached), list(works_on)
    left_out = {node: machine_of(node, hostvars) for node in groups.get(NODES, []) if node in there}
    left_out = {node: machine for node, machine in left_out.items() if machine not in there}
    if NODES in wanted and left_out:
        return [
            Finding(node, f"--limit leaves out its machine {machine}", f"add it: --limit '{machine},{node}'")
            for node, machine in left_out.items()
        ]
    return [
        Finding(
            f"group {group}", "--limit leaves out all of its hosts", f"add some of them: {', '.join(groups[group])}"
        )
        for group in wanted
        if groups.get(group) and there.isdisjoint(groups[group])
    ]


def source_findings(sources: Iterable[str], ignored: Iterable[str]) -> list[Finding]:
    """Find missing inventories, and directories in which Ansible takes JobSpecs and reward functions for hosts.

    ignored: the names that Ansible's configuration leaves out.
    """
    found = []
    for source in sources:
        # With a comma, it is a list of hosts.
        if "," not in source and not Path(source).exists():
            found.append(Finding(source, "does not exist", "correct the path of the inventory, or remove it"))
        beside = [name for name in BESIDE if name not in set(ignored) and Path(source, name).is_dir()]
        if beside:
            file = next((str(path) for path in sorted(Path(source).glob("hosts*"))), "its file with the hosts")
            what = f"Ansible takes the files in {' and '.join(beside)} for hosts"
            todo = f"pass a file instead of the directory: -i {file}"
            found.append(Finding(source, what, todo, WARNING))
    return found


def node_findings(node: str, settings: Variables) -> list[Finding]:
    """Check the variables of one node."""
    found = []
    if not NAME.fullmatch(node):
        todo = "use lower-case letters, digits and dashes, at most 63: it is used as container name and host name"
        found.append(Finding(node, "is not a valid node name", todo))
    for name in ("ray_node_gpus", "ray_node_cpus"):
        value = settings.get(name)
        # -e passes text.
        if value is not None and (isinstance(value, bool) or not WHOLE_NUMBER.fullmatch(str(value))):
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
    """Find variables that nothing reads: those with a prefix of this collection, and those that are almost known."""
    unknown: dict[str, list[str]] = {}
    hosts = list(hosts)
    for host in hosts:
        for name in hostvars[host]:
            # Results of earlier plays of the same run begin with an underscore.
            if name not in known and not str(name).startswith(("ansible_", "_")):
                unknown.setdefault(str(name), []).append(host)
    found = []
    for name, at in unknown.items():
        with_prefix = name.startswith(PREFIXES)
        near = nearest(name, known) if with_prefix else misspelt(name, known)
        if with_prefix or near:
            todo = near or "remove it; the roles' READMEs list all variables"
            where = ", ".join(at) if len(at) < len(hosts) or len(hosts) == 1 else "all hosts"
            found.append(Finding(where, f"variable {name} is unknown", todo))
    return found


def validate(hostvars: HostVars, groups: Groups, known: Iterable[str]) -> list[Finding]:
    """Return every problem of an inventory that is visible without touching a host.

    known: the names of all variables that have a meaning here.
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


def summary(hostvars: HostVars, groups: Groups, default_name: str) -> str:
    """What a correct inventory describes.

    default_name: the name of a cluster whose inventory has none.
    """
    name = hostvars[groups[HEADS][0]].get("cluster_name", default_name)
    workers = len(groups[WORKERS])
    return f"Inventory fine: cluster {name}, 1 head, {workers} {'worker' if workers == 1 else 'workers'}"
