# SPDX-License-Identifier: GPL-3.0-or-later
"""Presence: the nodes that take part in a run, those that cannot and why, and the state of the cluster."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

from ...module_utils.argus.cluster.membership import ExpectedNode, NodeRow, NodeState, unlisted_nodes
from ...module_utils.argus.common.findings import ERROR, WARNING, Finding
from ...module_utils.argus.ray.api import slowness_lines
from ...module_utils.argus.ray.departures import loss_sentences
from ...module_utils.argus.ray.records import ALIVE
from ...module_utils.cluster.engine import DOCKER, PODMAN, RUNNING
from ..inventory.inventory import HostVars
from ..plan.actions import ActionKind, PlannedNode
from ..plan.departure import ODD_NAME, drain_command, is_plain

# A machine that does not answer and one that has errors are treated alike. Without the head, or with fewer workers
# than asked for, a run stops before it changes anything.

# A container with so many restarts in its first seconds does not join.
CRASH_LOOP_RESTARTS = 2
# The states of a container that the engine does not start again, and of a process without its supervisor.
ENDED_STATES = ("exited", "dead", "stopped", "orphaned")


def first_line(text: object) -> str:
    """The first line of a message that is not empty; others repeat it, or are the output of ssh -v."""
    # ssh draws a frame of these around its warning about another host key.
    lines = [bare for line in str(text or "").splitlines() if (bare := line.strip("@ \t"))]
    if not lines:
        return "without a message"
    # Then the line in front of the frame ends in the middle of a sentence.
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


def machine_problem(probed: Mapping[str, Any] | None, checked: bool = True) -> str:
    """Why nothing can be started on a machine, from the registered result of its probe; "" if something can.

    checked: whether the errors that preflight found count.
    """
    if not probed:
        return "was not probed in this run"
    problem = task_problem(probed)
    if problem or not checked:
        return problem
    errors = [finding for finding in probed.get("findings") or () if finding["severity"] == ERROR]
    if not errors:
        return ""
    more = len(errors) - 1
    return f"{errors[0]['problem']}{f', and {more} more error' + 's'[: more > 1] if more else ''}"


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


@dataclass(frozen=True)
class Presence:
    """The nodes of one run.

    absent: why nodes cannot take part, by their names.
    least: how many workers a run needs; None for all of them.
    """

    heads: tuple[str, ...]
    workers: tuple[str, ...]
    absent: Mapping[str, str]
    least: int | None = None

    @property
    def present(self) -> int:
        return sum(worker not in self.absent for worker in self.workers)

    @property
    def is_enough(self) -> bool:
        return not any(head in self.absent for head in self.heads) and self.present >= quorum(self.workers, self.least)


def quorum(workers: Sequence[str], least: int | None) -> int:
    return len(workers) if least is None else min(least, len(workers))


def fewer_workers(presence: Presence) -> str:
    """How to go on without the absent workers; "" if the run does, or if the head is absent."""
    if presence.is_enough or any(head in presence.absent for head in presence.heads):
        return ""
    return f", or go on with fewer workers: -e cluster_min_workers={presence.present}"


def with_tolerance(findings: Sequence[Finding], presence: Presence, machines: Collection[str]) -> list[Finding]:
    """Findings about machines: errors become warnings, if the run goes on without the nodes of these machines."""
    if not presence.is_enough:
        return list(findings)
    return [
        replace(finding, severity=WARNING) if finding.severity == ERROR and finding.where in machines else finding
        for finding in findings
    ]


def silent_findings(machines: Mapping[str, str], presence: Presence) -> list[Finding]:
    remedy = f"check that it is up, and that Ansible reaches it: ansible -m ping{fewer_workers(presence)}"
    return [Finding(machine, problem, remedy) for machine, problem in machines.items()]


def shortage_findings(presence: Presence, remedy: str) -> list[Finding]:
    """Why a run stops: each absent node with its reason; none while enough nodes take part."""
    if presence.is_enough:
        return []
    return [Finding(node, reason, f"{remedy}{fewer_workers(presence)}") for node, reason in presence.absent.items()]


# The nodes of a plan as they are expected after a run has prepared machines and started nodes.

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


# The state of a cluster, as ray_cluster_info returns it and as a table shows it.

# As many lines per missing node as still leave all of them on one screen.
LOG_LINES = 15


@dataclass(frozen=True)
class ClusterInfo:
    """The return values of ray_cluster_info that filters read; the module documents them."""

    complete: bool
    missing: Sequence[str]
    rows: Sequence[NodeRow]
    waited: float
    problem: str
    # How many seconds the head needed, if it did not answer the first attempt.
    slow: float = 0.0
    # All nodes that Ray knows, as its state API returns them.
    nodes: Sequence[Mapping[str, Any]] = ()
    # The nodes that were lost under several jobs lately, with these.
    bad_nodes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def from_json(cls, answer: Mapping[str, Any]) -> ClusterInfo:
        values = {attribute.name: answer[attribute.name] for attribute in fields(cls) if attribute.name in answer}
        return cls(**{**values, "rows": [NodeRow.from_json(row) for row in answer["rows"]]})


@dataclass(frozen=True)
class Scope:
    """What a report is about.

    inventory_nodes: the names of all nodes of the inventory. heads: those of them that are the head.
    outside: the nodes of the inventory that --limit leaves out.
    least: how many workers are enough; None for all.
    """

    name: str
    dashboard: str
    inventory_nodes: Sequence[str]
    heads: Sequence[str]
    outside: Sequence[str] = ()
    least: int | None = None


def cluster_report(
    cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]], scope: Scope
) -> dict[str, Any]:
    """The arguments of the module report, for a ready cluster, or the missing nodes with the end of their logs.

    plans, logs: by node; a node outside this run has none.
    """
    whole = cluster.complete
    rows = []
    # The head does not tell the use of nodes while others are awaited.
    use = {str(node["node_name"]): node for node in cluster.nodes if node.get("state") == ALIVE and "jobs" in node}
    for row in cluster.rows:
        plan = plans.get(row.name)
        # In a ready cluster, the resources as expected and as seen are the same.
        resources = [row.seen] if whole else [row.expected or None, row.seen]
        decided = [plan.accelerator, plan.action.value] if plan else [None, None]
        if use:
            node = use.get(row.name, {})
            resources += [node.get("free") or None, ", ".join(node.get("jobs", ())) or None]
        rows.append([row.name, row.state.value, *resources, *decided])
    columns = [*(["resources"] if whole else ["expected", "seen"]), *(["free", "jobs"] if use else [])]
    ready = whole or is_enough(cluster, scope)
    outside = f", {len(scope.outside)} not in this run" if scope.outside else ""
    return {
        "title": f"Cluster {scope.name}: {len(rows) - len(cluster.missing)} of {len(rows)} nodes as expected{outside}",
        "header": ["node", "state", *columns, "accelerator", "action"],
        "rows": rows,
        "text": [
            *slowness_lines(cluster.slow),
            *([] if whole else _problems(cluster, logs, scope.heads)),
            *notes(cluster, scope),
            *([f"Goes on with fewer workers: cluster_min_workers is {scope.least}"] if ready and not whole else []),
            *([f"Dashboard: {scope.dashboard}"] if ready else []),
        ],
        "failure_text": "" if ready else _failure(cluster, plans, logs),
    }


def is_enough(cluster: ClusterInfo, scope: Scope) -> bool:
    """Whether the head and as many workers as asked for are as expected."""
    if scope.least is None or cluster.problem or any(name in scope.heads for name in cluster.missing):
        return False
    workers = [row.name for row in cluster.rows if row.name not in scope.heads]
    return sum(name not in cluster.missing for name in workers) >= quorum(workers, scope.least)


def notes(cluster: ClusterInfo, scope: Scope) -> list[str]:
    """Nodes that people have to know about, although they are not missing."""
    text = [
        f"{stranger.describe()} is not in the inventory, and takes jobs. "
        f"{f'To take it out: {drain_command(stranger.name)}' if is_plain(stranger.name) else ODD_NAME}"
        for stranger in unlisted_nodes(cluster.nodes, scope.inventory_nodes)
    ]
    text += loss_sentences(cluster.bad_nodes)
    draining = [row.name for row in cluster.rows if row.state == NodeState.DRAINING]
    if draining:
        text.append(
            f"{', '.join(draining)}: no new work. To take it back, run drain.yml, which removes it, then cluster_up.yml"
        )
    return text


def _problems(cluster: ClusterInfo, logs: Mapping[str, Sequence[str]], heads: Sequence[str]) -> list[str]:
    text = [f"The head: {cluster.problem}"] if cluster.problem else []
    # Without the head no worker joins, and their logs say only that.
    without_head = any(head in cluster.missing and logs.get(head) for head in heads)
    for name in heads if without_head else cluster.missing:
        lines = logs.get(name, ())[-LOG_LINES:]
        if lines:
            text += [f"The last lines of {name}:", *(f"  {line}" for line in lines)]
    return text


def _failure(cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]]) -> str:
    after = f" after {cluster.waited:.0f} s" if cluster.waited >= 1 else ""
    return (
        f"The cluster is not ready{after}. Fix the problems shown above and run cluster_up.yml again: it starts only "
        f"the nodes that are missing{_more(cluster, plans, logs)}"
    )


def _more(cluster: ClusterInfo, plans: Mapping[str, PlannedNode], logs: Mapping[str, Sequence[str]]) -> str:
    """Where the logs of the nodes in question are, as an administrator finds them; "" if they have none."""
    names = [name for name in cluster.missing or plans if name in plans]
    # A node that is only to be created has none, unless this run has created it and read its log.
    logged = [name for name in names if logs.get(name) or plans[name].action != ActionKind.CREATE]
    if not logged:
        return ""
    name = logged[0] if len(logged) == 1 else "NODE"
    directory = plans[logged[0]].process.get("directory")
    engine = PODMAN if plans[logged[0]].podman else DOCKER
    where = f"{PurePosixPath(directory).parent}/{name}/node.log on its host" if directory else f"`{engine} logs {name}`"
    return f". {where} shows more"
