# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Port checks: the planned ports of a machine's nodes compared with what its kernel reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..argus.common.findings import ERROR, WARNING, Finding
from .engine import UP
from .local_ports import given_away
from .machine import Machine
from .node_process import ORPHANED, RUNNING
from .ports import PortRange

# The use of the dashboard's port, which is no part of the plan of a node.
DASHBOARD_USE = "the dashboard and the Jobs API"


def port_findings(host: str, machine: Machine, ranges: Sequence[PortRange]) -> Iterator[Finding]:
    """Find planned ports on which another program listens, or which the kernel may give to a connection."""
    for ports in ranges:
        taken = [
            port
            for port in machine.ports_in_use
            if ports.first <= port <= ports.last and not _held_by_node(machine, ports.node, port)
        ]
        if taken:
            yield _taken(host, ports, taken)
    planned = [ports for ports in ranges if ports.use != DASHBOARD_USE]
    if planned:
        yield from _given_away(host, machine, planned)


def _taken(host: str, ports: PortRange, taken: Sequence[int]) -> Finding:
    end = "end what listens there, a program (ss -ltnp) or another cluster, or choose"
    if ports.use == DASHBOARD_USE:
        what = f"port {taken[0]} is in use, expected free for the dashboard and the Jobs API"
        return Finding(host, what, f"{end} another port with cluster_dashboard_port")
    # Ray passes over a port of its worker processes that is in use.
    severity = WARNING if ports.last > ports.first else ERROR
    what = f"port {taken[0]} is in use, expected free for {ports.use} of {ports.node}"
    if len(taken) > 1:
        what = f"ports {', '.join(map(str, taken))} are in use, expected free for {ports.use} of {ports.node}"
    todo = f"{end} other ports with cluster_port_base, as for a second cluster on the same machines"
    return Finding(host, what, todo, severity)


def _held_by_node(machine: Machine, node: str, port: int) -> bool:
    """Whether the node itself, which is up, holds the port; with the host's network its ports are not listed."""
    if machine.process is not None:
        # What is left of it, too: it is ended before the node starts.
        return machine.process.node.state in (RUNNING, ORPHANED)
    container = machine.containers.get(node)
    return (
        container is not None
        and container.cluster == machine.cluster
        and container.state in UP
        and (port in container.host_ports or container.host_network)
    )


def _given_away(host: str, machine: Machine, planned: Sequence[PortRange]) -> Iterator[Finding]:
    first, last = min(ports.first for ports in planned), max(ports.last for ports in planned)
    free = given_away(first, last, machine.ephemeral_ports, machine.reserved_ports)
    if free:
        span = "-".join(map(str, machine.ephemeral_ports or ()))
        yield Finding(
            host,
            f"the kernel may give ports {free[0]}-{free[1]} of the nodes to outgoing connections "
            f"(net.ipv4.ip_local_port_range is {span})",
            f"reserve them: sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}, and the same in /etc/sysctl.d; "
            "or choose a lower cluster_port_base",
            WARNING,
        )
