# SPDX-License-Identifier: GPL-3.0-or-later
"""The report that ray_cluster_info shows: a table of the nodes, and why some are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import PurePosixPath
from typing import Any

from ...module_utils.argus.cluster.membership import NodeRow, NodeState, unlisted_nodes
from ...module_utils.argus.ray.api import slowness_lines
from ...module_utils.argus.ray.departures import loss_sentences
from ...module_utils.argus.ray.records import ALIVE
from ...module_utils.cluster.engine import DOCKER, PODMAN
from ..plan.actions import ActionKind, PlannedNode
from ..plan.drain import ODD_NAME_REMEDY, drain_command, is_plain
from .presence import needed_workers_count

# The last lines of a missing node's log. With more, several nodes would not fit on one screen.
LOG_LINES = 15


@dataclass(frozen=True)
class ClusterInfo:
    """The return values of ray_cluster_info that the report needs; the module documents them."""

    complete: bool
    missing: Sequence[str]
    rows: Sequence[NodeRow]
    waited: float
    problem: str
    # How many seconds the head needed to answer, if it did not answer the first attempt; else 0.
    slow: float = 0.0
    # Rows of Ray's state API, one for each node that it knows.
    nodes: Sequence[Mapping[str, Any]] = ()
    # The nodes that several jobs lost lately, with the ids of these jobs.
    bad_nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> ClusterInfo:
        values = {attribute.name: answer[attribute.name] for attribute in fields(cls) if attribute.name in answer}
        return cls(**{**values, "rows": [NodeRow.from_json(row) for row in answer["rows"]]})


@dataclass(frozen=True)
class Scope:
    """The cluster of a report, and its inventory."""

    name: str
    dashboard: str
    inventory_nodes: Sequence[str]
    # The node of the inventory that is the head.
    heads: Sequence[str]
    # The nodes of the inventory that --limit leaves out.
    outside: Sequence[str] = ()
    # cluster_min_workers: how many workers are enough; None for all.
    min_workers: int | None = None


def cluster_report(
    cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]], scope: Scope
) -> dict[str, Any]:
    """The arguments of print_report(): the table of nodes, and the ends of the logs of missing nodes.

    plans, logs: by node; a node outside this run has none.
    """
    whole = cluster.complete
    rows = []
    # While nodes are awaited, the head does not tell what is in use on the others.
    use = {str(node["node_name"]): node for node in cluster.nodes if node.get("state") == ALIVE and "jobs" in node}
    for row in cluster.rows:
        plan = plans.get(row.name)
        # In a ready cluster, the resources as expected and as seen are the same.
        resources = [row.seen] if whole else [row.expected or None, row.seen]
        decided = [plan.accelerator, plan.action.value] if plan else [None, None]
        if use:
            node = use.get(row.name, {})
            resources += [node.get("free") or None, ", ".join(node.get("jobs", ())) or None]
        rows.append([row.name, row.state.value, *resources, *decided])
    columns = [*(["resources"] if whole else ["expected", "seen"]), *(["free", "jobs"] if use else [])]
    ready = whole or is_enough(cluster, scope)
    fewer = ready and not whole
    outside = f", {len(scope.outside)} not in this run" if scope.outside else ""
    return {
        "title": f"Cluster {scope.name}: {len(rows) - len(cluster.missing)} of {len(rows)} nodes as expected{outside}",
        "header": ["node", "state", *columns, "accelerator", "action"],
        "rows": rows,
        "text": [
            *slowness_lines(cluster.slow),
            *([] if whole else _problem_lines(cluster, logs, scope.heads)),
            *_notes(cluster, scope),
            *([f"Goes on with fewer workers: cluster_min_workers is {scope.min_workers}"] if fewer else []),
            *([f"Dashboard: {scope.dashboard}"] if ready else []),
        ],
        "failure_text": "" if ready else _failure_text(cluster, plans, logs),
    }


def is_enough(cluster: ClusterInfo, scope: Scope) -> bool:
    """Whether the head and as many workers as asked for are as expected."""
    if scope.min_workers is None or cluster.problem or any(name in scope.heads for name in cluster.missing):
        return False
    workers = [row.name for row in cluster.rows if row.name not in scope.heads]
    return sum(name not in cluster.missing for name in workers) >= needed_workers_count(workers, scope.min_workers)


def _notes(cluster: ClusterInfo, scope: Scope) -> list[str]:
    """Lines about nodes that are not missing: unlisted, bad or draining ones."""
    text = [
        f"{stranger.describe()} is not in the inventory, and takes jobs. "
        f"{f'To take it out: {drain_command(stranger.name)}' if is_plain(stranger.name) else ODD_NAME_REMEDY}"
        for stranger in unlisted_nodes(cluster.nodes, scope.inventory_nodes)
    ]
    text += loss_sentences(cluster.bad_nodes)
    draining = [row.name for row in cluster.rows if row.state == NodeState.DRAINING]
    if draining:
        text.append(
            f"{', '.join(draining)}: no new work. To take it back, run drain.yml, which removes it, then cluster_up.yml"
        )
    return text


def _problem_lines(cluster: ClusterInfo, logs: Mapping[str, Sequence[str]], heads: Sequence[str]) -> list[str]:
    text = [f"The head: {cluster.problem}"] if cluster.problem else []
    # Without the head no worker joins, and their logs say only that.
    without_head = any(head in cluster.missing and logs.get(head) for head in heads)
    for name in heads if without_head else cluster.missing:
        lines = logs.get(name, ())[-LOG_LINES:]
        if lines:
            text += [f"The last lines of {name}:", *(f"  {line}" for line in lines)]
    return text


def _failure_text(cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]]) -> str:
    after = f" after {cluster.waited:.0f} s" if cluster.waited >= 1 else ""
    return (
        f"The cluster is not ready{after}. Fix the problems shown above and run cluster_up.yml again: it starts only "
        f"the nodes that are missing{_log_hint(cluster, plans, logs)}"
    )


def _log_hint(cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]]) -> str:
    """Where an administrator finds the logs of the missing nodes, or of all; "" if they have none."""
    names = [name for name in cluster.missing or plans if name in plans]
    # A node that is only to be created has none, unless this run has created it and read its log.
    logged = [name for name in names if logs.get(name) or plans[name].action != ActionKind.CREATE]
    if not logged:
        return ""
    name = logged[0] if len(logged) == 1 else "NODE"
    directory = plans[logged[0]].process.get("directory")
    engine = PODMAN if plans[logged[0]].podman else DOCKER
    where = f"{PurePosixPath(directory).parent}/{name}/node.log on its host" if directory else f"`{engine} logs {name}`"
    return f". {where} shows more"
