# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine has of a node, a container or a process: the one thing that decisions are made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from .container import DERIVED_LABEL, SPECIFICATION_LABEL
from .engine import RUNNING, Container
from .machine import Machine
from .nodes import NodePlan
from .settings_label import SETTINGS_LABEL


@dataclass(frozen=True)
class RuntimeState:
    """A node as its machine has it.

    kind: "container" or "process". state: in the words of its engine or supervisor.
    specification, settings: what it was started with; None if that is unknown.
    derived: the variables of NCCL and gloo that were derived then, as JSON.
    image_id: of a container. started_at: in the format of ISO 8601; None for one that never ran.
    """

    kind: str
    state: str
    specification: str | None
    settings: str | None
    derived: str = ""
    image_id: str = ""
    started_at: str | None = None

    @property
    def running(self) -> bool:
        return self.state == RUNNING


def moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def of_container(containers: Mapping[str, Container], name: str) -> RuntimeState | None:
    there = containers.get(name)
    if there is None:
        return None
    return RuntimeState(
        kind="container",
        state=there.state,
        specification=there.labels.get(SPECIFICATION_LABEL),
        settings=there.labels.get(SETTINGS_LABEL),
        derived=there.labels.get(DERIVED_LABEL, ""),
        image_id=there.image_id,
        started_at=there.started_at,
    )


def runtime_state(plan: NodePlan, machine: Machine) -> RuntimeState | None:
    """What the machine has of a node; None if there is nothing."""
    if plan.host is None:
        return of_container(machine.containers, plan.name)
    node = plan.host.node
    if not node.state:
        return None
    return RuntimeState(
        kind="process",
        state=node.state,
        specification=node.specification,
        settings=node.settings,
        derived=node.derived,
        started_at=moment(node.started_at),
    )
