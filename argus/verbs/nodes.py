# SPDX-License-Identifier: Apache-2.0
"""argus nodes, drain, all_reduce: shows the cluster's nodes, drains a worker, measures the workers' network."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..archive.status import submission_id_of
from ..cluster.membership import ClusterState, ExpectedNode, describe_node, describe_resources, read_cluster_state
from ..common.identity import node_name
from ..common.text import table
from ..fabric.all_reduce import all_reduce
from ..jobs.drain import attempts_by_node, is_alive, record_removal, stop_new_work, wait_until_unused
from ..jobs.services import OperationError
from ..ray import departures
from ..ray.admission import NO_STEWARD, registry_path, steward_runs
from ..ray.api import RayApiError, RayHead, local_head, slowness_lines
from ..ray.departures import loss_sentences
from .request import VerbRequest, common_options, request_from, terminal_width, write_answer


class NodesRequest(VerbRequest):
    # The nodes that the cluster must have to be ready; empty if it may have any.
    expected: list[ExpectedNode] = Field(default_factory=list)
    wait_timeout: float = 0.0  # the seconds to wait for them


def cluster_state(request: NodesRequest) -> ClusterState:
    """The state of the cluster, with a problem if nodes are expected and no steward runs. Raises OperationError."""
    head = request.head()
    if head is None:
        raise OperationError(f"{node_name()} is not the head of its cluster, which alone knows its nodes.")
    state = read_cluster_state(head, request.expected, request.wait_timeout)
    if request.expected and not state.problem and not steward_runs(registry_path()):
        return replace(state, problem=NO_STEWARD)
    if not request.wait_timeout and not state.problem:
        # For people, not for a playbook that waits. If Ray does not answer here, this part is not shown.
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
        for node_id in [str(node["node_id"])]
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
    return [nodes_table, *loss_sentences(state.bad_nodes), *slowness_lines(state.slow)]


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


# argus drain: tells Ray to give a worker no new work, and waits until no job uses it.


class DrainRequest(VerbRequest):
    worker: str
    node_id: str
    wait_timeout: float = 0.0  # seconds
    # The jobs on the worker that the caller knows: return when these change. None: wait until no job uses it.
    held_by: list[str] | None = None
    # Whether the caller will remove the worker even while jobs use it, so that their stewards can say why they ended.
    ends_jobs: bool = False
    check: bool = False


def drain(request: DrainRequest) -> tuple[dict[str, Any], bool]:
    """Drain a worker. Returns the result of wait_until_unused, and whether Ray still gave the worker new work before.

    Raises OperationError.
    """
    head, registry, node_id = local_head(request.address), registry_path(), request.node_id
    try:
        changed = node_id not in departures.draining_nodes(registry) and is_alive(head, node_id)
        if changed and not request.check:
            stop_new_work(node_id, registry)
            departures.forget_losses(registry, request.worker)
            departures.forget_all_draining_but(frozenset(node["node_id"] for node in head.nodes()), registry)
        if request.ends_jobs and not request.check:
            record_removal(head, node_id, request.worker, registry)
        timeout = 0 if request.check else request.wait_timeout
        return wait_until_unused(head, node_id, timeout, request.held_by), changed
    except (RayApiError, OSError) as error:
        raise OperationError(f"the node still gets new work, or its jobs are unknown: {error}") from error


@click.command(name="drain", hidden=True)
@common_options
def drain_command(as_json: bool, **options: Any) -> None:
    """Let a worker get no new work, as drain.yml does."""
    drained, changed = drain(request_from(DrainRequest, as_json, **options))
    write_answer(drained, changed=changed)


# argus all_reduce: measures an all-reduce over the workers of the running cluster, for preflight.


class AllReduceRequest(VerbRequest):
    workers: list[str]
    # All modules send it; this verb never changes anything.
    check: bool = False


@click.command(name="all_reduce", hidden=True)
@common_options
def all_reduce_command(as_json: bool, **options: Any) -> None:
    """Measure an all-reduce over all workers, and name the one that fails or is slow, as preflight does."""
    request = request_from(AllReduceRequest, as_json, **options)
    write_answer(all_reduce(request.workers))
