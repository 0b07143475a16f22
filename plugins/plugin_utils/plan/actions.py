# SPDX-License-Identifier: GPL-3.0-or-later
"""Decides what has to be done with each node, by comparing its plan with its current container or process."""

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
from ..inventory.nodes import CONTAINER, HEAD, PROCESS, NodePlan, Settings, changed_settings, expected_node, plan_node
from .container import container_arguments, podman_run, process_arguments

AS_PLANNED_REASON = "runs as planned"
# Other derived variables are not worth a restart: running jobs go on with the old ones.
STALE_VARIABLES_REASON = (
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
    """What has to be done to the container or process of a node, and why."""

    kind: ActionKind
    reason: str
    # Whether it ends one that runs, and jobs with it.
    disrupts: bool = False


def keeps_tables(plan: NodePlan, settings: str | None) -> bool:
    """Whether the head restores its GCS tables when it is created again, so that jobs go on.

    settings: the settings label of the head that runs, which may be from another release.
    """
    storage = plan.settings.cluster_head_storage
    return plan.role == HEAD and storage == ROCKSDB and f'"cluster_head_storage": "{storage}"' in (settings or "")


def decide(
    plan: NodePlan, current: Container | NodeProcess | None, specification: str, settings: str, derived: str
) -> Action:
    """Compare a planned node with its current container or process; None if it has none.

    specification, settings, derived: the labels that the container or process of the plan would have.
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
        return Action(ActionKind.KEEP, STALE_VARIABLES_REASON)
    return Action(ActionKind.KEEP, AS_PLANNED_REASON)


@dataclass(frozen=True)
class PlannedNode:
    """A planned node and the action for it. Of a node that cannot take part, only `expected` and `host` are set."""

    # What Ray has to report of it, or why it cannot take part.
    expected: ExpectedNode
    # The inventory host through which its machine is reached.
    host: str = ""
    action: ActionKind = ActionKind.NONE
    reason: str = ""
    disrupts: bool = False
    accelerator: str = ""
    # The image, "" for a process, and whether the machine lacks it.
    image: str = ""
    image_missing: bool = False
    # As uid:gid.
    user: str = ""
    # Arguments of community.docker.docker_container; empty for a process.
    container: Mapping[str, Any] = field(default_factory=dict)
    # The request of the verb `node`; empty for a container.
    process: Mapping[str, Any] = field(default_factory=dict)
    # With Podman, arguments of ansible.builtin.command that replace `container`.
    podman: Mapping[str, Any] = field(default_factory=dict)
    # When the current container or process was last started, in ISO 8601; None if there is none.
    started_at: str | None = None
    # Its state as the engine or the supervisor reports it; "" if there is none.
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


def plan_node_action(settings: Settings, machine: Machine, siblings: Sequence[str], host: str = "") -> PlannedNode:
    """Plan a node and the action for it. Raises PlanError if the machine cannot hold it."""
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
