# SPDX-License-Identifier: Apache-2.0
"""What an attempt's pending actors and placement groups wait for, and why they may never start, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..io.output import one_line
from ..queue import room
from ..ray.records import ALIVE
from .decisions import DEFAULT_RESOURCE_WAIT_SECONDS


def actors_notice(actors: Iterable[Mapping[str, Any]]) -> str:
    parts = count_texts(
        f"{actor.get('class_name')} ({resources_text(actor.get('required_resources') or {})})" for actor in actors
    )
    return one_line(f"waits for its actors to start: {parts}") if parts else ""


def groups_notice(groups: Iterable[Mapping[str, Any]]) -> str:
    parts = count_texts(resources_text(bundle) for group in groups for bundle in room.bundle_resources(group))
    return f"waits for its placement: {parts} are not free together" if parts else ""


def count_texts(parts: Iterable[str]) -> str:
    return ", ".join(f"{count} x {part}" for part, count in sorted(Counter(parts).items()))


def resources_text(amounts: Mapping[str, float]) -> str:
    """Resources as text. Ray repeats those of a placement group under names with the group and the bundle."""
    texts = {name.partition("_group_")[0]: f"{amount:g}" for name, amount in amounts.items()}
    return " and ".join(f"{texts[name]} {name}" for name in sorted({*texts} - {"bundle"})) or "no resources"


def pending_groups(groups: Iterable[Mapping[str, Any]], job_id: str) -> list[Mapping[str, Any]]:
    """The placement groups of a job that wait for resources. job_id: Ray's id of the attempt."""
    job_groups = (group for group in groups if group.get("creator_job_id") == job_id)
    return [group for group in job_groups if group.get("state") in room.PENDING_GROUP_STATES]


def latest_nodes(nodes: Iterable[Mapping[str, Any]], now: float) -> list[Mapping[str, Any]]:
    """The newest node of each name, if it is alive or ended so recently that it may come back."""
    last = {node["node_name"]: node for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0))}
    since = (now - DEFAULT_RESOURCE_WAIT_SECONDS) * 1000
    return [node for node in last.values() if node["state"] == ALIVE or node.get("end_time_ms", 0) > since]


def find_placement_problem(
    actors: Iterable[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]
) -> str:
    """Why one of these pending actors or placement groups can never start, even if all nodes are free, or ""."""
    needs = [(f"actor {actor.get('class_name')}", actor.get("required_resources") or {}) for actor in actors]
    needs += [(group_name(group), bundle) for group in groups for bundle in room.bundle_resources(group)]
    problems = [
        f"{who} needs {resources_text(need)} on one node, and {nearest_node_text(nodes, need)}"
        for who, need in needs
        if all(capacity_share(node, need) < 1 for node in nodes)
    ]
    # The state API does not list the strategy of a group, so Ray's own verdict counts. Ray judges by the nodes that are
    # alive and get new work: here it counts only if these are all nodes.
    if not problems and all(node["state"] == ALIVE and not node.get("draining") for node in nodes):
        states = [(group, (group.get("stats") or {}).get("scheduling_state")) for group in groups]
        problems = [infeasible_problem(group, nodes) for group, state in states if state == "INFEASIBLE"]
    # Ray lists actors and groups in any order.
    return one_line(min(problems, default=""))


def infeasible_problem(group: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """A text about a placement group that Ray calls infeasible, although a node could hold each of its bundles."""
    bundles = room.bundle_resources(group)
    total = {name: sum(bundle.get(name, 0) for bundle in bundles) for bundle in bundles for name in bundle}
    needs = f"{group_name(group)} needs {count_texts(map(resources_text, bundles))}"
    where = f"on these {len(nodes)} nodes, with the head; for all on one node ({resources_text(total)})"
    return f"{needs}, infeasible for Ray {where}, {nearest_node_text(nodes, total)}"


def group_name(group: Mapping[str, Any]) -> str:
    return f"placement group {group.get('name') or group.get('placement_group_id')}"


def nearest_node_text(nodes: Iterable[Mapping[str, Any]], needs: Mapping[str, float]) -> str:
    node = max(nodes, key=lambda node: (capacity_share(node, needs), node["node_name"]))
    has = {name: node["resources_total"].get(name, 0) for name in needs}
    return f"the nearest, {node['node_name']}, has {resources_text(has)}"


def capacity_share(node: Mapping[str, Any], needs: Mapping[str, float]) -> float:
    """The share of the needed resources that a node has in total, of the scarcest one. From 1 on, all of them fit."""
    # No node lists the resources of a placement group, and node:10.0.0.7 stands for an address, which may change.
    amounts = {name: need for name, need in needs.items() if "_group_" not in name and name[:5] != "node:"}
    return min((node["resources_total"].get(name, 0) / need for name, need in amounts.items() if need > 0), default=1.0)
