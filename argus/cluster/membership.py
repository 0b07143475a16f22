# SPDX-License-Identifier: Apache-2.0
"""Compares the nodes that the inventory expects with those that Ray reports, and waits until a cluster is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from ..archive.status import ENDED
from ..common.text import printable
from ..ray.admission import registry_path
from ..ray.api import SECOND_ATTEMPT_TIMEOUT_SECONDS, RayApiError, RayHead
from ..ray.departures import bad_nodes
from ..ray.records import ALIVE, duplicate_names

# The descriptions of nodes that Ray does not list as alive.
DEAD, NEVER_JOINED, UNKNOWN = "dead", "never joined", "unknown, the head does not answer"
# The resources that Ray adds to every node.
RAY_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
POLL_INTERVAL_SECONDS = 0.2
REFUSAL_STATUSES = (401, 403)


class NodeState(StrEnum):
    ALIVE = "alive"
    DRAINING = "draining"
    DIFFERS = "differs"
    MISSING = "missing"


@dataclass(frozen=True)
class ExpectedNode:
    """A node that a ready cluster has."""

    name: str
    head: bool = False
    # None where Ray counts the CPUs itself.
    cpus: float | None = None
    gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    # In seconds since the epoch: a node that started earlier does not count. None accepts any start.
    since: float | None = None
    # Why this run cannot start the node, so that it is not waited for; empty if it can.
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
    # The expected resources, and those of Ray or why Ray does not have the node.
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
    rows: tuple[NodeRow, ...]
    absent: frozenset[str] = frozenset()
    # Whether the head is known not to come, without which no other node can join.
    headless: bool = False

    @property
    def missing(self) -> list[str]:
        """The names of the nodes that are not alive, or not as expected."""
        return [row.name for row in self.rows if row.state in (NodeState.MISSING, NodeState.DIFFERS)]

    @property
    def awaited(self) -> list[str]:
        """The missing nodes that may still join."""
        return [] if self.headless else [name for name in self.missing if name not in self.absent]

    @property
    def complete(self) -> bool:
        return not self.missing


def describe_resources(cpus: float | None, gpus: float, resources: Mapping[str, float]) -> str:
    """``CPU 8, GPU 2, disk 1``; without CPUs if these are None."""
    parts = [] if cpus is None else [f"CPU {cpus:g}"]
    parts.append(f"GPU {gpus:g}")
    parts += [f"{name} {amount:g}" for name, amount in sorted(resources.items())]
    return ", ".join(parts)


def compare_nodes(expected: Sequence[ExpectedNode], answer: Sequence[Mapping[str, Any]] | None) -> Membership:
    """Compare the expected nodes with those of `RayHead.nodes()`. answer: None if the head did not answer.

    Ray lists a node twice that died and came back, and for a while it reports the dead one as alive. So only a node
    that started after `since` counts, and it is not ready before Ray has noticed the death: until then, Ray would start
    processes of jobs on the dead one.
    """
    since, nodes = {node.name: (node.since or 0) * 1000 for node in expected}, answer or ()
    alive = {
        node["node_name"]: node
        for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0))
        if node["state"] == ALIVE and node.get("start_time_ms", 0) >= since.get(node["node_name"], 0)
    }
    descriptions = {node["node_name"]: DEAD for node in nodes}
    default, listed_twice = UNKNOWN if answer is None else NEVER_JOINED, duplicate_names(nodes)
    return Membership(
        rows=tuple(
            _row(node, alive.get(node.name), descriptions.get(node.name, default), node.name in listed_twice)
            for node in expected
        ),
        absent=frozenset(node.name for node in expected if node.absent),
        headless=any(node.head and node.absent and node.name not in alive for node in expected),
    )


def _row(expected: ExpectedNode, node: Mapping[str, Any] | None, missing_text: str, is_listed_twice: bool) -> NodeRow:
    """The row of an expected node. node: its entry of RayHead.nodes(); None if Ray has no such node that counts."""
    # A node that could not be planned has no known resources.
    is_planned = not expected.absent or expected.cpus is not None or expected.gpus > 0
    resources = describe_resources(expected.cpus, expected.gpus, expected.resources) if is_planned else ""
    if node is None:
        return NodeRow(expected.name, resources, expected.absent or missing_text, NodeState.MISSING)
    total = node["resources_total"]
    alive = NodeState.DRAINING if node.get("draining") else NodeState.ALIVE
    if expected.absent:
        # This run could not inspect or restart the node, but Ray has it.
        return NodeRow(expected.name, resources, describe_node(total), alive)
    if is_listed_twice:
        return NodeRow(expected.name, resources, "joined, but Ray still lists the one that died", NodeState.DIFFERS)
    cpus = None if expected.cpus is None else total.get("CPU", 0)
    custom = {key: total.get(key, 0) for key in expected.resources}
    seen = describe_resources(cpus, total.get("GPU", 0), custom)
    fits = seen == resources and bool(node["is_head_node"]) == expected.head
    return NodeRow(expected.name, resources, seen, alive if fits else NodeState.DIFFERS)


def describe_node(total: Mapping[str, float]) -> str:
    """The CPUs, GPUs and custom resources of a node. total: all resources that Ray counts on it."""
    custom = {key: amount for key, amount in total.items() if key not in RAY_RESOURCES and not key.startswith("node:")}
    return describe_resources(total.get("CPU", 0), total.get("GPU", 0), custom)


@dataclass(frozen=True)
class UnlistedNode:
    """A node that is alive in Ray and not in the inventory: jobs run on it, and no playbook looks after it."""

    name: str
    address: str
    resources: str

    def describe(self) -> str:
        where = self.address or "an unknown address"
        return printable(f"{self.name} at {where} ({self.resources})", lines=False)


def unlisted_nodes(nodes: Sequence[Mapping[str, Any]], inventory_nodes: Collection[str]) -> list[UnlistedNode]:
    """The nodes of RayHead.nodes() that are alive and have none of the names of the inventory."""
    nodes_by_name = {
        node["node_name"]: UnlistedNode(
            node["node_name"], str(node.get("node_ip") or ""), describe_node(node["resources_total"])
        )
        for node in nodes
        if node["state"] == ALIVE and node["node_name"] not in inventory_nodes
    }
    return list(nodes_by_name.values())


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster as its head reports it; the module ray_cluster_info returns it."""

    membership: Membership
    # Why the head did not answer the last time, or what is wrong with it; empty if nothing is.
    problem: str = ""
    # The nodes of RayHead.nodes(), and the jobs that have not ended.
    nodes: Sequence[Mapping[str, Any]] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    bad_nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # The longest wait for an answer of a slow head, in seconds; 0 for a fast one.
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


