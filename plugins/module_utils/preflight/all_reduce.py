# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge the all-reduce over the workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..argus.common.findings import NOTE, WARNING, Finding
from ..argus.fabric.suspects import Measured, Verdict, from_json
from .checks import Problem

SILENT = "look whether its machine and its processes hang; stop its container, and run cluster_up.yml"
ALL = "all workers"


def all_reduce_findings(answer: Mapping[str, Any]) -> list[Finding]:
    """answer: of the verb all_reduce; {} if the cluster does not run."""
    away = Problem(
        "collective.skipped", "no all-reduce with it: Ray does not list it", "cluster_up.yml starts it", NOTE
    )
    absent = [away.finding(name) for name in answer.get("absent", [])]
    if not answer.get("whole"):
        reason, failed = answer.get("skipped"), answer.get("msg")
        severity = NOTE if reason else WARNING
        skipped = Problem("collective.skipped", f"no all-reduce: {reason or failed}", severity=severity).finding(ALL)
        return [*absent, *([skipped] if reason or failed else [])]
    verdict = from_json(dict(answer))
    found = [_node(verdict, name) for name in verdict.bad]
    for first, second in verdict.links:
        what = f"it and {first}: {_text(verdict.measured[first, second])}; both are fine with other workers"
        found.append(_problem(verdict.measured[first, second], what).finding(second))
    if verdict.group:
        measured = verdict.measured.get(verdict.group, verdict.whole)
        what = f"{' and '.join(verdict.group)} together: {_text(measured)}"
        parts = "" if len(verdict.group) == 2 else ", although their halves are fine"
        found.append(_problem(measured, what + parts).finding(", ".join(verdict.group)))
    if not found and verdict.whole.bandwidth is None:
        # Every pair has failed.
        found.append(Problem("collective.works", _text(verdict.whole)).finding(ALL))
    return [*absent, *found]


def _node(verdict: Verdict, name: str) -> Finding:
    if silent := verdict.measured.get((name,)):
        return Problem("collective.works", f"runs nothing that Ray starts on it: {silent.error}", SILENT).finding(name)
    pair = [group for group in verdict.measured if len(group) == 2 and name in group][-1]
    other = next(node for node in pair if node != name)
    what = f"with {other}, which is fine with others: {_text(verdict.measured[pair])}"
    if verdict.usual:
        what += f" (most pairs: {verdict.usual:.2f} GB/s)"
    return _problem(verdict.measured[pair], what).finding(name)


def _problem(measured: Measured, what: str) -> Problem:
    return Problem("collective.works" if measured.bandwidth is None else "collective.bandwidth", what)


def _text(measured: Measured) -> str:
    return f"fails ({measured.error})" if measured.bandwidth is None else f"{measured.bandwidth:.2f} GB/s"


def all_reduce_lines(answer: Mapping[str, Any]) -> list[str]:
    """What was measured; no lines if nothing was."""
    if not answer.get("whole"):
        return []
    verdict = from_json(dict(answer))
    first = f"All-reduce of all workers ({answer['processes']} processes, {answer['backend']}): {_text(verdict.whole)}"
    return [first, *(f"{', '.join(group)}: {_text(measured)}" for group, measured in verdict.measured.items())]
