# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that Ray should report after a run: those of the plan, and what the run's tasks have registered on them."""

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

# A container that was restarted so often in its first seconds will not join the cluster.
CRASH_LOOP_RESTARTS = 2
# The states of a container that the engine does not restart, and of a process whose supervisor is gone.
ENDED_STATES = ("exited", "dead", "stopped", "orphaned")


def crash_reason(inspected: str, is_fresh: bool, head_answers: bool, kind: str) -> str:
    """Why a node that has not joined will never join; "" if it may.

    inspected: its "<state> <exit code> <restarts>". is_fresh: whether this run started it. kind: container or process.
    head_answers: a worker without an answering head may well be restarted several times, and join later.
    """
    parts = inspected.split()
    if len(parts) != 3 or not all(part.lstrip("-").isdigit() for part in parts[1:]):
        return ""
    state, code, restarts = parts[0], int(parts[1]), int(parts[2])
    if state in ENDED_STATES:
        return f"its {kind} ended with exit code {code}"
    if is_fresh and head_answers and restarts >= CRASH_LOOP_RESTARTS:
        return f"its {kind} ended {restarts} times, and was started again each time"
    return ""


# What a task registers on a host.
TaskResult = Mapping[str, Any]
# The variables that the role ray_node registers: a node's start, its state while it is missing, and its log's end.
STARTED, INSPECTED, LOG = "__ray_node_started", "__ray_node_inspected", "__ray_node_log"


@dataclass(frozen=True)
class RunResults:
    """What the tasks of a run have registered."""

    hostvars: HostVars
    # The result of the module cluster_plan.
    plan: Mapping[str, Any]

    def of(self, name: str, host: str) -> TaskResult:
        """The result of a task on a host; {} if it did not run there."""
        return self.hostvars[host].get(name) or {}

    def nodes(self) -> dict[str, PlannedNode]:
        return {name: PlannedNode.from_json(node) for name, node in self.plan["nodes"].items()}

    def expected(self, head_answers: bool) -> list[ExpectedNode]:
        return [self.expected_node(node, head_answers) for node in self.nodes().values()]

    def expected_node(self, node: PlannedNode, head_answers: bool) -> ExpectedNode:
        """The node of the plan, with the reason if its start failed, and the time since which a start counts."""
        expected, started = node.expected, self.of(STARTED, node.expected.name)
        if node.absent_reason:
            return expected
        if problem := task_problem(started):
            return replace(expected, absent=f"its {node.runtime} could not be started: {problem}")
        if not started and node.state != RUNNING:
            # Its machine knows that it ended before Ray notices. Only a start from now on counts.
            ended = f"its {node.runtime} is {node.state}" if node.state else f"it has no {node.runtime}"
            return replace(expected, absent=ended, since=time.time())
        state, is_fresh = inspected_state(self.of(INSPECTED, expected.name)), bool(started.get("changed"))
        problem = crash_reason(state, is_fresh, head_answers or expected.head, node.runtime)
        return replace(expected_since(node, start_time(started)), absent=problem)

    def log(self, node: str) -> list[str]:
        result = self.of(LOG, node)
        return [*result.get("stdout_lines", []), *result.get("stderr_lines", [])]


def expected_since(plan: PlannedNode, started_at: str | None) -> ExpectedNode:
    """The expected node, which counts for Ray only if it is not older than its container or process.

    started_at: when this run started that; None if it did not.
    """
    start = started_at or plan.started_at
    return replace(plan.expected, since=datetime.fromisoformat(start).timestamp() if start else None)


def start_time(result: TaskResult) -> str | None:
    """When a run started a node, in ISO 8601, from the result of the module that started it; None if none did."""
    at = (result.get("container") or {}).get("State", {}).get("StartedAt")
    return at or (result.get("node") or {}).get("started_at")


def inspected_state(result: TaskResult) -> str:
    """A node's "<state> <exit code> <restarts>", from the result of the task that inspects it; "" without one."""
    node = result.get("node")
    if node:
        return f"{node['state']} {node['exit_code'] or 0} {node['restarts']}"
    return str(result.get("stdout") or "")
