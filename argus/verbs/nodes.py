# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus nodes: the nodes of the cluster, and with --json whether they are as expected, and the jobs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..cluster.membership import ExpectedNode, describe_node
from ..cluster.readiness import ClusterState, state_of
from ..common.text import table
from ..jobs.services import OperationError
from ..launcher.admission import NO_STEWARD, registry_path, steward_runs
from ..launcher.bad_nodes import sentences
from ..launcher.identity import node_name
from ..launcher.ray_api import slowness
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
    return state


def shown_nodes(state: ClusterState, width: int | None) -> list[str]:
    """The lines about the nodes that the head knows, without those that have been replaced."""
    latest = {node["node_name"]: node for node in sorted(state.nodes, key=lambda node: node.get("start_time_ms", 0))}
    rows = [
        [
            name,
            "draining" if node.get("draining") else node["state"].lower(),
            describe_node(node["resources_total"]),
            node.get("node_ip"),
        ]
        for name, node in sorted(latest.items())
    ]
    nodes = table(["node", "state", "resources", "address"], rows, width)
    return [nodes, *sentences(state.bad_nodes), *slowness(state.slow)]


@click.command(name="nodes", short_help="Show the nodes of the cluster.")
@common
def command(as_json: bool, **options: Any) -> None:
    """Show the nodes that the head of the cluster knows, with their resources."""
    state = nodes(request_from(NodesRequest, as_json, **options))
    if as_json:
        write_answer(state.to_json())
        return
    if state.problem:
        raise OperationError(state.problem)
    click.echo("\n".join(shown_nodes(state, terminal_width())))
