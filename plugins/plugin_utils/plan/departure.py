# SPDX-License-Identifier: GPL-3.0-or-later
"""Departure: how nodes leave the cluster, and the jobs that this would end."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ...module_utils.argus.archive.status import submission_id_of
from ...module_utils.argus.cluster.membership import unlisted_nodes
from ...module_utils.argus.common.findings import WARNING, Finding
from ...module_utils.argus.common.text import printable, spelling_hint
from ...module_utils.argus.ray.api import ALIVE
from ...module_utils.cluster.engine import CLUSTER_LABEL
from ...module_utils.cluster.machine import PlannedMachine
from .actions import PlannedNode

# Names that commands may contain. Jobs have the cluster's token, so they can start nodes with any name, also one that a
# shell or a template of Ansible would evaluate.
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
ODD_NAME = "No playbook takes such a name: end it on its host, and find out whose job has started it"
IN_INVENTORY = "cluster_up.yml starts it again, as long as it is in the inventory"


def is_plain(node: str) -> bool:
    """Whether the name of a node can be part of a command for people."""
    return PLAIN_NAME.fullmatch(node) is not None


def drain_command(node: str) -> str:
    return f"drain.yml -e node={node}"


@dataclass(frozen=True)
class Departure:
    """A node that is to leave.

    machine: the host that has its container or process.
    node_id: Ray's id; "" if Ray does not have the node alive.
    runs: whether it runs there.
    last: whether nothing else of the cluster is on the machine, so that its token goes as well.
    """

    node: str
    machine: str = ""
    node_id: str = ""
    runs: bool = False
    last: bool = False
    in_inventory: bool = False

    @property
    def gone(self) -> bool:
        return not self.node_id and not self.machine

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "gone": self.gone}


def departure(
    node: str,
    nodes: Sequence[Mapping[str, Any]],
    machines: Mapping[str, PlannedMachine],
    expected: Collection[str],
    head_machine: str,
) -> Departure:
    """How a node leaves.

    nodes: as the head knows them. machines: by their hosts. expected: the nodes of the inventory.
    """
    alive = [row for row in nodes if row["node_name"] == node and row["state"] == ALIVE]
    # For a while Ray reports a node and its replacement as alive.
    newest = max(alive, key=lambda row: row.get("start_time_ms", 0), default={})
    holders = {host: planned for host, planned in machines.items() if node in planned.present}
    machine, planned = next(iter(holders.items()), ("", None))
    others = [name for name in planned.present if name != node] if planned else [node]
    return Departure(
        node=node,
        machine=machine,
        node_id=str(newest.get("node_id") or ""),
        runs=planned is not None and node in planned.running,
        last=not others and machine != head_machine,
        in_inventory=node in expected,
    )


def departure_findings(
    leaving: Departure, heads: Collection[str], names: Collection[str], silent: Mapping[str, str], node_machine: str
) -> list[Finding]:
    """Why a node cannot be taken out.

    names: of all nodes. silent: the machines that do not answer, with their problems. node_machine: the
    machine of the node, if it is in the inventory.
    """
    node = leaving.node
    if not node:
        return [Finding("node", "is not given", f"name it: -e node=NAME; {', '.join(names)}")]
    if node in heads:
        return [Finding(node, "is the head: without it there is no cluster", "cluster_down.yml removes the cluster")]
    if leaving.gone and leaving.in_inventory:
        if node_machine in silent:
            problem = f"is not alive in Ray, and its machine {node_machine} {silent[node_machine]}"
            return [Finding(node, problem, "run drain.yml again when it answers: what is left of the node is there")]
        return [Finding(node, "is out already: neither alive in Ray nor on its machine", IN_INVENTORY, WARNING)]
    if leaving.gone:
        hint = spelling_hint(node, names) or f"known: {', '.join(names)}"
        return [Finding(node, "is neither alive in Ray nor on a machine of the inventory", hint)]
    if not leaving.machine:
        unknown = f"; {', '.join(silent)} did not answer" if silent else ""
        problem = f"it is on no machine of the inventory that answers{unknown}"
        remedy = "put its machine into the inventory until the node is out"
        return [Finding(node, f"{problem}; removed from Ray only, it would come back", remedy)]
    return []


def hold_findings(
    node: str, jobs: Sequence[str], waited: float, allowed: bool, would_wait: float | None = None
) -> list[Finding]:
    """The jobs that still use a node: errors, or warnings if they may be ended.

    would_wait: how long drain.yml would wait for them; None if it has done so.
    """
    if not jobs:
        return []
    listed = ", ".join(jobs)
    if allowed:
        return [
            Finding(node, f"its removal ends {listed}", "jobs with retries left go on on other workers", WARNING),
        ]
    if would_wait is not None:
        problem = f"would get no new work, and wait up to {would_wait:.0f} s for {listed} before it is removed"
        return [Finding(node, problem, "to end them instead: -e allow_disruption=true", WARNING)]
    remedy = "it gets no new work; run drain.yml again later, or end them: -e allow_disruption=true"
    return [Finding(node, f"is still used after {waited:.0f} s by {listed}", remedy)]


def left_behind(
    nodes: Sequence[Mapping[str, Any]], machines: Iterable[PlannedMachine], cluster: str, expected: Collection[str]
) -> list[Finding]:
    """Nodes that cluster_down does not remove.

    Those that are alive, not in the inventory, and on none of its machines; and containers with the name of a node that
    belong to another cluster, as all do if the name of the cluster is misspelt.
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
        for stranger in unlisted_nodes(nodes, expected)
        if stranger.name not in removed
    ]


