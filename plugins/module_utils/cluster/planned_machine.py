# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine of the inventory: what a run found there of its cluster, and what has to be prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

from .machine import Machine


@dataclass(frozen=True)
class ProbedMachine:
    """A machine as this run probed it.

    name: for messages. nodes: those that the inventory places on it. probe: None if it did not answer.
    problem: why nothing can be started on it, or "". derived_env: the variables of NCCL and gloo that follow from all
    machines.
    """

    name: str
    nodes: Sequence[str]
    probe: Machine | None = None
    problem: str = ""
    derived_env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PlannedMachine:
    """A machine in the plan of a cluster.

    answers: whether it was probed. user: of its nodes, as uid:gid; empty if nothing has to be prepared for them.
    present, running: the nodes of the cluster that are there, also those that left the inventory.
    surplus: of these, names of containers, or directories of processes. others: containers with names of the
    inventory's nodes that belong to another cluster, with its name. engine: "" where nodes are processes.
    sessions: the directory of Ray's sessions, where nodes are processes.
    """

    name: str
    nodes: Sequence[str]
    problem: str = ""
    answers: bool = False
    user: str = ""
    present: Sequence[str] = ()
    running: Sequence[str] = ()
    surplus: Sequence[str] = ()
    others: Mapping[str, str | None] = field(default_factory=dict)
    engine: str = ""
    sessions: str = ""

    @classmethod
    def of(
        cls, machine: ProbedMachine, user: str, sessions: str, cluster: str, inventory_nodes: Sequence[str]
    ) -> PlannedMachine:
        """What is known of a machine; user and sessions as above."""
        probe = machine.probe
        if probe is None:
            return cls(machine.name, list(machine.nodes), machine.problem)
        present, process = probe.nodes_of(cluster), probe.process
        surplus = [node for node in present if node not in inventory_nodes]
        above = PurePosixPath(process.directory).parent if process else None
        return cls(
            machine.name,
            list(machine.nodes),
            machine.problem,
            answers=True,
            user=user,
            present=present,
            running=[node for node in present if probe.runs(node)],
            surplus=[str(above / node) for node in surplus] if above else surplus,
            others={
                node: container.cluster
                for node, container in probe.containers.items()
                if container.cluster != cluster and node in inventory_nodes
            },
            engine="" if process else probe.engine.name,
            sessions=sessions,
        )

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> PlannedMachine:
        return cls(**answer)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
