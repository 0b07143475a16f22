# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Membership: the nodes that the inventory expects, compared with the nodes that Ray reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..launcher.ray_api import ALIVE


class NodeState(StrEnum):
    """ALIVE is alive with the resources that are expected, DIFFERS alive with others."""

    ALIVE = "alive"
    DIFFERS = "differs"
    MISSING = "missing"


@dataclass(frozen=True)
class ExpectedNode:
    """A node of a ready cluster.

    cpus: None where Ray counts them itself.
    since: seconds since the epoch; a node that started earlier does not count. None accepts any start.
    """

    name: str
    head: bool = False
    cpus: float | None = None
    gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    since: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, node: Mapping[str, Any]) -> ExpectedNode:
        # Ansible's lazy containers cannot be copied, which asdict() does with the types that it finds.
        return cls(**{**node, "resources": dict(node["resources"])})


@dataclass(frozen=True)
class NodeRow:
    """One expected node: its resources as expected and as Ray reports them."""

    name: str
    expected: str
    seen: str
    state: NodeState

    def to_json(self) -> list[str]:
        return [self.name, self.expected, self.seen, self.state.value]

    @classmethod
    def from_json(cls, row: Sequence[str]) -> NodeRow:
        name, expected, seen, state = row
        return cls(name, expected, seen, NodeState(str(state)))


@dataclass(frozen=True)
class Membership:
    rows: tuple[NodeRow, ...]

    @property
    def missing(self) -> list[str]:
        """The names of the nodes that are not alive, or not as expected."""
        return [row.name for row in self.rows if row.state != NodeState.ALIVE]

    @property
    def complete(self) -> bool:
        return not self.missing


def describe_resources(cpus: float | None, gpus: float, resources: Mapping[str, float]) -> str:
    parts = [] if cpus is None else [f"CPU {cpus:g}"]
    parts.append(f"GPU {gpus:g}")
    parts += [f"{name} {amount:g}" for name, amount in sorted(resources.items())]
    return ", ".join(parts)


def membership(expected: Sequence[ExpectedNode], nodes: Sequence[Mapping[str, Any]]) -> Membership:
    """Compare the expected nodes with those of `RayHead.nodes()`.

    A node that died and came back is listed twice, and Ray reports the dead one as alive for half a minute: only a
    node that started after `since` counts.
    """
    since = {want.name: (want.since or 0) * 1000 for want in expected}
    alive = {
        node["node_name"]: node
        for node in nodes
        if node["state"] == ALIVE and node.get("start_time_ms", 0) >= since.get(node["node_name"], 0)
    }
    known = {node["node_name"] for node in nodes}
    return Membership(tuple(_row(want, alive.get(want.name), want.name in known) for want in expected))


def _row(want: ExpectedNode, node: Mapping[str, Any] | None, known: bool) -> NodeRow:
    wanted = describe_resources(want.cpus, want.gpus, want.resources)
    if node is None:
        return NodeRow(want.name, wanted, "dead" if known else "never joined", NodeState.MISSING)
    total = node["resources_total"]
    cpus = None if want.cpus is None else total.get("CPU", 0)
    custom = {key: total.get(key, 0) for key in want.resources}
    seen = describe_resources(cpus, total.get("GPU", 0), custom)
    fits = seen == wanted and bool(node["is_head_node"]) == want.head
    return NodeRow(want.name, wanted, seen, NodeState.ALIVE if fits else NodeState.DIFFERS)
