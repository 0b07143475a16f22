# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of a cluster, as ray_cluster_info returns it and as a table shows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..launcher.ray_api import slowness
from .actions import PlannedNode
from .membership import NodeRow

# As many lines per missing node as still leave all of them on one screen.
LOG_LINES = 15


@dataclass(frozen=True)
class ActiveJob:
    """A submitted job that has not ended, with the status that Ray reports."""

    submission_id: str
    status: str


@dataclass(frozen=True)
class ClusterInfo:
    """The return values of ray_cluster_info that filters read; the module documents them."""

    complete: bool
    missing: Sequence[str]
    rows: Sequence[NodeRow]
    waited: float
    problem: str
    jobs: Sequence[ActiveJob]
    # How many seconds the head needed, if it did not answer the first attempt.
    slow: float = 0.0

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> ClusterInfo:
        return cls(
            complete=answer["complete"],
            missing=answer["missing"],
            rows=[NodeRow.from_json(row) for row in answer["rows"]],
            waited=answer["waited"],
            problem=answer["problem"],
            jobs=[ActiveJob(**job) for job in answer["jobs"]],
            slow=answer.get("slow", 0.0),
        )


@dataclass(frozen=True)
class ClusterReport:
    """The arguments of the module report."""

    title: str
    header: list[str]
    rows: list[list[str | None]]
    text: list[str]
    fail_when: str


def cluster_report(
    cluster: ClusterInfo,
    plans: Mapping[str, PlannedNode],
    logs: Mapping[str, Sequence[str]],
    name: str,
    dashboard: str,
) -> ClusterReport:
    """Report a ready cluster, or the missing nodes with the end of their logs.

    plans, logs: by node; a node outside this run has none.
    """
    ready = cluster.complete
    rows = []
    for row in cluster.rows:
        plan = plans.get(row.name)
        # In a ready cluster, the resources as expected and as seen are the same.
        resources = [row.seen] if ready else [row.expected, row.seen]
        decided = [plan.accelerator, plan.action.kind.value] if plan else [None, None]
        rows.append([row.name, row.state.value, *resources, *decided])
    columns = ["resources"] if ready else ["expected", "seen"]
    return ClusterReport(
        title=f"Cluster {name}: {len(rows) - len(cluster.missing)} of {len(rows)} nodes as expected",
        header=["node", "state", *columns, "accelerator", "action"],
        rows=rows,
        text=[*slowness(cluster.slow), *([f"Dashboard: {dashboard}"] if ready else _problems(cluster, logs))],
        fail_when="" if ready else _failure(cluster.waited),
    )


def _problems(cluster: ClusterInfo, logs: Mapping[str, Sequence[str]]) -> list[str]:
    text = [f"The head: {cluster.problem}"] if cluster.problem else []
    for name in cluster.missing:
        lines = logs.get(name, ())[-LOG_LINES:]
        if lines:
            text += [f"The last lines of {name}:", *(f"  {line}" for line in lines)]
    return text


def _failure(waited: float) -> str:
    after = f" after {waited:g} s" if waited >= 1 else ""
    return (
        f"The cluster is not ready{after}. Fix the problems shown above and run cluster_up.yml again: it starts only "
        "the nodes that are missing. `docker logs NODE` shows more"
    )
