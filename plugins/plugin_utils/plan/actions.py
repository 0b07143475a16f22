# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what to do with each planned node, by comparing it with its current container or process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.argus.common.node_process import NodeProcess
from ...module_utils.cluster.engine import (
    DERIVED_LABEL,
    PODMAN,
    RUNNING,
    SETTINGS_LABEL,
    SPECIFICATION_LABEL,
    Container,
)
from ...module_utils.cluster.machine import Machine
from ...module_utils.cluster.state import ROCKSDB
from ..inventory.nodes import CONTAINER, HEAD, PROCESS, NodePlan, Settings, expected_node, plan_node
from ..inventory.settings_label import changed_settings
from .container import container_arguments
from .podman import podman_run
from .process import process_arguments

AS_PLANNED = "runs as planned"
# Not worth a restart: running jobs go on with the old variables.
STALE_NETWORK_VARIABLES = (
    "runs with other variables of NCCL or gloo than derived now, as after a port came up or went down; without jobs, "
    "run cluster_down.yml and cluster_up.yml for the new ones"
)


class ActionKind(StrEnum):
    NONE = "none"  # The node cannot take part.
    KEEP = "keep"  # It runs, and stays as it is.
    START = "start"
    CREATE = "create"
    RECREATE = "recreate"


class Action(NamedTuple):
    """What has to be done to a node's container or process, and why; it disrupts when it ends one that runs."""

    kind: ActionKind
    reason: str
    disrupts: bool = False


def keeps_tables(plan: NodePlan, settings: str | None) -> bool:
    """Whether a recreated head restores the GCS tables, so that jobs go on.

    settings: the label of the one that runs, which may be from another release.
    """
    storage = plan.settings.cluster_head_storage
    return plan.role == HEAD and storage == ROCKSDB and f'"cluster_head_storage": "{storage}"' in (settings or "")


def decide(
    plan: NodePlan, current: Container | NodeProcess | None, specification: str, settings: str, derived: str
) -> Action:
    """Compare a planned node with its current container or process.

    specification, settings, derived: of the container or process that the plan would start.
    """
    if current is None:
        return Action(ActionKind.CREATE, f"no {plan.settings.ray_node_runtime}")
    is_running = current.state == RUNNING
    disrupts = is_running and not keeps_tables(plan, current.settings)
    if plan.settings.rotate_token:
        # The token is mounted as a file, which cannot be replaced in a running container, and Ray reads it only once.
        return Action(ActionKind.RECREATE, f"its token is rotated, it is {current.state}", disrupts=is_running)
    if current.specification != specification:
        changed = changed_settings(current.settings, settings)
        reason = f"its settings changed{f': {changed}' if changed else ''}, it is {current.state}"
        return Action(ActionKind.RECREATE, reason, disrupts=disrupts)
    if plan.outdated:
        reason = f"{plan.image} is built again from other inputs, it is {current.state}"
        return Action(ActionKind.RECREATE, reason, disrupts=disrupts)
    if isinstance(current, Container) and plan.image_id not in ("", current.image_id):
        return Action(ActionKind.RECREATE, f"{plan.image} was rebuilt, it is {current.state}", disrupts=disrupts)
    if not is_running:
        return Action(ActionKind.START, f"{plan.settings.ray_node_runtime} is {current.state}")
    if current.derived != derived:
        return Action(ActionKind.KEEP, STALE_NETWORK_VARIABLES)
    return Action(ActionKind.KEEP, AS_PLANNED)


@dataclass(frozen=True)
class PlannedNode:
    """A planned node and the action for it.

    expected: what Ray has to report of it. If it cannot take part, why; all other fields but host are empty then.
    host: the inventory host through which its machine is reached.
    image_missing: whether the machine lacks the image.
    container: arguments of community.docker.docker_container; empty for a process.
    podman: instead of them, arguments of ansible.builtin.command.
    process: the request of the verb `node`; empty for a container.
    started_at: when it was last started, None for a new one. state: empty for a new one. Both are as the engine or
    supervisor reports them.
    """

    expected: ExpectedNode
    host: str = ""
    action: ActionKind = ActionKind.NONE
    reason: str = ""
    disrupts: bool = False
    accelerator: str = ""
    image: str = ""
    image_missing: bool = False
    user: str = ""
    container: Mapping[str, Any] = field(default_factory=dict)
    process: Mapping[str, Any] = field(default_factory=dict)
    podman: Mapping[str, Any] = field(default_factory=dict)
    started_at: str | None = None
    state: str = ""

    @property
    def absent_reason(self) -> str:
        """Why it cannot take part; "" if it can."""
        return self.expected.absent

    @property
    def runtime(self) -> str:
        return PROCESS if self.process else CONTAINER

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "action": self.action.value, "absent": self.absent_reason}

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> PlannedNode:
        typed = {"expected": ExpectedNode.from_json(answer["expected"]), "action": ActionKind(str(answer["action"]))}
        return cls(**{**{attribute.name: answer[attribute.name] for attribute in fields(cls)}, **typed})


def planned_node(settings: Settings, machine: Machine, siblings: Sequence[str], host: str = "") -> PlannedNode:
    """Plan a node and decide what has to be done; PlanError when the machine cannot hold it."""
    plan = plan_node(settings, machine, siblings)
    container: dict[str, Any] = {}
    process: dict[str, Any] = {}
    current: Container | NodeProcess | None
    if plan.host is None:
        container, current = container_arguments(plan), machine.containers.get(plan.name)
        labels = container["labels"]
        desired = [labels.get(name, "") for name in (SPECIFICATION_LABEL, SETTINGS_LABEL, DERIVED_LABEL)]
    else:
        process = process_arguments(plan, plan.host, machine.user)
        current = plan.host.node if plan.host.node.state else None
        desired = [process[name] for name in ("specification", "settings", "derived")]
    action, reason, disrupts = decide(plan, current, *desired)
    return PlannedNode(
        expected_node(plan),
        host,
        action,
        reason,
        disrupts,
        accelerator=plan.accelerator,
        image=plan.image,
        image_missing=plan.settings.ray_node_runtime == CONTAINER and not plan.image_id,
        user=plan.user,
        container=container,
        process=process,
        podman=podman_run(container) if container and settings.cluster_engine == PODMAN else {},
        started_at=current.started_at if current else None,
        state=current.state if current else "",
    )
