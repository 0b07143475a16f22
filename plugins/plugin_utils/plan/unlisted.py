# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of the cluster that are not in the inventory: messages about them, and the commands that remove them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.argus.cluster.membership import unlisted_nodes
from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import printable
from ...module_utils.cluster.engine import CLUSTER_LABEL
from ...module_utils.cluster.machine import PlannedMachine

# Names that a command may contain. Jobs have the cluster's token, so they can start a node with any name, also with one
# that a shell or a template of Ansible would evaluate.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ODD_NAME_REMEDY = "No playbook takes such a name: end it on its host, and find out whose job has started it"


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
    others = [
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
    return others + [
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
