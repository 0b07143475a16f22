# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attendance: the nodes of a run that cannot take part, why, and whether the run goes on without them.

A machine that does not answer and one that has errors are treated alike. Without the head, or with fewer workers than
asked for, a run stops before it changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils.argus.common.findings import ERROR, WARNING, Finding

# A container that the engine has started again so often in its first seconds does not join.
MOST_RESTARTS = 2
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
        # Of a command, the message only says that it failed.
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
    found = [finding for finding in probed.get("findings") or () if finding["severity"] == ERROR]
    if not found:
        return ""
    more = len(found) - 1
    return f"{found[0]['what']}{f', and {more} more error' + 's'[: more > 1] if more else ''}"


def crash(inspected: str, fresh: bool, head_answers: bool, kind: str = "container") -> str:
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
    if fresh and head_answers and restarts >= MOST_RESTARTS:
        return f"its {kind} ended {restarts} times, and was started again each time"
    return ""


@dataclass(frozen=True)
class Attendance:
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
        return not any(head in self.absent for head in self.heads) and self.present >= needed(self.workers, self.least)


def needed(workers: Sequence[str], least: int | None) -> int:
    return len(workers) if least is None else min(least, len(workers))


def go_on(attendance: Attendance) -> str:
    """How to go on without the absent workers; "" if the run does, or if the head is absent."""
    if attendance.is_enough or any(head in attendance.absent for head in attendance.heads):
        return ""
    return f", or go on with fewer workers: -e cluster_min_workers={attendance.present}"


def tolerated(found: Sequence[Finding], attendance: Attendance, machines: Collection[str]) -> list[Finding]:
    """Findings about machines: errors become warnings, if the run goes on without the nodes of these machines."""
    if not attendance.is_enough:
        return list(found)
    return [
        replace(finding, severity=WARNING) if finding.severity == ERROR and finding.where in machines else finding
        for finding in found
    ]


def silent_findings(machines: Mapping[str, str], attendance: Attendance) -> list[Finding]:
    todo = f"check that it is up, and that Ansible reaches it: ansible -m ping{go_on(attendance)}"
    return [Finding(machine, problem, todo) for machine, problem in machines.items()]


def shortage_findings(attendance: Attendance, todo: str) -> list[Finding]:
    """Why a run stops: each absent node with its reason; none while enough nodes take part."""
    if attendance.is_enough:
        return []
    return [Finding(node, reason, f"{todo}{go_on(attendance)}") for node, reason in attendance.absent.items()]
