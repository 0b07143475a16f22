# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that can take part in a run, why others cannot, and the nodes that Ray should report after the run.

Without the head, or with fewer workers than cluster_min_workers, a run stops before it changes anything.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode
from ...module_utils.argus.common.findings import ERROR, WARNING, Finding
from ...module_utils.cluster.engine import RUNNING
from ..inventory.inventory import HostVars
from ..plan.actions import PlannedNode

# A container that was restarted so often in its first seconds will not join the cluster.
CRASH_LOOP_RESTARTS = 2
# The states of a container that the engine does not restart, and of a process whose supervisor is gone.
ENDED_STATES = ("exited", "dead", "stopped", "orphaned")
# What a task registers on a host.
TaskResult = Mapping[str, Any]
# The variables that the role ray_node registers: a node's start, its state while it is missing, and its log's end.
STARTED, INSPECTED, LOG = "__ray_node_started", "__ray_node_inspected", "__ray_node_log"


def first_line(text: object) -> str:
    """The first line of a message that is not empty; further lines repeat it, or are the output of ssh -v."""
    # ssh draws a frame of @ around its warning about a changed host key.
    lines = [bare for line in str(text or "").splitlines() if (bare := line.strip("@ \t"))]
    if not lines:
        return "without a message"
    # The line before that frame ends in the middle of a sentence.
    first = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return first.removeprefix("Task failed: ")


def task_problem(result: Mapping[str, Any] | None) -> str:
    """Why a task failed on a host, from its registered result; "" if it did not fail or did not run."""
    if not result:
        return ""
    if result.get("unreachable"):
        return f"does not answer: {first_line(result.get('msg'))}"
    failed = [item for item in result.get("results") or () if item.get("failed") or item.get("unreachable")]
    if failed or result.get("failed"):
        first = failed[0] if failed else result
        # The message of a failed command says only that it failed.
        return first_line(first.get("stderr") if first.get("rc") and first.get("stderr") else first.get("msg"))
    return ""


def machine_problem(probed: Mapping[str, Any] | None, excludes_failed: bool = True) -> str:
    """Why no node can be started on a machine, from the registered result of its probe; "" if one can.

    excludes_failed: whether the errors that preflight found on the machine count.
    """
    if not probed:
        return "was not probed in this run"
    problem = task_problem(probed)
    if problem or not excludes_failed:
        return problem
    errors = [finding for finding in probed.get("findings") or () if finding["severity"] == ERROR]
    if not errors:
        return ""
    more = len(errors) - 1
    return f"{errors[0]['problem']}{f', and {more} more error' + 's'[: more > 1] if more else ''}"


@dataclass(frozen=True)
class Presence:
    """The nodes of one run, and whether enough of them can take part."""

    heads: tuple[str, ...]
    workers: tuple[str, ...]
    # The nodes that cannot take part, with the reasons.
    absent: Mapping[str, str]
    # cluster_min_workers: how many workers the run needs; None for all of them.
    min_workers: int | None = None

    @property
    def present_workers_count(self) -> int:
        return sum(worker not in self.absent for worker in self.workers)

    @property
    def is_enough(self) -> bool:
        has_heads = not any(head in self.absent for head in self.heads)
        return has_heads and self.present_workers_count >= needed_workers_count(self.workers, self.min_workers)


def needed_workers_count(workers: Sequence[str], min_workers: int | None) -> int:
    return len(workers) if min_workers is None else min(min_workers, len(workers))


def fewer_workers_remedy(presence: Presence) -> str:
    """How to go on without the absent workers; "" if the run goes on anyway, or if the head is absent."""
    if presence.is_enough or any(head in presence.absent for head in presence.heads):
        return ""
    return f", or go on with fewer workers: -e cluster_min_workers={presence.present_workers_count}"


def with_tolerance(findings: Sequence[Finding], presence: Presence, machines: Collection[str]) -> list[Finding]:
    """The findings, with errors of these machines as warnings if enough nodes take part without those machines."""
    if not presence.is_enough:
        return list(findings)
    return [
        replace(finding, severity=WARNING) if finding.severity == ERROR and finding.where in machines else finding
        for finding in findings
    ]


def silent_findings(machines: Mapping[str, str], presence: Presence) -> list[Finding]:
    """An error for each machine that does not answer. machines: their problems, by their names."""
    remedy = f"check that it is up, and that Ansible reaches it: ansible -m ping{fewer_workers_remedy(presence)}"
    return [Finding(machine, problem, remedy) for machine, problem in machines.items()]


def shortage_findings(presence: Presence, remedy: str) -> list[Finding]:
    """An error for each absent node, with its reason; none if enough nodes take part."""
    if presence.is_enough:
        return []
    return [
        Finding(node, reason, f"{remedy}{fewer_workers_remedy(presence)}") for node, reason in presence.absent.items()
    ]


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
