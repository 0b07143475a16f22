# SPDX-License-Identifier: GPL-3.0-or-later
"""Inspects the host of a node that is a process of Ansible's user, not a container."""

from __future__ import annotations

import ipaddress
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..argus.common import node_process
from ..argus.common.node_process import NodeProcess
from .system import RAY_PROGRAMS, list_processes

# An address of a network that is reserved for documentation: its route is the default route. Nothing is sent there.
ROUTE_TARGET = "192.0.2.1"
ENDED_STATES = "ZX"  # zombie and dead, as in /proc/PID/stat
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ProcessHost:
    """The host of a node that is a process. As JSON, it is the field `process` of Machine."""

    # The absolute path of the node's directory.
    directory: str
    home: str
    # The address at which other nodes reach the host; empty if none was found.
    address: str
    # The path of the command ray; empty if the node's PATH has no such command.
    ray: str
    node: NodeProcess
    # The names of the cluster's other nodes on the host: their directories are beside this node's.
    neighbours: Sequence[str]
    # Processes of Ray that belong to no node of the cluster, each as "name pid".
    others: Sequence[str]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> ProcessHost:
        return cls(**{**answer, "node": NodeProcess(**answer["node"])})


def search_path(python: str) -> str:
    """Return the PATH of a node. An SSH session lacks the directory of the node's Python."""
    return f"{Path(python).parent}:{SYSTEM_PATH}"


def inspect_host(directory: str, python: str, address: str = "", head: str = "") -> ProcessHost:
    """Inspect a node and its host. address, head: at which Ansible reaches this host, and the host of Ray's head."""
    path = Path(directory).expanduser()
    neighbours = node_process.neighbours(path)
    # All nodes of the cluster on this host.
    cluster_pids = set().union(*(node_process.node_pids(path.parent / name) for name in (path.name, *neighbours)))
    return ProcessHost(
        directory=str(path),
        home=str(Path("~").expanduser()),
        address=reachable_address(address, head),
        ray=shutil.which("ray", path=search_path(python)) or "",
        node=node_process.read_node_process(path),
        neighbours=neighbours,
        others=[
            f"{process.name} {process.pid}"
            for process in list_processes(Path("/"))
            if process.name in RAY_PROGRAMS and process.state not in ENDED_STATES and process.pid not in cluster_pids
        ],
    )


def reachable_address(inventory_address: str, head: str) -> str:
    """Return the address at which other nodes reach this host, or "".

    It is the address of the inventory if this host itself has that address. Otherwise, as behind NAT, it is the address
    from which this host reaches the head.
    """
    if is_reachable(inventory_address) and _is_of_this_host(inventory_address):
        return inventory_address
    for target in (head, ROUTE_TARGET):
        address = _source_address(target) if target else ""
        if is_reachable(address):
            return address
    return ""


def is_reachable(address: str) -> bool:
    """Whether the text is an IP address, and neither a loopback nor the unspecified address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_unspecified)


def _is_of_this_host(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.bind((address, 0))
    except OSError:
        return False
    return True


def _source_address(target: str) -> str:
    """Return the address from which this host reaches another. Connecting a datagram socket sends nothing."""
    try:
        family, kind, _proto, _name, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as endpoint:
            endpoint.connect(where)
            return str(endpoint.getsockname()[0])
    except OSError:
        return ""
