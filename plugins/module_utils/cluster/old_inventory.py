# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An inventory with machines beside the nodes, as earlier versions read it, and the lines to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..argus.common.findings import Finding
from .inventory import HEADS, LOCAL, NODES, WORKERS, Groups, HostVars, Variables, cluster_nodes

MACHINES = "machines"
# The connection into a container, which there is no more.
IN_NODE = "argus.verl.node"
# How Ansible reaches a machine. The others that begin like this are Ansible's own.
OF_CONNECTION = re.compile(
    r"ansible_(host|port|user|connection|password|timeout|python_interpreter|become.*|ssh_.*|(ssh|docker|podman)_.*)"
)
SECRET = re.compile("pass|secret|token")
OF_COLLECTION = ("preflight_", "cluster_", "ray_node_", "shared_root")


def old_form(hostvars: HostVars, groups: Groups) -> list[str]:
    """What is of the old form; nothing where each host is a node."""
    in_node = any(hostvars[node].get("ansible_connection") == IN_NODE for node in cluster_nodes(groups))
    return [
        *([f"the group {MACHINES} has hosts"] if groups.get(MACHINES) else []),
        *([f"ansible_connection is {IN_NODE}"] if in_node else []),
    ]


def old_form_finding(found: Sequence[str]) -> Finding:
    todo = f"write the lines below in place of {MACHINES}, {NODES} and their variables: each host is a node, and "
    return Finding("inventory", " and ".join(found), f"{todo}Ansible connects to its machine")


def new_form(hostvars: HostVars, groups: Groups) -> list[str]:
    """The nodes with the variables of their machines, in YAML; what all of them have in common comes last."""
    variables = {node: moved(node, hostvars, groups) for node in cluster_nodes(groups)}
    first = next(iter(variables.values()), {})
    common = {name: value for name, value in first.items() if all(own.get(name) == value for own in variables.values())}
    found = [f"{NODES}:", "  children:"]
    for group in (HEADS, WORKERS):
        found += [f"    {group}:", "      hosts:"]
        for node in groups.get(group, []):
            own = {name: value for name, value in variables[node].items() if name not in common}
            found.append(f"        {node}: {f'{{{listed(own)}}}' if own else ''}".rstrip())
    return found + (["  vars:"] if common else []) + [f"    {name}: {text(name, common[name])}" for name in common]


def moved(node: str, hostvars: HostVars, groups: Groups) -> dict[str, Any]:
    """The variables of a node that its machine had."""
    own = hostvars[node]
    machine = str(own.get("ray_node_machine") or node)
    its: Variables = hostvars[machine] if machine in groups.get(MACHINES, []) else {}
    found = {name: its[name] for name in its if OF_CONNECTION.fullmatch(name)}
    if found.get("ansible_connection") != LOCAL and machine != node:
        # By default, the name of a host is where Ansible reaches it.
        found = {"ansible_host": machine, **found}
        shared = sum(hostvars[other].get("ray_node_machine") == machine for other in cluster_nodes(groups)) > 1
        found |= {"ray_node_machine": machine} if shared else {}
    found |= {name: its[name] for name in its if name.startswith(OF_COLLECTION) and its[name] != own.get(name)}
    address = own.get("ray_node_address")
    return found | ({"ray_node_address": address} if address not in (None, found.get("ansible_host")) else {})


def listed(variables: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {text(name, value)}" for name, value in variables.items())


def text(name: str, value: Any) -> str:
    """A value in YAML, of which JSON is a part. Passwords are not shown."""
    if SECRET.search(name):
        return '"as before"'
    plain = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./-]*|[0-9]+(\.[0-9]+){3}", value)
    return str(value) if plain else json.dumps(value)
