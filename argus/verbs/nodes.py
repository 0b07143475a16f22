# SPDX-License-Identifier: GPL-3.0-or-later
"""argus nodes: the nodes of the cluster, what is free on them, and their jobs; with --json also what is missing."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..archive.status import submission_id_of
from ..cluster.membership import ExpectedNode, describe_node, describe_resources
from ..cluster.readiness import ClusterState, state_of
from ..common.identity import node_name
from ..common.text import table
from ..jobs.drain import attempts_by_node
from ..jobs.services import OperationError
from ..ray.admission import NO_STEWARD, registry_path, steward_runs
from ..ray.api import RayApiError, RayHead, slowness
from ..ray.bad_nodes import sentences
from .request import Request, common, request_from, terminal_width, write_answer


class NodesRequest(Request):
    """The options of `nodes`.

    expected: the nodes of the ready cluster. wait_timeout: how many seconds to wait for them.
    """

    expected: list[ExpectedNode] = Field(default_factory=list)
    wait_timeout: float = 0.0


def nodes(request: NodesRequest) -> ClusterState:
    head = request.head()
    if head is None:
        raise OperationError(f"{node_name()} is not the head of its cluster, which alone knows its nodes.")
    state = state_of(head, request.expected, request.wait_timeout)
    if request.expected and not state.problem and not steward_runs(registry_path()):
        return replace(state, problem=NO_STEWARD)
    if not request.wait_timeout and not state.problem:
        # Without it, the nodes are there all the same.
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            state = replace(state, nodes=with_use(head, state.nodes))
    return state


def with_use(head: RayHead, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes with their jobs, and with what Ray counted as free on them, at most some seconds ago."""
    free = {worker.node_id: worker for worker in head.capacity(since=1)}
    attempts = attempts_by_node(head)
    return [
        {
            **node,
            "free": describe_resources(free[node_id].free_cpus, free[node_id].free_gpus, {}) if node_id in free else "",
            "jobs": sorted({*map(submission_id_of, attempts.get(node_id, ()))}),
        }
        for node in nodes
        if (node_id := str(node["node_id"]))
    ]


def shown_nodes(state: ClusterState, width: int | None) -> list[str]:
    """The lines about the nodes that the head knows, without those that have been replaced."""
    latest = {node["node_name"]: node for node in sorted(state.nodes, key=lambda node: node.get("start_time_ms", 0))}
    rows = [
        [
            name,
            "draining" if node.get("draining") else node["state"].lower(),
            describe_node(node["resources_total"]),
            node.get("free") or None,
            ", ".join(node.get("jobs", ())) or None,
            node.get("node_ip"),
        ]
        for name, node in sorted(latest.items())
    ]
    nodes = table(["node", "state", "resources", "free", "jobs", "address"], rows, width)
    return [nodes, *sentences(state.bad_nodes), *slowness(state.slow)]


@click.command(name="nodes", short_help="Show the nodes of the cluster.")
@common
def command(as_json: bool, **options: Any) -> None:
    """Show the nodes that the head of the cluster knows, with what is free on them, and their jobs."""
    state = nodes(request_from(NodesRequest, as_json, **options))
    if as_json:
        write_answer(state.to_json())
        return
    if state.problem:
        raise OperationError(state.problem)
    click.echo("\n".join(shown_nodes(state, terminal_width())))
