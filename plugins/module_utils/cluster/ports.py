# SPDX-License-Identifier: GPL-3.0-or-later
"""The ports on which nodes listen, planned from one number for the whole cluster.

Every node has a set of `NODE_PORTS` ports. The head has set 0; the workers of a machine have set 1, 2 and so on. So a
head and workers can share a machine and its address, and moving the head changes no worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Below the ports that the kernel gives to outgoing connections (from 32768 on), below those of Kubernetes' services
# (from 30000 on), and away from exporters of metrics (9100, 9400), Kubernetes (10250) and torch's default (29500).
PORT_BASE = 20000
# The size of the set of ports of each node.
NODE_PORTS = 1000
# The highest first port with which the sets of a head and one worker end below 65536.
HIGHEST_BASE = 65536 - 2 * NODE_PORTS
# Ray's default for the dashboard. It is the dashboard's port unless cluster_port_base was changed.
DASHBOARD_PORT = 8265
DASHBOARD_OFFSET = 4
AGENT_OFFSET = 13
# Ray's defaults for ports that only a head opens. On a worker, `ray start` fails if one of them is in the worker's set.
HEAD_DEFAULT_PORTS = {"--dashboard-port": DASHBOARD_PORT, "--ray-client-server-port": 10001}
# From here on, a set has the ports of worker processes and drivers: Ray starts a process for each CPU of the node, and
# one for each actor. The largest machines have 768 hardware threads.
WORKERS_OFFSET = 20
# What the port of the dashboard is for. It is not part of any node's set.
DASHBOARD_USE = "the dashboard and the Jobs API"


@dataclass(frozen=True)
class PortUse:
    """What a port of a node's set is for."""

    # What listens, in the words of Ray's documentation.
    name: str
    offset: int
    # Who connects, for the documentation.
    clients: str
    # The option of `ray start` that sets the port, or the environment variable; both empty if Ray does not open it.
    option: str = ""
    variable: str = ""


HEAD_USES = (
    PortUse("GCS", 0, "all nodes", "--port"),
    PortUse("metrics of the autoscaler", 1, "Prometheus", variable="AUTOSCALER_METRIC_PORT"),
    PortUse("metrics of the dashboard", 2, "Prometheus", variable="DASHBOARD_METRIC_PORT"),
    # Ray has no way to disable it.
    PortUse("Ray Client", 3, "Ray Client, which the collection does not use", "--ray-client-server-port"),
    # The steward opens it, at DASHBOARD_METRIC_PORT plus 3.
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
    """Ports on which a node listens: a single one, or those of its worker processes."""

    node: str
    use: str
    first: int
    last: int


@dataclass(frozen=True)
class PortPlan:
    """The ports of one node."""

    # The first port of the cluster, cluster_port_base, on which the head's GCS listens.
    base: int
    # The number of the node's set: 0 for the head, from 1 on for the workers that share the network of one machine.
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
        """The port of the HTTP API of the node's dashboard agent."""
        return self.first + AGENT_OFFSET

    @property
    def uses(self) -> Sequence[PortUse]:
        return (*HEAD_USES, *NODE_USES) if self.head else NODE_USES

    def options(self) -> list[str]:
        single = [f"{use.option}={self.first + use.offset}" for use in self.uses if use.option]
        if not self.head:
            span = range(self.first, self.last + 1)
            single += [f"{option}={self.base}" for option, port in HEAD_DEFAULT_PORTS.items() if port in span]
        return [*single, f"--min-worker-port={self.first + WORKERS_OFFSET}", f"--max-worker-port={self.last}"]

    def environment(self) -> dict[str, str]:
        return {use.variable: str(self.first + use.offset) for use in self.uses if use.variable}

    def ranges(self, node: str) -> list[PortRange]:
        single = [PortRange(node, use.name, self.first + use.offset, self.first + use.offset) for use in self.uses]
        return [*single, PortRange(node, "worker processes", self.first + WORKERS_OFFSET, self.last)]


def node_number(node: str, head: bool, host_network: bool, siblings: Sequence[str]) -> int:
    """Return the number of a node's set of ports. In a container network, each worker has set 1 and its own address.

    siblings: the workers of its machine, in the order of the inventory.
    """
    if head:
        return 0
    return 1 + siblings.index(node) if host_network else 1


def dashboard_port(base: int) -> int:
    """Return the default of cluster_dashboard_port: Ray's, unless cluster_port_base was changed."""
    return DASHBOARD_PORT if base == PORT_BASE else base + DASHBOARD_OFFSET
