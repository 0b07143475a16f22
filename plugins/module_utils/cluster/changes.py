# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Changes: what a run will do, collected from the plans of its nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from ..argus.cluster.membership import ExpectedNode
from .actions import AS_PLANNED, PlannedNode
from .departure import ODD_NAME, drain_command, is_plain
from .planned_machine import PlannedMachine


def expected_since(plan: PlannedNode, started_at: str | None) -> ExpectedNode:
    """Return the expected node, not older than its container.

    started_at: when this run started the container; None when it did not.
    """
    start = started_at or plan.started_at
    return replace(plan.expected, since=datetime.fromisoformat(start).timestamp() if start else None)


def change_rows(
    plans: Mapping[str, PlannedNode], machines: Iterable[PlannedMachine], inventory_nodes: Collection[str]
) -> list[list[str]]:
    """Return rows of node, action and reason; nodes that run as planned have no row.

    A container of a node that left the inventory has a row, but no action: jobs may still run there.
    """
    rows = [
        [node, plan.action.kind.value, plan.action.reason]
        for node, plan in plans.items()
        if plan.action.reason != AS_PLANNED
    ]
    for name in (name for machine in machines for name in machine.present if name not in inventory_nodes):
        # Without containers, the names are those of directories, which jobs can create.
        todo = f"`{drain_command(name)}` takes it out" if is_plain(name) else ODD_NAME
        rows.append([name, "none", f"no longer in the inventory; {todo}"])
    return rows
