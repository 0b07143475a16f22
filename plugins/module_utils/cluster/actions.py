# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Actions: a planned node compared with the containers of its machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from .container import SPECIFICATION_LABEL, container_arguments
from .engine import RUNNING, Container
from .machine import Machine
from .membership import ExpectedNode
from .nodes import NodePlan, Settings, expected_node, plan_node
from .settings_label import SETTINGS_LABEL, changed_settings


class ActionKind(StrEnum):
    KEEP = "keep"
    START = "start"
    CREATE = "create"
    RECREATE = "recreate"


@dataclass(frozen=True)
class Action:
    """What has to be done to a node's container, and why; it disrupts when it ends a running container."""

    kind: ActionKind
    reason: str
    disrupts: bool = False


def decide(plan: NodePlan, arguments: Mapping[str, Any], containers: Mapping[str, Container]) -> Action:
    """Compare the planned container of a node with the containers of its machine, by name."""
    there = containers.get(plan.name)
    if there is None:
        return Action(ActionKind.CREATE, "no container")
    running = there.state == RUNNING
    if plan.settings.rotate_token:
        # The token is mounted as a file, which cannot be replaced in a running container, and Ray reads it only once.
        return Action(ActionKind.RECREATE, f"its token is rotated, it is {there.state}", disrupts=running)
    if there.labels.get(SPECIFICATION_LABEL) != arguments["labels"][SPECIFICATION_LABEL]:
        changed = changed_settings(there.labels.get(SETTINGS_LABEL), arguments["labels"][SETTINGS_LABEL])
        reason = f"its settings changed{f': {changed}' if changed else ''}, it is {there.state}"
        return Action(ActionKind.RECREATE, reason, disrupts=running)
    if plan.image_id and there.image_id != plan.image_id:
        return Action(ActionKind.RECREATE, f"{plan.image} was rebuilt, it is {there.state}", disrupts=running)
    if not running:
        return Action(ActionKind.START, f"container is {there.state}")
    return Action(ActionKind.KEEP, "runs as planned")


@dataclass(frozen=True)
class PlannedNode:
    """A planned node and the action for its container: the answer of the filter node_plan.

    image_missing: whether the machine lacks the image.
    container: arguments of community.docker.docker_container.
    started_at: when the container was last started, as the engine reports it; None for a new one.
    """

    accelerator: str
    image: str
    image_missing: bool
    user: str
    container: dict[str, Any]
    action: Action
    started_at: str | None
    expected: ExpectedNode

    def to_json(self) -> dict[str, Any]:
        """Return the fact __ray_node_plan; the roles read the fields of the action at its top level."""
        answer = asdict(self)
        action = answer.pop("action")
        return {**answer, "action": self.action.kind.value, "reason": action["reason"], "disrupts": action["disrupts"]}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> PlannedNode:
        fields = dict(answer)
        action = Action(ActionKind(str(fields.pop("action"))), fields.pop("reason"), fields.pop("disrupts"))
        return cls(**{**fields, "action": action, "expected": ExpectedNode.from_json(answer["expected"])})


def planned_node(settings: Settings, machine: Machine, siblings: Sequence[str]) -> PlannedNode:
    """Plan a node and decide what has to be done; PlanError when the machine cannot hold it."""
    plan = plan_node(settings, machine, siblings)
    arguments = container_arguments(plan)
    there = machine.containers.get(plan.name)
    return PlannedNode(
        accelerator=plan.accelerator,
        image=plan.image,
        image_missing=not plan.image_id,
        user=plan.user,
        container=arguments,
        action=decide(plan, arguments, machine.containers),
        started_at=there.started_at if there else None,
        expected=expected_node(plan),
    )
