# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that the head has to report, from the plan and from what the tasks of this run have registered."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.cluster.engine import RUNNING
from ..inventory.inventory import HostVars
from ..plan.actions import PlannedNode
from .presence import task_problem

# A container with so many restarts in its first seconds does not join.
CRASH_LOOP_RESTARTS = 2
# The states of a container that the engine does not start again, and of a process without its supervisor.
ENDED_STATES = ("exited", "dead", "stopped", "orphaned")


def crash_reason(inspected: str, fresh: bool, head_answers: bool, kind: str = "container") -> str:
    """Why a node that has not joined will not join, from "<state> <exit code> <restarts>" of its container; or "".

    kind: what it is, if not a container. fresh: whether this run started it. A worker whose head is not there yet may
    well be started again.
    """
    parts = inspected.split()
    if len(parts) != 3 or not all(part.lstrip("-").isdigit() for part in parts[1:]):
        return ""
    state, code, restarts = parts[0], int(parts[1]), int(parts[2])
    if state in ENDED_STATES:
        return f"its {kind} ended with exit code {code}"
    if fresh and head_answers and restarts >= CRASH_LOOP_RESTARTS:
        return f"its {kind} ended {restarts} times, and was started again each time"
    return ""


# What a task registers on a host.
TaskResult = Mapping[str, Any]
# The variables of the role ray_node: a node's start, its state while it is missing, and the end of its log.
STARTED, INSPECTED, LOG = "__ray_node_started", "__ray_node_inspected", "__ray_node_log"


@dataclass(frozen=True)
class RunResults:
    """What the tasks of a run have registered. plan: the result of cluster_plan."""

    hostvars: HostVars
    plan: Mapping[str, Any]

    def of(self, name: str, host: str) -> TaskResult:
        """The result of a task on a host; {} if it did not run there."""
        return self.hostvars[host].get(name) or {}

    def nodes(self) -> dict[str, PlannedNode]:
        return {name: PlannedNode.from_json(node) for name, node in self.plan["nodes"].items()}

    def expected(self, head_answers: bool) -> list[ExpectedNode]:
        return [self.expected_node(node, head_answers) for node in self.nodes().values()]

    def expected_node(self, node: PlannedNode, head_answers: bool) -> ExpectedNode:
        """One node as it is expected now, with what this run knows about its start."""
        expected, started = node.expected, self.of(STARTED, node.expected.name)
        if node.absent_reason:
            return expected
        if problem := task_problem(started):
            return replace(expected, absent=f"its {node.runtime} could not be started: {problem}")
        if not started and node.state != RUNNING:
            # Ray notices a death later; its machine knows at once. One that starts after now counts.
            ended = f"its {node.runtime} is {node.state}" if node.state else f"it has no {node.runtime}"
            return replace(expected, absent=ended, since=time.time())
        state, is_fresh = inspected_state(self.of(INSPECTED, expected.name)), bool(started.get("changed"))
        problem = crash_reason(state, is_fresh, head_answers or expected.head, node.runtime)
        return replace(expected_since(node, started_at(started)), absent=problem)

    def log(self, node: str) -> list[str]:
        result = self.of(LOG, node)
        return [*result.get("stdout_lines", []), *result.get("stderr_lines", [])]


def expected_since(plan: PlannedNode, started_at: str | None) -> ExpectedNode:
    """Return the expected node, not older than its container.

    started_at: when this run started the container; None when it did not.
    """
    start = started_at or plan.started_at
    return replace(plan.expected, since=datetime.fromisoformat(start).timestamp() if start else None)


def started_at(result: TaskResult) -> str | None:
    """When a run started a node, from the result of the module that did."""
    at = (result.get("container") or {}).get("State", {}).get("StartedAt")
    return at or (result.get("node") or {}).get("started_at")


def inspected_state(result: TaskResult) -> str:
    """The state, the last exit code and the restarts of a node, from the result of the task that inspects it."""
    node = result.get("node")
    if node:
        return f"{node['state']} {node['exit_code'] or 0} {node['restarts']}"
    return str(result.get("stdout") or "")
