# SPDX-License-Identifier: Apache-2.0
"""Membership and readiness: the nodes that the inventory expects, and the nodes that Ray reports."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from ..archive.status import ENDED
from ..common.text import printable
from ..ray.admission import registry_path
from ..ray.api import ALIVE, PATIENCE_SECONDS, RayApiError, RayHead, listed_twice
from ..ray.departures import bad_nodes

# Membership: the nodes that the inventory expects, compared with the nodes that Ray reports.


class NodeState(StrEnum):
    """ALIVE is alive with the resources that are expected, DIFFERS with others, DRAINING gets no new work."""

    ALIVE = "alive"
    DRAINING = "draining"
    DIFFERS = "differs"
    MISSING = "missing"


@dataclass(frozen=True)
class ExpectedNode:
    """A node of a ready cluster.

    cpus: None where Ray counts them itself.
    since: seconds since the epoch; a node that started earlier does not count. None accepts any start.
    absent: why this run cannot start the node, so that it is not waited for.
    """

    name: str
    head: bool = False
    cpus: float | None = None
    gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    since: float | None = None
    absent: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> ExpectedNode:
        # Ansible's lazy containers cannot be copied, which asdict() does with the types that it finds.
        return cls(**{**node, "resources": dict(node["resources"])})


@dataclass(frozen=True)
class NodeRow:
    name: str
    expected: str
    seen: str
    state: NodeState

    def to_json(self) -> list[str]:
        return [self.name, self.expected, self.seen, self.state.value]

    @classmethod
    def from_json(cls, row: Sequence[str]) -> NodeRow:
        name, expected, seen, state = row
        return cls(name, expected, seen, NodeState(str(state)))


@dataclass(frozen=True)
class Membership:
    """absent: the names of the nodes that are known not to come."""

    rows: tuple[NodeRow, ...]
    absent: frozenset[str] = frozenset()
    # Without the head, no other node can join.
    headless: bool = False

    @property
    def missing(self) -> list[str]:
        """The names of the nodes that are not alive, or not as expected."""
        return [row.name for row in self.rows if row.state in (NodeState.MISSING, NodeState.DIFFERS)]

    @property
    def awaited(self) -> list[str]:
        """Those of the missing nodes that may still come."""
        return [] if self.headless else [name for name in self.missing if name not in self.absent]

    @property
    def complete(self) -> bool:
        return not self.missing


# What is known of a node that does not count, unless its machine tells more.
DEAD, NEVER, UNKNOWN = "dead", "never joined", "unknown, the head does not answer"


def describe_resources(cpus: float | None, gpus: float, resources: Mapping[str, float]) -> str:
    parts = [] if cpus is None else [f"CPU {cpus:g}"]
    parts.append(f"GPU {gpus:g}")
    parts += [f"{name} {amount:g}" for name, amount in sorted(resources.items())]
    return ", ".join(parts)


def membership(expected: Sequence[ExpectedNode], answer: Sequence[Mapping[str, Any]] | None) -> Membership:
    """Compare the expected nodes with those of `RayHead.nodes()`, or with nothing if the head did not answer.

    A node that died and came back is listed twice, and Ray reports the dead one as alive for a while: only a
    node that started after `since` counts. It is not ready before Ray has noticed, because Ray would start processes of
    jobs on the dead one.
    """
    since, nodes = {want.name: (want.since or 0) * 1000 for want in expected}, answer or ()
    alive = {
        node["node_name"]: node
        for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0))
        if node["state"] == ALIVE and node.get("start_time_ms", 0) >= since.get(node["node_name"], 0)
    }
    last = {node["node_name"]: DEAD for node in nodes}
    other, twice = UNKNOWN if answer is None else NEVER, listed_twice(nodes)
    return Membership(
        rows=tuple(
            _row(want, alive.get(want.name), last.get(want.name, other), want.name in twice) for want in expected
        ),
        absent=frozenset(want.name for want in expected if want.absent),
        headless=any(want.head and want.absent and want.name not in alive for want in expected),
    )


def _row(want: ExpectedNode, node: Mapping[str, Any] | None, otherwise: str, twice: bool) -> NodeRow:
    # A node that could not be planned has no known resources.
    is_planned = not want.absent or want.cpus is not None or want.gpus > 0
    wanted = describe_resources(want.cpus, want.gpus, want.resources) if is_planned else ""
    if node is None:
        return NodeRow(want.name, wanted, want.absent or otherwise, NodeState.MISSING)
    total = node["resources_total"]
    alive = NodeState.DRAINING if node.get("draining") else NodeState.ALIVE
    if want.absent:
        # This run could not look at it, or not start it anew, and Ray has it nevertheless.
        return NodeRow(want.name, wanted, describe_node(total), alive)
    if twice:
        return NodeRow(want.name, wanted, "joined, but Ray still lists the one that died", NodeState.DIFFERS)
    cpus = None if want.cpus is None else total.get("CPU", 0)
    custom = {key: total.get(key, 0) for key in want.resources}
    seen = describe_resources(cpus, total.get("GPU", 0), custom)
    fits = seen == wanted and bool(node["is_head_node"]) == want.head
    return NodeRow(want.name, wanted, seen, alive if fits else NodeState.DIFFERS)


# Resources that Ray gives every node by itself.
OF_EVERY_NODE = ("CPU", "GPU", "memory", "object_store_memory")


def describe_node(total: Mapping[str, float]) -> str:
    """The resources of a node of which nothing is expected."""
    custom = {key: amount for key, amount in total.items() if key not in OF_EVERY_NODE and not key.startswith("node:")}
    return describe_resources(total.get("CPU", 0), total.get("GPU", 0), custom)


@dataclass(frozen=True)
class Stranger:
    """A node that is alive in Ray and not in the inventory: jobs run on it, and no playbook looks after it."""

    name: str
    address: str
    resources: str

    def describe(self) -> str:
        where = self.address or "an unknown address"
        return printable(f"{self.name} at {where} ({self.resources})", lines=False)


def strangers(nodes: Sequence[Mapping[str, Any]], inventory_nodes: Collection[str]) -> list[Stranger]:
    found = {
        node["node_name"]: Stranger(
            node["node_name"], str(node.get("node_ip") or ""), describe_node(node["resources_total"])
        )
        for node in nodes
        if node["state"] == ALIVE and node["node_name"] not in inventory_nodes
    }
    return list(found.values())


# Readiness: wait until every expected node is alive, except those that are known not to come.

POLL_SECONDS = 0.2
# HTTP without a token, and with a wrong one.
REFUSALS = (401, 403)


@dataclass(frozen=True)
class ClusterState:
    """What a head says of its cluster; the documentation of the module ray_cluster_info has the fields.

    problem: why the head did not answer the last time, or "".
    """

    membership: Membership
    problem: str = ""
    nodes: Sequence[Mapping[str, Any]] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    bad_nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    slow: float = 0.0

    def to_json(self) -> dict[str, Any]:
        membership = self.membership
        return {
            "complete": membership.complete and not self.problem,
            "missing": membership.missing,
            "awaited": membership.awaited,
            "rows": [row.to_json() for row in membership.rows],
            "problem": self.problem,
            "nodes": list(self.nodes),
            "jobs": list(self.jobs),
            "bad_nodes": dict(self.bad_nodes),
            "slow": round(self.slow, 1),
        }


def unanswered(expected: Sequence[ExpectedNode], problem: str) -> ClusterState:
    """The state of a cluster whose head does not answer."""
    return ClusterState(membership(expected, None), problem)


def wait_until_ready(
    head: RayHead,
    expected: Sequence[ExpectedNode],
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ClusterState:
    """Ask the head until no node is awaited any more, or for `timeout` seconds; at least once."""
    start = clock()
    while True:
        try:
            nodes = head.nodes()
            state = ClusterState(membership(expected, nodes), nodes=nodes)
        except RayApiError as error:
            state = unanswered(expected, str(error))
        if not state.membership.awaited or clock() - start >= timeout:
            return state
        sleep(POLL_SECONDS)


def state_of(head: RayHead, expected: Sequence[ExpectedNode], timeout: float) -> ClusterState:
    """The state of a cluster after at most `timeout` seconds, with the jobs that have not ended."""
    # Waiting is patient already.
    head.patience = 0 if timeout else PATIENCE_SECONDS
    state = wait_until_ready(head, expected, timeout)
    # A head whose nodes have just started may need long for its first answer about jobs.
    head.patience = PATIENCE_SECONDS
    if not state.problem:
        try:
            jobs = [
                {name: job[name] for name in ("submission_id", "status")}
                for job in head.jobs()
                if job["status"] not in ENDED
            ]
            state = replace(state, jobs=jobs, problem=exposure(head.address) if expected else "")
        except RayApiError as error:
            state = replace(state, problem=str(error))
    return replace(state, slow=head.slow, bad_nodes=bad_nodes(registry_path(), time.time()))


def exposure(address: str) -> str:
    """How a head answers who has no token; "" if it refuses, or if it does not answer at all."""
    try:
        RayHead(address, patience=PATIENCE_SECONDS).get("/api/jobs/")
    except RayApiError as error:
        if error.status in REFUSALS or error.status is None:
            return ""
    return (
        f"{address} does not refuse requests without the cluster's token: everyone who reaches it runs code there. "
        "Remove the cluster (cluster_down.yml), and check that Ray in its image is 2.52 or later"
    )
