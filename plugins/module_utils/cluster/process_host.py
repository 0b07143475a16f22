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
SOMEWHERE = "192.0.2.1"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class ProcessHost:
    """directory: of the node, absolute. address: at which other nodes reach it; empty if none was found.

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
    """The PATH of a node: over SSH that of the image is absent."""
    return f"{Path(python).parent}:{SYSTEM_PATH}"


def look(directory: str, python: str, address: str = "", head: str = "") -> ProcessHost:
    """Look at a node and its host. address: at which Ansible reaches the host. head: the same for the head's host."""
    own = Path(directory).expanduser()
    neighbours = node_process.neighbours(own)
    # The processes of all nodes of the cluster on this host.
    ours = set().union(*(node_process.processes(own.parent / name) for name in (own.name, *neighbours)))
    return ProcessHost(
        directory=str(own),
        home=str(Path("~").expanduser()),
        address=own_address(address, head),
        ray=shutil.which("ray", path=search_path(python)) or "",
        node=node_process.look(own),
        neighbours=neighbours,
        others=[
            f"{process.name} {process.pid}"
            for process in processes(Path("/"))
            if process.name in RAY_PROGRAMS and process.state not in "ZX" and process.pid not in ours
        ],
    )


def own_address(asked: str, head: str) -> str:
    """The address at which other nodes reach this host.

    It is the one of the inventory, unless something between translates it; then the one that leads to the head.
    """
    if is_reachable(asked) and _has(asked):
        return asked
    for target in (head, SOMEWHERE):
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


def _has(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((address, 0))
    except OSError:
        return False
    return True


def _source(target: str) -> str:
    """The address from which this host reaches another; connecting a datagram socket sends nothing."""
    try:
        family, kind, _proto, _name, where = socket.getaddrinfo(target, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as own:
            own.connect(where)
            return str(own.getsockname()[0])
    except OSError:
        return ""
