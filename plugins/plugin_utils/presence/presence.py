# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that can take part in a run, and why others cannot: their machine does not answer, or has errors.

Without the head, or with fewer workers than cluster_min_workers, a run stops before it changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils.argus.common.findings import ERROR, WARNING, Finding


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
