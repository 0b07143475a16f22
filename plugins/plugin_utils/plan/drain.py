# SPDX-License-Identifier: GPL-3.0-or-later
"""How drain.yml takes one node out of the cluster, and why it cannot or has to wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import nearest
from ...module_utils.argus.ray.api import ALIVE
from ...module_utils.cluster.machine import PlannedMachine

IN_INVENTORY = "cluster_up.yml starts it again, as long as it is in the inventory"


@dataclass(frozen=True)
class Departure:
    """A node that is to leave.

    machine: the host that has its container or process.
    node_id: Ray's id; "" if Ray does not have the node alive.
    runs: whether it runs there.
    last: whether nothing else of the cluster is on the machine, so that its token goes as well.
    """

    node: str
    machine: str = ""
    node_id: str = ""
    runs: bool = False
    last: bool = False
    in_inventory: bool = False

    @property
    def gone(self) -> bool:
        return not self.node_id and not self.machine

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gone": self.gone}


def departure(
    node: str,
    nodes: Sequence[Mapping[str, Any]],
    machines: Mapping[str, PlannedMachine],
    expected: Collection[str],
    head_machine: str,
) -> Departure:
    """How a node leaves.

    nodes: as the head knows them. machines: by their hosts. expected: the nodes of the inventory.
    """
    alive = [row for row in nodes if row["node_name"] == node and row["state"] == ALIVE]
    # For a while Ray reports a node and its replacement as alive.
    newest = max(alive, key=lambda row: row.get("start_time_ms", 0), default={})
    holders = {host: planned for host, planned in machines.items() if node in planned.present}
    machine, planned = next(iter(holders.items()), ("", None))
    others = [name for name in planned.present if name != node] if planned else [node]
    return Departure(
        node=node,
        machine=machine,
        node_id=str(newest.get("node_id") or ""),
        runs=planned is not None and node in planned.running,
        last=not others and machine != head_machine,
        in_inventory=node in expected,
    )


def departure_findings(
    leaving: Departure, heads: Collection[str], names: Collection[str], silent: Mapping[str, str], node_machine: str
) -> list[Finding]:
    """Why a node cannot be taken out.

    names: of all nodes. silent: the machines that do not answer, with their problems. node_machine: the
    machine of the node, if it is in the inventory.
    """
    node = leaving.node
    if not node:
        return [Finding("node", "is not given", f"name it: -e node=NAME; {', '.join(names)}")]
    if node in heads:
        return [Finding(node, "is the head: without it there is no cluster", "cluster_down.yml removes the cluster")]
    if leaving.gone and leaving.in_inventory:
        if node_machine in silent:
            problem = f"is not alive in Ray, and its machine {node_machine} {silent[node_machine]}"
            return [Finding(node, problem, "run drain.yml again when it answers: what is left of the node is there")]
        return [Finding(node, "is out already: neither alive in Ray nor on its machine", IN_INVENTORY, WARNING)]
    if leaving.gone:
        hint = nearest(node, names) or f"known: {', '.join(names)}"
        return [Finding(node, "is neither alive in Ray nor on a machine of the inventory", hint)]
    if not leaving.machine:
        unknown = f"; {', '.join(silent)} did not answer" if silent else ""
        problem = f"it is on no machine of the inventory that answers{unknown}"
        remedy = "put its machine into the inventory until the node is out"
        return [Finding(node, f"{problem}; removed from Ray only, it would come back", remedy)]
    return []


def hold_findings(
    node: str, jobs: Sequence[str], waited: float, allowed: bool, would_wait: float | None = None
) -> list[Finding]:
    """The jobs that still use a node: errors, or warnings if they may be ended.

    would_wait: how long drain.yml would wait for them; None if it has done so.
    """
    if not jobs:
        return []
    listed = ", ".join(jobs)
    if allowed:
        return [
            Finding(node, f"its removal ends {listed}", "jobs with retries left go on on other workers", WARNING),
        ]
    if would_wait is not None:
        problem = f"would get no new work, and wait up to {would_wait:.0f} s for {listed} before it is removed"
        return [Finding(node, problem, "to end them instead: -e allow_disruption=true", WARNING)]
    remedy = "it gets no new work; run drain.yml again later, or end them: -e allow_disruption=true"
    return [Finding(node, f"is still used after {waited:.0f} s by {listed}", remedy)]
