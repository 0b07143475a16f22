# SPDX-License-Identifier: Apache-2.0
"""Waits until a cluster is ready: every expected node is alive, except those that are known not to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..archive.status import ENDED
from ..ray.admission import registry_path
from ..ray.api import SECOND_ATTEMPT_TIMEOUT_SECONDS, RayApiError, RayHead
from ..ray.departures import bad_nodes
from .membership import ExpectedNode, Membership, compare_nodes

POLL_INTERVAL_SECONDS = 0.2
# The HTTP statuses for a missing token and for a wrong one.
REFUSAL_STATUSES = (401, 403)


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster as its head reports it; the module ray_cluster_info returns it."""

    # The expected nodes, compared with those of Ray.
    membership: Membership
    # Why the head did not answer the last time, or what is wrong with it; empty if nothing is.
    problem: str = ""
    # The nodes of RayHead.nodes(), and the jobs that have not ended.
    nodes: Sequence[Mapping[str, Any]] = ()
    jobs: Sequence[Mapping[str, Any]] = ()
    # The nodes that several jobs have lost, with the ids of these jobs.
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
    return replace(state, slow=head.slow, bad_nodes=bad_nodes(registry_path(), time.time()))


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
