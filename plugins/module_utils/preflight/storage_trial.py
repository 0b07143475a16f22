# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a trial on the shared root: what each machine has written, and what the others have seen of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..argus.common.findings import Finding
from .checks import Problem

# NFS looks again after 3 seconds at first (acregmin), and after 30 for directories (acdirmin).
LATE_SECONDS = 30.0


@dataclass(frozen=True)
class TrialResult:
    """What one machine answers. error: why it could not take part. written: of the state written of the trial.

    seen: by host, as this machine sees its file. locks: by kind, their state on this machine.
    """

    error: str = ""
    written: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)


def trial_of(written: Mapping[str, Any], compared: Mapping[str, Any]) -> TrialResult:
    """The answer of a machine from the results of its tasks, which do not fail, so that all machines are judged."""
    answer = compared.get("trial") or {}
    return TrialResult(
        error=str(written.get("msg") or compared.get("msg") or ""),
        written=written.get("trial") or {},
        seen=answer.get("seen") or {},
        locks=answer.get("locks") or {},
    )


def trial_findings(trials: Mapping[str, TrialResult]) -> list[Finding]:
    return [
        problem.finding(host)
        for host, trial in trials.items()
        for problem in (*_written(trial), *_locks(trial, trials), *_seen(trial, trials))
    ]


def _written(trial: TrialResult) -> Iterator[Problem]:
    written = trial.written
    if trial.error:
        yield Problem("storage.trial", trial.error)
    if written and not written["renamed"]:
        yield Problem("storage.rename", "a file that another one was renamed to has its old content")
    if written and written["uid"] != written["seen_uid"]:
        yield Problem("storage.owner", f"a file of user {written['uid']} belongs to user {written['seen_uid']} there")


def _locks(trial: TrialResult, trials: Mapping[str, TrialResult]) -> Iterator[Problem]:
    if "locks" in trial.written:
        missing = [kind for kind in ("flock", "fcntl") if kind not in trial.written["locks"]]
        if missing:
            yield Problem("storage.locks", f"{' and '.join(missing)} does not work")
    held = {kind for each in trials.values() for kind in each.written.get("locks", ())}
    for kind, state in trial.locks.items():
        if kind in held and state != "held":
            what = "this machine gets it, too" if state == "free" else "it fails on this machine"
            yield Problem("storage.locks", f"another machine holds a lock ({kind}), and {what}")


def _seen(trial: TrialResult, trials: Mapping[str, TrialResult]) -> Iterator[Problem]:
    for other, seen in trial.seen.items():
        written = trials[other].written if other in trials else {}
        if not written:
            # It did not take part.
            continue
        if seen["seconds"] is None:
            yield Problem("storage.canary", f"it does not see the file that {other} has written")
        elif not seen["right"]:
            yield Problem("storage.canary", f"it does not read what {other} has written")
        elif seen["uid"] != written["seen_uid"]:
            user = f"user {seen['uid']} as owner of a file that belongs to user {written['seen_uid']} on {other}"
            yield Problem("storage.owner", f"it sees {user}")
        elif seen["seconds"] > LATE_SECONDS:
            late = f"after {seen['seconds']:.0f} s, expected {LATE_SECONDS:.0f} s at most"
            yield Problem("storage.late", f"it sees the file of {other} {late}")