def unanswered_state(expected: Sequence[ExpectedNode], problem: str) -> ClusterState:
    """The state of a cluster whose head does not answer."""
    return ClusterState(compare_nodes(expected, None), problem)


def wait_until_ready(
    head: RayHead,
    expected: Sequence[ExpectedNode],
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> ClusterState:
    """Ask the head until no node is awaited any more, for at most `timeout` seconds; return the last state."""
    start = clock()
    while True:
        try:
            nodes = head.nodes()
            state = ClusterState(compare_nodes(expected, nodes), nodes=nodes)
        except RayApiError as error:
            state = unanswered_state(expected, str(error))
        if not state.membership.awaited or clock() - start >= timeout:
            return state
        sleep(POLL_INTERVAL_SECONDS)


def read_cluster_state(head: RayHead, expected: Sequence[ExpectedNode], timeout: float) -> ClusterState:
    """The state of a cluster, with the jobs that have not ended, after waiting for at most `timeout` seconds."""
    # While this call waits, it asks the head again and again: a request needs no second attempt.
    head.patience = 0 if timeout else SECOND_ATTEMPT_TIMEOUT_SECONDS
    state = wait_until_ready(head, expected, timeout)
    # A head whose nodes have just started may need long for its first answer about jobs.
    head.patience = SECOND_ATTEMPT_TIMEOUT_SECONDS
    if not state.problem:
        try:
            jobs = [
                {name: job[name] for name in ("submission_id", "status")}
                for job in head.jobs()
                if job["status"] not in ENDED
            ]
            state = replace(state, jobs=jobs, problem=exposure_problem(head.address) if expected else "")
        except RayApiError as error:
            state = replace(state, problem=str(error))
    return replace(state, slow=head.slow_seconds, bad_nodes=bad_nodes(registry_path(), time.time()))


def exposure_problem(address: str) -> str:
    """The problem of a head that answers requests without a token; "" if it refuses them or does not answer."""
    try:
        RayHead(address, patience=SECOND_ATTEMPT_TIMEOUT_SECONDS).get("/api/jobs/")
    except RayApiError as error:
        if error.status in REFUSAL_STATUSES or error.status is None:
            return ""
    return (
        f"{address} does not refuse requests without the cluster's token: everyone who reaches it runs code there. "
        "Remove the cluster (cluster_down.yml), and check that Ray in its image is 2.52 or later"
    )
