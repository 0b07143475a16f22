# SPDX-License-Identifier: GPL-3.0-or-later
"""The check machine.port: the ports of nodes on one machine are free, and stay so."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import ERROR, WARNING
from ..argus.common.node_process import ORPHANED
from ..cluster.engine import PORT_HOLDING_STATES, RUNNING
from ..cluster.machine import Machine
from ..cluster.ports import DASHBOARD_USE
from .checks import Expectation, Problem


def used_port_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    for ports in expectation.ports:
        used = [
            port
            for port in machine.ports_in_use
            if ports.first <= port <= ports.last and not _held_by_node(machine, ports.node, port)
        ]
        if not used:
            continue
        end = "end what listens there, a program (ss -ltnp) or another cluster, or choose"
        if ports.use == DASHBOARD_USE:
            problem = f"port {used[0]} is in use, expected free for the dashboard and the Jobs API"
            yield Problem("machine.port", problem, f"{end} another port with cluster_dashboard_port")
            continue
        problem = f"port {used[0]} is in use, expected free for {ports.use} of {ports.node}"
        if len(used) > 1:
            problem = f"ports {', '.join(map(str, used))} are in use, expected free for {ports.use} of {ports.node}"
        yield Problem(
            "machine.port",
            problem,
            f"{end} other ports with cluster_port_base, as for a second cluster on the same machines",
            # A range has the ports of worker processes. If one is in use, Ray takes the next.
            WARNING if ports.last > ports.first else ERROR,
        )


def _held_by_node(machine: Machine, node: str, port: int) -> bool:
    """Whether the node itself holds the port."""
    if machine.process is not None:
        # A killed node may have left processes. They are ended before the node starts again.
        return machine.process.node.state in (RUNNING, ORPHANED)
    container = machine.containers.get(node)
    return (
        container is not None
        and container.cluster == machine.cluster
        and container.state in PORT_HOLDING_STATES
        # The engine does not list the ports of a container in the host's network.
        and (port in container.host_ports or container.host_network)
    )


def ephemeral_port_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Find planned ports that the kernel may give to an outgoing connection."""
    planned = [ports for ports in expectation.ports if ports.use != DASHBOARD_USE]
    if not planned or not machine.ephemeral_ports:
        return
    first, last = min(ports.first for ports in planned), max(ports.last for ports in planned)
    start, end = machine.ephemeral_ports
    reserved = {port for low, high in machine.reserved_ports for port in range(max(low, first), min(high, last) + 1)}
    free = [port for port in range(max(first, start), min(last, end) + 1) if port not in reserved]
    if free:
        yield Problem(
            "machine.port",
            f"the kernel may give ports {free[0]}-{free[-1]} of the nodes to outgoing connections "
            f"(net.ipv4.ip_local_port_range is {start}-{end})",
            f"reserve them: sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}, and the same in /etc/sysctl.d; "
            "or choose a lower cluster_port_base",
            WARNING,
        )
