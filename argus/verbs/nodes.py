# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus nodes: the nodes of the cluster, and with --json whether they are as expected, and the jobs on them."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import click
from pydantic import Field

from ..cluster.membership import ExpectedNode, describe_node
from ..cluster.readiness import ClusterState, state_of
from ..common.findings import WARNING, Finding
from ..common.shared_root import JOBS
from ..common.text import table
from ..jobs.registry import Registry
from ..jobs.services import OperationError
from ..jobs.unattended import unattended
from ..launcher.archive import SILENT_SECONDS
from ..launcher.identity import cluster_name, node_name
from ..launcher.ray_api import slowness
from ..launcher.reading import UnreadableError
from .request import Request, common, request_from, terminal_width, write_answer


class NodesRequest(Request):
    """The options of `nodes`.

    expected: the nodes of the ready cluster. wait_timeout: how many seconds to wait for them.
    """

    expected: list[ExpectedNode] = Field(default_factory=list)
    wait_timeout: float = 0.0


def nodes(request: NodesRequest) -> tuple[ClusterState, list[Finding]]:
    """The state of the cluster. Raises OperationError."""
    head = request.head()
    if head is None:
        raise OperationError(f"{node_name()} is not the head of its cluster, which alone knows its nodes.")
    state = state_of(head, request.expected, request.wait_timeout)
    if not request.expected:
        return state, []
    # A steward from before this head is gone.
    started = max((node.since or 0 for node in request.expected if node.head), default=0)
    oldest, registered = max(started, time.time() - SILENT_SECONDS), set(Registry().ids())
    try:
        lost, unknown = unattended(request.root / JOBS, registered, node_name(), oldest, cluster_name())
    except (OSError, UnreadableError) as error:
        # It must not fail a cluster.
        return state, [Finding("jobs", f"The jobs in {request.root} were not checked: {error}", "", WARNING)]
    return replace(state, unattended=lost, unknown=unknown), []


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
    return [table(["node", "state", "resources", "address"], rows, width), *slowness(state.slow)]


@click.command(name="nodes", short_help="Show the nodes of the cluster.")
@common
def command(as_json: bool, **options: Any) -> None:
    """Show the nodes that the head of the cluster knows, with their resources."""
    state, findings = nodes(request_from(NodesRequest, as_json, **options))
    if as_json:
        write_answer(state.to_json(), findings)
        return
    if state.problem:
        raise OperationError(state.problem)
    click.echo("\n".join(shown_nodes(state, terminal_width())))
