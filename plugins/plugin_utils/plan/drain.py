# SPDX-License-Identifier: GPL-3.0-or-later
"""How drain.yml takes a node out of the cluster, and messages about nodes of the cluster that no inventory has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...module_utils.argus.cluster.membership import unlisted_nodes
from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import printable, spelling_hint
from ...module_utils.argus.ray.records import ALIVE
from ...module_utils.cluster.engine import CLUSTER_LABEL
from ...module_utils.cluster.machine import PlannedMachine

RETURN_NOTE = "cluster_up.yml starts it again, as long as it is in the inventory"
# Names that a command may contain. Jobs have the cluster's token, so they can start a node with any name, also with one
# that a shell or a template of Ansible would evaluate.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ODD_NAME_REMEDY = "No playbook takes such a name: end it on its host, and find out whose job has started it"


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
    """Return where Ray and the machines have the node that drain.yml removes.

    ray_nodes: rows of Ray's state API. machines: by the host that represents them. head_machine: such a host.
    """
    alive = [row for row in ray_nodes if row["node_name"] == node and row["state"] == ALIVE]
    # For a while Ray reports a node and its replacement as alive.
    newest = max(alive, key=lambda row: row.get("start_time_ms", 0), default={})
    holders = {host: planned for host, planned in machines.items() if node in planned.present}
    machine, planned = next(iter(holders.items()), ("", None))
    neighbours = [name for name in planned.present if name != node] if planned else [node]
    return Departure(
        node=node,
        machine=machine,
        node_id=str(newest.get("node_id") or ""),
        runs=planned is not None and node in planned.running,
        last=not neighbours and machine != head_machine,
        in_inventory=node in inventory_nodes,
    )


def departure_findings(
    departure: Departure, heads: Collection[str], names: Collection[str], silent: Mapping[str, str], node_machine: str
) -> list[Finding]:
    """Why a node cannot be taken out; none if it can.

    names: of all nodes in the inventory or in Ray. silent: the problems of machines that do not answer, by their names.
    node_machine: the name of the node's machine; "" for a node that is not in the inventory.
    """
    node = departure.node
    if not node:
        return [Finding("node", "is not given", f"name it: -e node=NAME; {', '.join(names)}")]
    if node in heads:
        return [Finding(node, "is the head: without it there is no cluster", "cluster_down.yml removes the cluster")]
    if departure.gone and departure.in_inventory:
        if node_machine in silent:
            problem = f"is not alive in Ray, and its machine {node_machine} {silent[node_machine]}"
            return [Finding(node, problem, "run drain.yml again when it answers: what is left of the node is there")]
        return [Finding(node, "is out already: neither alive in Ray nor on its machine", RETURN_NOTE, WARNING)]
    if departure.gone:
        hint = spelling_hint(node, names) or f"known: {', '.join(names)}"
        return [Finding(node, "is neither alive in Ray nor on a machine of the inventory", hint)]
    if not departure.machine:
        unknown = f"; {', '.join(silent)} did not answer" if silent else ""
        problem = f"it is on no machine of the inventory that answers{unknown}"
        remedy = "put its machine into the inventory until the node is out"
        return [Finding(node, f"{problem}; removed from Ray only, it would come back", remedy)]
    return []


def still_used_findings(
    node: str, jobs: Sequence[str], waited: float, allowed: bool, would_wait: float | None = None
) -> list[Finding]:
    """The jobs that still use a node, as an error; as a warning in check mode, or if they may be ended.

    allowed: whether to end these jobs. would_wait: in check mode, the seconds that drain.yml would wait for them.
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


# Messages about nodes of the cluster that no inventory has.
def is_plain(node: str) -> bool:
    """Whether the name of a node can be part of a command for people."""
    return PLAIN_NAME.fullmatch(node) is not None


def drain_command(node: str) -> str:
    """The name has to be plain."""
    return f"drain.yml -e node={node}"


def not_removed_findings(
    ray_nodes: Sequence[Mapping[str, Any]],
    machines: Iterable[PlannedMachine],
    cluster: str,
    inventory_nodes: Collection[str],
) -> list[Finding]:
    """Warnings about nodes that cluster_down.yml does not remove.

    They are nodes alive in Ray that are neither in the inventory nor on its machines, and containers with the name of a
    node that belong to another cluster, as all do if cluster_name is misspelt. ray_nodes: rows of Ray's state API.
    """
    answering = [machine for machine in machines if machine.answers]
    removed = {name for machine in answering for name in machine.present}
    engine = next((machine.engine for machine in answering), "")
    foreign_containers = [
        Finding(
            node,
            f"is a container of {f'cluster {owner}' if owner else 'another owner'} on {machine.name}, and not "
            f"of cluster {cluster}: it is not removed",
            f"if this is its inventory, set cluster_name: {owner}" if owner else "",
            WARNING,
        )
        for machine in answering
        for node, owner in machine.others.items()
    ]
    return foreign_containers + [
        Finding(
            printable(stranger.name, lines=False),
            f"at {stranger.address} is alive, but neither it nor its machine is in the inventory: it is not removed",
            removal_command(stranger.name, cluster, engine),
            WARNING,
        )
        for stranger in unlisted_nodes(ray_nodes, inventory_nodes)
        if stranger.name not in removed
    ]


def removal_command(node: str, cluster: str, engine: str) -> str:
    """How to remove a node by hand, for people.

    The command filters by the cluster's label: a job may have named its node like a container of something else.
    """
    if not is_plain(node):
        return ODD_NAME_REMEDY
    if not engine:
        return f"on its host: pkill -f 'node .*/{cluster}/nodes/{node}$'"
    listed = f"{engine} ps -aq --filter label={CLUSTER_LABEL}={cluster} --filter name=^{node}$"
    return f"on its machine: {engine} rm -fv $({listed})"


def unlisted_worker_notes(workers: Sequence[str], inventory_nodes: Sequence[str]) -> list[str]:
    """One line about the workers that are not in the inventory; no line if all are."""
    names = [worker for worker in workers if worker not in set(inventory_nodes)]
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    shown = printable(", ".join(names), lines=False)
    remedy = drain_command(names[0]) if is_plain(names[0]) else ODD_NAME_REMEDY
    return [f"{shown} {verb} not in the inventory, and counted as room: {remedy}"]
