# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side of a Ray head: nodes and jobs, with the standard library only.

The SDK needs Ray to be installed and takes 0.7 s to import; asking which nodes are alive, ten times a
second while a cluster comes up, has to work on a machine that has neither.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..launcher.ray_api import ALIVE, RayApiError, RayHead


@dataclass(frozen=True)
class Membership:
    """The nodes that are expected against those that are seen."""

    rows: tuple[tuple[str, str, str, str], ...]  # node, expected, seen, verdict
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not self.missing


def describe_resources(cpus: Any, gpus: Any, resources: Mapping[str, Any]) -> str:
    parts = [] if cpus is None else [f"CPU {cpus:g}"]
    parts.append(f"GPU {gpus:g}")
    parts += [f"{name} {amount:g}" for name, amount in sorted(resources.items())]
    return ", ".join(parts)


def membership(expected: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> Membership:
    """Hold the nodes as the head sees them against the inventory.

    expected: dicts of `name`, `head`, `cpus` (None: any), `gpus`, `resources`, `since` (seconds since the epoch).
    nodes: as RayHead.nodes() returns them. A node that died and came back is there twice, and for half a minute
    Ray holds the dead one for alive: only one that started after `since` counts.
    """
    rows, missing = [], []
    since = {want["name"]: (want.get("since") or 0) * 1000 for want in expected}
    alive = {
        node["node_name"]: node
        for node in nodes
        if node["state"] == ALIVE and node.get("start_time_ms", 0) >= since.get(node["node_name"], 0)
    }
    known = {node["node_name"] for node in nodes}
    for want in expected:
        name = want["name"]
        wanted = describe_resources(want["cpus"], want["gpus"], want["resources"])
        node = alive.get(name)
        if node is None:
            seen = "dead" if name in known else "never joined"
            verdict = "missing"
        else:
            total = node["resources_total"]
            cpus = None if want["cpus"] is None else total.get("CPU", 0)
            custom = {key: total.get(key, 0) for key in want["resources"]}
            seen = describe_resources(cpus, total.get("GPU", 0), custom)
            fits = seen == wanted and bool(node["is_head_node"]) == bool(want["head"])
            verdict = "alive" if fits else "differs"
        rows.append((name, wanted, seen, verdict))
        if verdict != "alive":
            missing.append(name)
    return Membership(tuple(rows), tuple(missing))


def wait_for_membership(
    head: RayHead, expected: Sequence[Mapping[str, Any]], timeout: float, interval: float = 0.2
) -> tuple[Membership, float, str]:
    """Ask until every expected node is alive, or for `timeout` seconds.

    Returns the membership, the seconds it took, and the last error of the head, if it did not answer.
    """
    start = time.monotonic()
    while True:
        problem = ""
        try:
            seen = membership(expected, head.nodes())
        except RayApiError as error:
            seen, problem = membership(expected, []), str(error)
        waited = time.monotonic() - start
        if seen.complete or waited >= timeout:
            return seen, waited, problem
        time.sleep(interval)
