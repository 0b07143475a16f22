# SPDX-License-Identifier: Apache-2.0
"""argus nodes: the nodes of the cluster with their free resources and jobs; with --json also the missing nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..archive.status import submission_id_of
from ..cluster.membership import ExpectedNode, describe_node, describe_resources
from ..cluster.readiness import ClusterState, read_cluster_state
from ..common.identity import node_name
from ..common.text import table
from ..jobs.drain import attempts_by_node
from ..jobs.services import OperationError
from ..ray.admission import NO_STEWARD, registry_path, steward_runs
from ..ray.api import RayApiError, RayHead, slowness
from ..ray.departures import loss_sentences
from .request import VerbRequest, common_options, request_from, terminal_width, write_answer


class NodesRequest(VerbRequest):
    """The options of `nodes`."""

    # The nodes of the ready cluster; empty to compare with nothing.
    expected: list[ExpectedNode] = Field(default_factory=list)
    # For how many seconds to wait for these nodes.
    wait_timeout: float = 0.0


def cluster_state(request: NodesRequest) -> ClusterState:
    """The state of the cluster, with a problem if nodes are expected and no steward runs. Raises OperationError."""
    head = request.head()
    if head is None:
        raise OperationError(f"{node_name()} is not the head of its cluster, which alone knows its nodes.")
    state = read_cluster_state(head, request.expected, request.wait_timeout)
    if request.expected and not state.problem and not steward_runs(registry_path()):
        return replace(state, problem=NO_STEWARD)
    if not request.wait_timeout and not state.problem:
        # If Ray does not answer here, the nodes are shown without free resources and jobs.
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            state = replace(state, nodes=with_free_and_jobs(head, state.nodes))
    return state


def with_free_and_jobs(head: RayHead, nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes with their jobs, and with the resources that Ray counted as free some seconds ago."""
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


def state_lines(state: ClusterState, width: int | None) -> list[str]:
    """The table of the nodes that the head knows, and notes on lost nodes and a slow head.

    Of several nodes with the same name, only the latest is shown.
    """
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
    nodes_table = table(["node", "state", "resources", "free", "jobs", "address"], rows, width)
    return [nodes_table, *loss_sentences(state.bad_nodes), *slowness(state.slow)]


@click.command(name="nodes", short_help="Show the nodes of the cluster.")
@common_options
def nodes_command(as_json: bool, **options: Any) -> None:
    """Show the nodes that the head of the cluster knows, with what is free on them, and their jobs."""
    state = cluster_state(request_from(NodesRequest, as_json, **options))
    if as_json:
        write_answer(state.to_json())
        return
    if state.problem:
        raise OperationError(state.problem)
    click.echo("\n".join(state_lines(state, terminal_width())))
