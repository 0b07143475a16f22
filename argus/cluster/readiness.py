# SPDX-License-Identifier: GPL-3.0-or-later
"""Readiness: wait until every expected node is alive, except those that are known not to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..archive.status import ENDED
from ..ray.admission import registry_path
from ..ray.api import PATIENCE_SECONDS, RayApiError, RayHead
from ..ray.bad_nodes import bad_nodes
from .membership import ExpectedNode, Membership, membership

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
