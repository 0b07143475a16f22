# SPDX-License-Identifier: Apache-2.0
"""argus nodes, drain, all_reduce: the nodes of the cluster, one that gets no new work, and their network."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..archive.status import submission_id_of
from ..cluster.membership import ClusterState, ExpectedNode, describe_node, describe_resources, state_of
from ..common.identity import node_name
from ..common.text import table
from ..fabric.all_reduce import all_reduce
from ..jobs.nodes import attempts_by_node, is_alive, remember_end, stop_new_work, wait_while_held
from ..jobs.services import OperationError
from ..ray import departures
from ..ray.admission import NO_STEWARD, registry_path, steward_runs
from ..ray.api import RayApiError, RayHead, local_head, slowness_lines
from ..ray.departures import loss_sentences
from .request import VerbRequest, common, request_from, terminal_width, write_answer

# argus nodes: the nodes of the cluster, their free resources and jobs; with --json also the missing nodes.


class NodesRequest(VerbRequest):
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
        # Without the use, the nodes are still shown.
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
    return [nodes, *loss_sentences(state.bad_nodes), *slowness_lines(state.slow)]


@click.command(name="nodes", short_help="Show the nodes of the cluster.")
@common
def nodes_command(as_json: bool, **options: Any) -> None:
    """Show the nodes that the head of the cluster knows, with what is free on them, and their jobs."""
    state = nodes(request_from(NodesRequest, as_json, **options))
    if as_json:
        write_answer(state.to_json())
        return
    if state.problem:
        raise OperationError(state.problem)
    click.echo("\n".join(shown_nodes(state, terminal_width())))


# argus drain: a worker gets no new work.
#
# Only for drain.yml, which keeps the worker's machine from starting it again: it would be a new one, which gets work.


class DrainRequest(VerbRequest):
    """The options of `drain`.

    worker, node_id: its name, and Ray's id of it. wait_timeout: how many seconds to wait for its jobs.
    held_by: wait no longer when other jobs than these use it; None: wait until none does.
    ends_jobs: it is removed although jobs use it. check: change nothing, and wait for nothing.
    """

    worker: str
    node_id: str
    wait_timeout: float = 0.0
    held_by: list[str] | None = None
    ends_jobs: bool = False
    check: bool = False


def drain(request: DrainRequest) -> tuple[dict[str, Any], bool]:
    """The jobs that use a worker, and whether it gets no new work only since now. Raises OperationError."""
    head, registry, node_id = local_head(request.address), registry_path(), request.node_id
    try:
        changed = node_id not in departures.draining_nodes(registry) and is_alive(head, node_id)
        if changed and not request.check:
            stop_new_work(node_id, registry)
            departures.forget_losses(registry, request.worker)
            departures.forget_all_draining_but(frozenset(node["node_id"] for node in head.nodes()), registry)
        if request.ends_jobs and not request.check:
            remember_end(head, node_id, request.worker, registry)
        return wait_while_held(head, node_id, 0 if request.check else request.wait_timeout, request.held_by), changed
    except (RayApiError, OSError) as error:
        raise OperationError(f"the node still gets new work, or its jobs are unknown: {error}") from error


@click.command(name="drain", hidden=True)
@common
def drain_command(as_json: bool, **options: Any) -> None:
    """Let a worker get no new work, as drain.yml does."""
    drained, changed = drain(request_from(DrainRequest, as_json, **options))
    write_answer(drained, changed=changed)


# argus all_reduce: for preflight, an all-reduce over the workers of the running cluster.


class AllReduceRequest(VerbRequest):
    """The options of `all_reduce`, which changes nothing.

    workers: the names of all of them.
    """

    workers: list[str]
    check: bool = False


@click.command(name="all_reduce", hidden=True)
@common
def all_reduce_command(as_json: bool, **options: Any) -> None:
    """Measure an all-reduce over all workers, and name the one that fails or is slow, as preflight does."""
    request = request_from(AllReduceRequest, as_json, **options)
    write_answer(all_reduce(request.workers))
