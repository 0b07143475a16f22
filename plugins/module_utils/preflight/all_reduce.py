# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks collective.*: an all-reduce over all workers of a running cluster. Runs on the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..argus.common.findings import NOTE, WARNING, Finding
from ..argus.fabric.all_reduce import Bandwidth, Verdict, from_json
from .checks import Problem

SILENT_REMEDY = "look whether its machine and its processes hang; stop its container, and run cluster_up.yml"
ALL_WORKERS = "all workers"


def all_reduce_findings(answer: Mapping[str, Any]) -> list[Finding]:
    """Return the problems of an all-reduce.

    answer: of the verb all_reduce of the program; {} if the cluster does not run.
    """
    unlisted = Problem(
        "collective.skipped", "no all-reduce with it: Ray does not list it", "cluster_up.yml starts it", NOTE
    )
    absent = [unlisted.finding(name) for name in answer.get("absent", [])]
    if not answer.get("whole"):
        reason, failed = answer.get("skipped"), answer.get("msg")
        severity = NOTE if reason else WARNING
        skipped = Problem("collective.skipped", f"no all-reduce: {reason or failed}", severity=severity).finding(
            ALL_WORKERS
        )
        return [*absent, *([skipped] if reason or failed else [])]
    verdict = from_json(dict(answer))
    findings = [_node_finding(verdict, name) for name in verdict.bad]
    for first, second in verdict.links:
        problem = f"it and {first}: {_rate_text(verdict.measured[first, second])}; both are fine with other workers"
        findings.append(_bandwidth_problem(verdict.measured[first, second], problem).finding(second))
    if verdict.group:
        measured = verdict.measured.get(verdict.group, verdict.whole)
        problem = f"{' and '.join(verdict.group)} together: {_rate_text(measured)}"
        parts = "" if len(verdict.group) == 2 else ", although their halves are fine"
        findings.append(_bandwidth_problem(measured, problem + parts).finding(", ".join(verdict.group)))
    if not findings and verdict.whole.bandwidth is None:
        # Every pair has failed.
        findings.append(Problem("collective.works", _rate_text(verdict.whole)).finding(ALL_WORKERS))
    return [*absent, *findings]


def _node_finding(verdict: Verdict, name: str) -> Finding:
    if silent := verdict.measured.get((name,)):
        return Problem(
            "collective.works", f"runs nothing that Ray starts on it: {silent.error}", SILENT_REMEDY
        ).finding(name)
    pair = [group for group in verdict.measured if len(group) == 2 and name in group][-1]
    other = next(node for node in pair if node != name)
    problem = f"with {other}, which is fine with others: {_rate_text(verdict.measured[pair])}"
    if verdict.usual:
        problem += f" (most pairs: {verdict.usual:.2f} GB/s)"
    return _bandwidth_problem(verdict.measured[pair], problem).finding(name)


def _bandwidth_problem(measured: Bandwidth, text: str) -> Problem:
    return Problem("collective.works" if measured.bandwidth is None else "collective.bandwidth", text)


def _rate_text(measured: Bandwidth) -> str:
    return f"fails ({measured.error})" if measured.bandwidth is None else f"{measured.bandwidth:.2f} GB/s"


def all_reduce_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return what was measured, as lines of text; none if nothing was measured."""
    if not answer.get("whole"):
        return []
    verdict = from_json(dict(answer))
    first = (
        f"All-reduce of all workers ({answer['processes']} processes, {answer['backend']}): {_rate_text(verdict.whole)}"
    )
    return [first, *(f"{', '.join(group)}: {_rate_text(measured)}" for group, measured in verdict.measured.items())]
