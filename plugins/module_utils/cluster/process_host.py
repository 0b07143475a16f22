# SPDX-License-Identifier: GPL-3.0-or-later
"""The host of a node that is a process: what the plan of the node needs to know of it.

Runs on machines with Python 3.9 and newer.
"""

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
from .system import RAY_PROGRAMS, processes

# Documentation's own network: a route to it is the default route. Nothing is sent.
ROUTE_TARGET = "192.0.2.1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ProcessHost:
    """A node's host. directory: of the node, absolute. address: for other nodes; empty if none was found.

    ray: the path of the command ray; empty if there is none.
    neighbours: other nodes of the cluster that have a directory here. others: processes of Ray that are not its own.
    """

    directory: str
    home: str
    address: str
    ray: str
    node: NodeProcess
    neighbours: Sequence[str]
    others: Sequence[str]

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> ProcessHost:
        return cls(**{**answer, "node": NodeProcess(**answer["node"])})


def search_path(python: str) -> str:
    """The PATH of a node: a session over SSH lacks that of the image."""
    return f"{Path(python).parent}:{SYSTEM_PATH}"


def inspect_host(directory: str, python: str, address: str = "", head: str = "") -> ProcessHost:
    """Inspect a node and its host. address, head: at which Ansible reaches the host, and that of the head."""
    path = Path(directory).expanduser()
    neighbours = node_process.neighbours(path)
    # The processes of all nodes of the cluster on this host.
    ours = set().union(*(node_process.node_pids(path.parent / name) for name in (path.name, *neighbours)))
    return ProcessHost(
        directory=str(path),
        home=str(Path("~").expanduser()),
        address=reachable_address(address, head),
        ray=shutil.which("ray", path=search_path(python)) or "",
        node=node_process.read_node_process(path),
        neighbours=neighbours,
        others=[
            f"{process.name} {process.pid}"
            for process in processes(Path("/"))
            if process.name in RAY_PROGRAMS and process.state not in "ZX" and process.pid not in ours
        ],
    )


def reachable_address(inventory_address: str, head: str) -> str:
    """The address at which other nodes reach this host.

    That of the inventory, unless it is translated on the way; then that of the route to the head.
    """
    if is_reachable(inventory_address) and _is_local(inventory_address):
        return inventory_address
    for target in (head, ROUTE_TARGET):
        address = _source(target) if target else ""
        if is_reachable(address):
            return address
    return ""


def is_reachable(address: str) -> bool:
    """Whether it is an IP address that other hosts can reach."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_unspecified)


def _is_local(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as endpoint:
            endpoint.bind((address, 0))
    except OSError:
        return False
    return True


def _source(target: str) -> str:
    """The address from which this host reaches another; connecting a datagram socket sends nothing."""
    try:
        family, kind, _proto, _name, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as endpoint:
            endpoint.connect(where)
            return str(endpoint.getsockname()[0])
    except OSError:
        return ""
