# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a trial on the shared root: what each machine has written, what the others have seen of it, and the rates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..argus.common.findings import Finding
from .checks import Problem

# NFS looks again after 3 seconds at first (acregmin), and after 30 for directories (acdirmin).
LATE_SECONDS = 30.0
# A machine that is so many times slower than most is the bad one; small writes below a few milliseconds always vary.
SLOWER, SYNC_FLOOR_MS = 3.0, 20.0
MIB = 1 << 20
DIRECTIONS = ("write", "read")


@dataclass(frozen=True)
class Rate:
    """size: in bytes. begin, end: by the clock of the machine. direct: whether its own cache was left out."""

    size: int
    begin: float
    end: float
    direct: bool

    @property
    def mib_per_second(self) -> float:
        return self.size / MIB / max(self.end - self.begin, 1e-6)


@dataclass(frozen=True)
class TrialResult:
    """What one machine answers. error: why it could not take part. written: of the state written of the trial.

    seen: by host, as this machine sees its file. locks: by kind, their state on this machine. rates: by direction.
    """

    error: str = ""
    written: Mapping[str, Any] = field(default_factory=dict)
    seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    rates: Mapping[str, Rate] = field(default_factory=dict)


def trial_of(written: Mapping[str, Any], measured: Mapping[str, Any]) -> TrialResult:
    """The answer of a machine from the results of its tasks, which do not fail, so that all machines are judged."""
    answer = measured.get("trial") or {}
    return TrialResult(
        error=str(written.get("msg") or measured.get("msg") or ""),
        written=written.get("trial") or {},
        seen=answer.get("seen") or {},
        locks=answer.get("locks") or {},
        rates={kind: Rate(**rate) for kind, rate in (answer.get("rates") or {}).items()},
    )


def trial_findings(trials: Mapping[str, TrialResult]) -> list[Finding]:
    findings = []
    for host, trial in trials.items():
        findings += [
            problem.finding(host) for problem in (*_written(trial), *_locks(trial, trials), *_seen(trial, trials))
        ]
    return [*findings, *_slow_syncs(trials), *_slow_rates(trials)]


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


def _slow_syncs(trials: Mapping[str, TrialResult]) -> Iterator[Finding]:
    times = {host: each.written["sync_ms"][0] for host, each in trials.items() if each.written}
    for host, mine in times.items():
        usual = median(times.values())
        if mine > max(SYNC_FLOOR_MS, SLOWER * usual):
            what = f"4 KiB take {mine:.1f} ms to the server (median), {usual:.1f} ms on most machines"
            yield Problem("storage.sync", what).finding(host)


def _slow_rates(trials: Mapping[str, TrialResult]) -> Iterator[Finding]:
    for kind in DIRECTIONS:
        rates = {host: each.rates[kind].mib_per_second for host, each in trials.items() if kind in each.rates}
        for host, mine in rates.items():
            usual = median(rates.values())
            if len(rates) > 2 and mine * SLOWER < usual:
                what = f"{mine:.0f} MiB/s to {kind} while all do, {usual:.0f} on most machines"
                yield Problem("storage.rate", what).finding(host)


def trial_rows(trials: Mapping[str, TrialResult]) -> tuple[list[str], list[list[str]]]:
    """A table of latencies and rates, with a row for all machines together."""
    rows = [[host, *_cells(each)] for host, each in trials.items()]
    if len(trials) > 1:
        every = [[each.rates[kind] for each in trials.values() if kind in each.rates] for kind in DIRECTIONS]
        rows.append(["all", "", "", "", *map(_total, every)])
    return ["machine", "4 KiB + fsync", "p99", "sees others", *DIRECTIONS], rows


def _cells(trial: TrialResult) -> list[str]:
    usual, late = (f"{value:.2f} ms" for value in trial.written["sync_ms"]) if trial.written else ("-", "-")
    seen = [each["seconds"] for each in trial.seen.values() if each["seconds"] is not None]
    rates = [trial.rates.get(kind) for kind in DIRECTIONS]
    shown = [f"{rate.mib_per_second:.0f} MiB/s{'' if rate.direct else ' (cached)'}" if rate else "-" for rate in rates]
    return [usual, late, f"{max(seen):.1f} s" if seen else "-", *shown]


def _total(rates: Sequence[Rate]) -> str:
    """The rate of all together, from the first beginning to the last end."""
    if not rates:
        return "-"
    taken = max(rate.end for rate in rates) - min(rate.begin for rate in rates)
    return f"{sum(rate.size for rate in rates) / MIB / max(taken, 1e-6):.0f} MiB/s"
