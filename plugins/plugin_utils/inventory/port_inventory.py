# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports that the nodes of an inventory listen on, by machine, and whether two of them collide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...module_utils.argus.common.findings import Finding
from ...module_utils.cluster.names import CHECKS
from ...module_utils.cluster.ports import (
    DASHBOARD_USE,
    NODE_PORTS,
    PORT_BASE,
    PortPlan,
    PortRange,
    dashboard_port,
    node_number,
)
from .inventory import HEADS, Groups, HostVars, cluster_nodes, machine_name, on_host_network, placement

# Lower ports need root.
FIRST_USER_PORT = 1024
LAST_PORT = 65535


@dataclass(frozen=True)
class MachineNodes:
    """The nodes of one machine, in the order of the inventory."""

    heads: list[str] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)


def nodes_by_machine(variables: HostVars, groups: Groups, reached: Iterable[str] = ()) -> dict[str, MachineNodes]:
    """The nodes of every machine, by the host that represents it, as `placement` has them."""
    heads = set(groups.get(HEADS, []))
    return {
        host: MachineNodes([node for node in nodes if node in heads], [node for node in nodes if node not in heads])
        for host, nodes in placement(variables, variables, reached).items()
    }


def machine_ranges(placed: MachineNodes, base: int, dashboard: int, host_network: bool) -> list[PortRange]:
    """The ports of a machine that its nodes listen on. In a container network, that is the dashboard's alone."""
    ranges = [PortRange(node, DASHBOARD_USE, dashboard, dashboard) for node in placed.heads]
    for node in [*placed.heads, *placed.workers] if host_network else ():
        ranges += PortPlan(base, node_number(node, node in placed.heads, True, placed.workers)).ranges(node)
    return ranges


def port_inventory_findings(hostvars: HostVars, groups: Groups) -> list[Finding]:
    """Check the ports of nodes on the network of their machines, which share cluster_port_base."""
    all_nodes = {node: hostvars[node] for node in cluster_nodes(groups)}
    variables = {node: settings for node, settings in all_nodes.items() if on_host_network(settings)}
    bases = {node: settings.get("cluster_port_base", PORT_BASE) for node, settings in variables.items()}
    if not bases or any(CHECKS["cluster_port_base"](base) for base in bases.values()):
        # value_findings() reports a wrong base.
        return []
    numbers = {node: int(base) for node, base in bases.items()}
    if len(set(numbers.values())) > 1:
        listed = ", ".join(f"{node} {base}" for node, base in numbers.items())
        remedy = "set it once for all nodes: workers find the head's GCS by it"
        return [Finding(", ".join(numbers), f"cluster_port_base differs: {listed}", remedy)]
    base = next(iter(numbers.values()))
    findings: list[Finding] = []
    for host, placed in nodes_by_machine(variables, groups).items():
        findings += _too_many_workers(machine_name(host, variables[host]), placed.workers, base)
        for head in placed.heads:
            port = variables[head].get("cluster_dashboard_port", dashboard_port(base))
            findings += _dashboard_findings(head, placed, port, base)
    return findings


def _too_many_workers(machine: str, workers: Sequence[str], base: int) -> Iterator[Finding]:
    last = base + (1 + len(workers)) * NODE_PORTS - 1
    if last > LAST_PORT:
        problem = f"its {len(workers)} workers would need ports up to {last} with cluster_port_base {base}"
        highest_base = LAST_PORT + 1 - (1 + len(workers)) * NODE_PORTS
        remedy = f"set a base of at most {highest_base}: each node has {NODE_PORTS} ports"
        yield Finding(machine, problem, remedy)


def _dashboard_findings(head: str, placed: MachineNodes, value: Any, base: int) -> Iterator[Finding]:
    if CHECKS["cluster_dashboard_port"](value):
        return
    port = int(value)
    if port < FIRST_USER_PORT:
        remedy = f"set a port from {FIRST_USER_PORT} on: with the host's network, Ray opens it itself, without root"
        yield Finding(head, f"cluster_dashboard_port is {port} with cluster_network: host", remedy)
    for ports in machine_ranges(placed, base, port, host_network=True):
        if ports.use != DASHBOARD_USE and ports.first <= port <= ports.last:
            problem = f"cluster_dashboard_port {port} is also planned for {ports.use} of {ports.node}"
            yield Finding(head, problem, "remove cluster_dashboard_port, or set a port outside of the plan")