def removal_command(node: str, cluster: str, engine: str) -> str:
    """How to remove a node of Ray by hand.

    A job may have given it the name of a container that is none of the cluster's.
    """
    if not is_plain(node):
        return ODD_NAME
    if not engine:
        return f"on its host: pkill -f 'node .*/{cluster}/nodes/{node}$'"
    listed = f"{engine} ps -aq --filter label={CLUSTER_LABEL}={cluster} --filter name=^{node}$"
    return f"on its machine: {engine} rm -fv $({listed})"


def outside_notes(workers: Sequence[str], inventory_nodes: Sequence[str]) -> list[str]:
    """One line about the workers that are not in the inventory, or none."""
    names = [worker for worker in workers if worker not in set(inventory_nodes)]
    if not names:
        return []
    verb = "is" if len(names) == 1 else "are"
    shown = printable(", ".join(names), lines=False)
    remedy = drain_command(names[0]) if is_plain(names[0]) else ODD_NAME
    return [f"{shown} {verb} not in the inventory, and counted as room: {remedy}"]


# Disruption: the jobs that an operation on running nodes would end.

# What ray_cluster_info says of a head on which nothing listens, or whose container ends again and again.
NOBODY_LISTENS = (os.strerror(errno.ECONNREFUSED), "is restarting on", "is not running on")
GOES_ON = "nothing, the restart goes on"
REMEDY = "wait for them or stop them, or pass -e allow_disruption=true"


@dataclass(frozen=True)
class ActiveJobs:
    """The jobs of a cluster that have not ended.

    running: their states as Ray reports them, by its ids. problem: why the head cannot list them, or "".
    unended: the ids of jobs whose archives are open, also of those that Ray does not know yet; None if not known.
    """

    running: Mapping[str, str]
    problem: str = ""
    unended: Sequence[str] | None = ()


def job_findings(jobs: ActiveJobs, where: str, operation: str) -> list[Finding]:
    """Why an operation that ends nodes has to be refused now; no finding when no job runs.

    operation: the first words of a sentence, such as "restarting it".
    """
    unended = list(jobs.unended or ())
    if jobs.problem:
        problem = f"{operation} may end jobs, and they cannot be listed: {jobs.problem}"
        problem += f"; it would end {', '.join(unended)}" if unended else ""
        return [Finding(where, problem, REMEDY)]
    submission_ids = {submission_id_of(job) for job in jobs.running}
    listed = [f"{job} ({status})" for job, status in jobs.running.items()]
    listed += [job for job in unended if job not in submission_ids]
    return [Finding(where, f"{operation} would end {', '.join(listed)}", REMEDY)] if listed else []


def removal_findings(jobs: ActiveJobs, head: str, allowed: bool) -> list[Finding]:
    """The jobs that the removal of a cluster would end; warnings when that is allowed."""
    findings = job_findings(jobs, head, "removing the cluster")
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def disruption_findings(nodes: Mapping[str, PlannedNode], jobs: ActiveJobs, allowed: bool) -> list[Finding]:
    """The jobs that the planned restarts would end; warnings when that is allowed."""
    findings = [
        finding
        for name, node in nodes.items()
        if node.disrupts
        for finding in job_findings(jobs, name, f"restarting it ({node.reason})")
    ]
    # A Ray that has not started, as with wrong settings: nothing listens, and no job was submitted or all have ended.
    never_ran = any(message in jobs.problem for message in NOBODY_LISTENS)
    if never_ran and jobs.unended is not None and not jobs.unended and not allowed:
        return [
            replace(finding, problem=f"{finding.problem}; all archives are closed", remedy=GOES_ON, severity=WARNING)
            for finding in findings
        ]
    return [replace(finding, severity=WARNING) for finding in findings] if allowed else findings


def rotation_findings(planned: Iterable[str], nodes: Iterable[str]) -> list[Finding]:
    """Return why a rotation of the token has to be refused: a node that is not in this run would keep the old one."""
    rotated = set(planned)
    return [
        Finding(
            node,
            "is not in this run, and would be cut off by the new token",
            "rotate the token of all nodes at once: run without --limit, with every machine reachable",
        )
        for node in nodes
        if node not in rotated
    ]
