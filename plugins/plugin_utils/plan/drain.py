# SPDX-License-Identifier: GPL-3.0-or-later
"""Drain: how drain.yml takes one node out of the cluster, and the findings if it cannot or has to wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import nearest
from ...module_utils.argus.ray.api import ALIVE
from ...module_utils.cluster.machine import PlannedMachine

RETURN_NOTE = "cluster_up.yml starts it again, as long as it is in the inventory"


@dataclass(frozen=True)
class Departure:
    """A node that is to leave the cluster. The fields are return values of the module ray_node_drain."""

    node: str
    # The inventory host of the machine with its container or process; "" if no machine that answers has it.
    machine: str = ""
    # Ray's id; "" if Ray does not report the node as alive.
    node_id: str = ""
    # Whether its container or process runs.
    runs: bool = False
    # Whether nothing else of the cluster is on the machine, so that the cluster's token is removed there too.
    last: bool = False
    in_inventory: bool = False

    @property
    def gone(self) -> bool:
        """Whether the node is neither alive in Ray nor on a machine that answers."""
        return not self.node_id and not self.machine

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gone": self.gone}


def plan_departure(
    node: str,
    ray_nodes: Sequence[Mapping[str, Any]],
    machines: Mapping[str, PlannedMachine],
    inventory_nodes: Collection[str],
    head_machine: str,
) -> Departure:
    """Find a node in Ray and on the machines.

    ray_nodes: rows of Ray's state API. machines, head_machine: by or as the host that represents the machine.
    """
    alive = [row for row in ray_nodes if row["node_name"] == node and row["state"] == ALIVE]
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
        in_inventory=node in inventory_nodes,
    )


def departure_findings(
    leaving: Departure, heads: Collection[str], names: Collection[str], silent: Mapping[str, str], node_machine: str
) -> list[Finding]:
    """Why a node cannot be taken out; none if it can.

    names: of all nodes in the inventory or in Ray. silent: the problems of machines that do not answer, by their names.
    node_machine: the name of the node's machine; "" for a node that is not in the inventory.
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
        return [Finding(node, "is out already: neither alive in Ray nor on its machine", RETURN_NOTE, WARNING)]
    if leaving.gone:
        hint = nearest(node, names) or f"known: {', '.join(names)}"
        return [Finding(node, "is neither alive in Ray nor on a machine of the inventory", hint)]
    if not leaving.machine:
        unknown = f"; {', '.join(silent)} did not answer" if silent else ""
        problem = f"it is on no machine of the inventory that answers{unknown}"
        remedy = "put its machine into the inventory until the node is out"
        return [Finding(node, f"{problem}; removed from Ray only, it would come back", remedy)]
    return []


def still_used_findings(
    node: str, jobs: Sequence[str], waited: float, allowed: bool, would_wait: float | None = None
) -> list[Finding]:
    """The jobs that still use a node, as an error; as a warning in check mode, or if they may be ended.

    allowed: whether they may. would_wait: in check mode, how many seconds drain.yml would wait for them.
    """
    if not jobs:
        return []
    listed = ", ".join(jobs)
    if allowed:
        return [Finding(node, f"its removal ends {listed}", "jobs with retries left go on on other workers", WARNING)]
    if would_wait is not None:
        problem = f"would get no new work, and wait up to {would_wait:.0f} s for {listed} before it is removed"
        return [Finding(node, problem, "to end them instead: -e allow_disruption=true", WARNING)]
    remedy = "it gets no new work; run drain.yml again later, or end them: -e allow_disruption=true"
    return [Finding(node, f"is still used after {waited:.0f} s by {listed}", remedy)]
