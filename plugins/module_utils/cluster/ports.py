# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports: what a node listens on, planned from one number for the whole cluster.

Every node has a set of `NODE_PORTS` ports. Set 0 is the head's; the workers of a machine have set 1 and the following.
So a head and workers share a machine and its address, and moving the head changes no worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Below the ports that the kernel gives to outgoing connections (from 32768 on), below those of Kubernetes' services
# (from 30000 on), and away from exporters of metrics (9100, 9400), Kubernetes (10250) and torch's default (29500).
PORT_BASE = 20000
# The number of ports of each node.
NODE_PORTS = 1000
# The highest base with which a head and one worker have their ports.
HIGHEST_BASE = 65536 - 2 * NODE_PORTS
# The port of the dashboard that everybody knows; Ray's default.
DASHBOARD_PORT = 8265
DASHBOARD_OFFSET = 4
AGENT_OFFSET = 13
# Ports that only a head opens: on a worker, `ray start` fails if these defaults are among the ports of its plan.
HEADS_DEFAULTS = {"--dashboard-port": DASHBOARD_PORT, "--ray-client-server-port": 10001}
# The ports of worker processes and drivers: Ray starts a process for each CPU of the node, and one for each actor. The
# largest machines have 768 hardware threads.
WORKERS_OFFSET = 20


# The use of the dashboard's port, which is no part of the plan of a node.
DASHBOARD_USE = "the dashboard and the Jobs API"


@dataclass(frozen=True)
class PortUse:
    """A port of a node's set.

    name: what listens, in the words of Ray's documentation.
    offset: its place in the set.
    clients: who connects to it, for the documentation.
    option: the option of `ray start` that sets it; empty if an environment variable does.
    variable: that environment variable.
    """

    name: str
    offset: int
    clients: str
    option: str = ""
    variable: str = ""


HEAD_USES = (
    PortUse("GCS", 0, "all nodes", "--port"),
    PortUse("metrics of the autoscaler", 1, "Prometheus", variable="AUTOSCALER_METRIC_PORT"),
    PortUse("metrics of the dashboard", 2, "Prometheus", variable="DASHBOARD_METRIC_PORT"),
    # Ray has no way to disable it.
    PortUse("Ray Client", 3, "Ray Client, which the collection does not use", "--ray-client-server-port"),
    # The steward counts from the port of the dashboard's.
    PortUse("metrics and pages of jobs", 5, "Prometheus, browsers"),
)
NODE_USES = (
    PortUse("raylet", 10, "all nodes", "--node-manager-port"),
    PortUse("object manager", 11, "all nodes", "--object-manager-port"),
    PortUse("agent (gRPC)", 12, "all nodes", "--dashboard-agent-grpc-port"),
    PortUse("agent (HTTP)", AGENT_OFFSET, "the head", "--dashboard-agent-listen-port"),
    PortUse("runtime environment agent", 14, "the node itself", "--runtime-env-agent-port"),
    PortUse("metrics", 15, "Prometheus", "--metrics-export-port"),
)


@dataclass(frozen=True)
class PortRange:
    """Ports that a node listens on: one, or those of its worker processes."""

    node: str
    use: str
    first: int
    last: int


@dataclass(frozen=True)
class PortPlan:
    """The ports of one node.

    base: the first port of the cluster, that of the head's GCS.
    number: of the node's set of ports; 0 for the head, 1 and on for the workers that share the network of one machine.
    """

    base: int
    number: int

    @property
    def head(self) -> bool:
        return self.number == 0

    @property
    def first(self) -> int:
        return self.base + self.number * NODE_PORTS

    @property
    def last(self) -> int:
        return self.first + NODE_PORTS - 1

    @property
    def agent(self) -> int:
        """The port of the HTTP API of its dashboard agent."""
        return self.first + AGENT_OFFSET

    @property
    def uses(self) -> Sequence[PortUse]:
        return (*HEAD_USES, *NODE_USES) if self.head else NODE_USES

    def options(self) -> list[str]:
        single = [f"{use.option}={self.first + use.offset}" for use in self.uses if use.option]
        if not self.head:
            span = range(self.first, self.last + 1)
            single += [f"{option}={self.base}" for option, port in HEADS_DEFAULTS.items() if port in span]
        return [*single, f"--min-worker-port={self.first + WORKERS_OFFSET}", f"--max-worker-port={self.last}"]

    def environment(self) -> dict[str, str]:
        """Return the variables that set the ports for which `ray start` has no option."""
        return {use.variable: str(self.first + use.offset) for use in self.uses if use.variable}

    def ranges(self, node: str) -> list[PortRange]:
        single = [PortRange(node, use.name, self.first + use.offset, self.first + use.offset) for use in self.uses]
        return [*single, PortRange(node, "worker processes", self.first + WORKERS_OFFSET, self.last)]


def node_number(node: str, head: bool, host_network: bool, siblings: Sequence[str]) -> int:
    """Return the number of a node's set of ports; in a container network, each node has an address of its own.

    siblings: the workers of its machine, in the order of the inventory.
    """
    if head:
        return 0
    return 1 + siblings.index(node) if host_network else 1


def dashboard_port(base: int) -> int:
    """The port of the dashboard for those who do not set it: the well-known one, unless the base was changed."""
    return DASHBOARD_PORT if base == PORT_BASE else base + DASHBOARD_OFFSET
