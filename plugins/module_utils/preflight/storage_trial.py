# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Judge a trial on the shared root: what each machine has written, what the others have seen of it, and the rates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from ..argus.common.findings import ERROR, WARNING, Finding
from ..storage.rates import Rate
from ..storage.trial import Seen, Written
from .checks import Check, Problem
from .tier import Tier

WORKS = Check(
    "storage.trial",
    ERROR,
    "the nodes' user can write, read and lock on the shared root",
    "correct the error on that machine; cluster_up.yml creates the directories of the shared root",
    Tier.STANDARD,
)
CANARY = Check(
    "storage.canary",
    ERROR,
    "what one machine writes to the shared root, all others read",
    "mount the same export on both machines, with caches of at most a minute (acdirmax)",
    Tier.STANDARD,
)
LATE = Check(
    "storage.late",
    WARNING,
    "files of other machines are seen at once",
    "mount the shared root with lookupcache=positive, or a smaller acdirmax",
    Tier.STANDARD,
)
OWNER = Check(
    "storage.owner",
    ERROR,
    "all machines see the same owner of a file",
    "on NFSv4 set one domain in /etc/idmapd.conf, or use numeric ids; give the nodes' user one uid everywhere",
    Tier.STANDARD,
)
LOCKS = Check(
    "storage.locks",
    ERROR,
    "locks of one machine keep out the others",
    "mount the shared root without nolock and local_lock, on Lustre with flock",
    Tier.STANDARD,
)
RENAME = Check(
    "storage.rename",
    ERROR,
    "a file is replaced by renaming another one",
    "use a file system with POSIX semantics; object stores behind FUSE have none",
    Tier.STANDARD,
)
SYNC = Check(
    "storage.sync",
    WARNING,
    "small writes are not far slower than on other machines",
    "compare the network and the mount options of this machine with those of the others",
    Tier.STANDARD,
)
RATE = Check(
    "storage.rate",
    WARNING,
    "no machine reads or writes far slower than the others",
    "compare the network and the mount options of this machine with those of the others",
    Tier.STANDARD,
)
CHECKS = (WORKS, CANARY, LATE, OWNER, LOCKS, RENAME, SYNC, RATE)
# NFS looks again after 3 seconds at first (acregmin), and after 30 for directories (acdirmin).
LATE_SECONDS = 30.0
# A machine that is so many times slower than most is the bad one; small writes below a few milliseconds always vary.
SLOWER, SYNC_FLOOR_MS = 3.0, 20.0
MIB = 1 << 20


@dataclass(frozen=True)
class Trial:
    """What one machine answers. error: why it could not take part.

    locks: by kind, what it found of the locks of another machine. held: the kinds that the holder got.
    alone, together: the rates by direction, of this machine alone and of all at once.
    """

    error: str = ""
    written: Written | None = None
    seen: Mapping[str, Seen] = field(default_factory=dict)
    locks: Mapping[str, str] = field(default_factory=dict)
    held: Sequence[str] | None = None
    alone: Mapping[str, Rate] = field(default_factory=dict)
    together: Mapping[str, Rate] = field(default_factory=dict)


def trial_of(*results: Mapping[str, Any]) -> Trial:
    """The answer of a machine from the results of its tasks; {} for one that did not run."""
    written, seen, alone, together = results
    # The tasks do not fail, so that all machines can be judged.
    failed = next((str(each["msg"]) for each in results if each.get("msg")), "")
    held = (written.get("locks") or {}).get("held")
    return Trial(
        error=failed,
        written=Written(**written["written"]) if written.get("written") else None,
        seen={host: Seen(**each) for host, each in (seen.get("seen") or {}).items()},
        locks=seen.get("locks") or {},
        held=held,
        alone={kind: Rate(**each) for kind, each in (alone.get("rates") or {}).items()},
        together={kind: Rate(**each) for kind, each in (together.get("rates") or {}).items()},
    )


def trial_findings(trials: Mapping[str, Trial]) -> list[Finding]:
    found = [Problem(WORKS, each.error).finding(host) for host, each in trials.items() if each.error]
    for host, each in trials.items():
        problems = [*_written(each), *_locks(each, trials)]
        found += [problem.finding(host) for problem in problems]
    return [*found, *_canaries(trials), *_slow_syncs(trials), *_slow_rates(trials)]


def _written(trial: Trial) -> Iterator[Problem]:
    written = trial.written
    if written and not written.renamed:
        yield Problem(RENAME, "a file that another one was renamed to has its old content")
    if written and written.uid != written.seen_uid:
        yield Problem(OWNER, f"a file of user {written.uid} belongs to user {written.seen_uid} there")


def _locks(trial: Trial, trials: Mapping[str, Trial]) -> Iterator[Problem]:
    if trial.held is not None:
        missing = [kind for kind in ("flock", "fcntl") if kind not in trial.held]
        if missing:
            yield Problem(LOCKS, f"{' and '.join(missing)} does not work")
    held = {kind for each in trials.values() for kind in each.held or ()}
    for kind, state in trial.locks.items():
        if kind in held and state != "held":
            what = "this machine gets it, too" if state == "free" else "it fails on this machine"
            yield Problem(LOCKS, f"another machine holds a lock ({kind}), and {what}")


def _canaries(trials: Mapping[str, Trial]) -> Iterator[Finding]:
    for host, trial in trials.items():
        for other, seen in trial.seen.items():
            written = trials[other].written if other in trials else None
            if written is None:
                # It did not take part.
                continue
            if seen.seconds is None:
                yield Problem(CANARY, f"it does not see the file that {other} has written").finding(host)
            elif not seen.right:
                yield Problem(CANARY, f"it does not read what {other} has written").finding(host)
            elif seen.uid != written.seen_uid:
                what = f"it sees user {seen.uid} as owner of a file that belongs to user {written.seen_uid} on {other}"
                yield Problem(OWNER, what).finding(host)
            elif seen.seconds > LATE_SECONDS:
                what = f"it sees the file of {other} after {seen.seconds:.0f} s, expected {LATE_SECONDS:.0f} s at most"
                yield Problem(LATE, what).finding(host)


def _slow_syncs(trials: Mapping[str, Trial]) -> Iterator[Finding]:
    times = {host: each.written.sync_ms[0] for host, each in trials.items() if each.written}
    for host, mine in times.items():
        usual = median(times.values())
        if mine > max(SYNC_FLOOR_MS, SLOWER * usual):
            what = f"4 KiB take {mine:.1f} ms to the server (median), {usual:.1f} ms on most machines"
            yield Problem(SYNC, what).finding(host)


def _slow_rates(trials: Mapping[str, Trial]) -> Iterator[Finding]:
    for kind in ("write", "read"):
        rates = {host: each.together[kind].mib_per_second for host, each in trials.items() if kind in each.together}
        for host, mine in rates.items():
            usual = median(rates.values())
            if len(rates) > 2 and mine * SLOWER < usual:
                what = f"{mine:.0f} MiB/s to {kind} while all do, {usual:.0f} on most machines"
                yield Problem(RATE, what).finding(host)


def trial_rows(trials: Mapping[str, Trial]) -> tuple[list[str], list[list[str]]]:
    """A table of latencies and rates, with a row for all machines together."""
    header = ["machine", "4 KiB + fsync", "p99", "sees others", "write alone", "read alone", "write all", "read all"]
    rows = [[host, *_cells(each)] for host, each in trials.items()]
    every = list(trials.values())
    if len(every) > 1:
        totals = [
            _total([each.together[kind] for each in every if kind in each.together]) for kind in ("write", "read")
        ]
        rows.append(["all", "", "", "", "", "", *totals])
    return header, rows


def _cells(trial: Trial) -> list[str]:
    middle, late = (f"{value:.2f} ms" for value in trial.written.sync_ms) if trial.written else ("-", "-")
    seen = [each.seconds for each in trial.seen.values() if each.seconds is not None]
    rates = [each.get(kind) for each in (trial.alone, trial.together) for kind in ("write", "read")]
    shown = [f"{rate.mib_per_second:.0f} MiB/s{'' if rate.direct else ' (cached)'}" if rate else "-" for rate in rates]
    return [middle, late, f"{max(seen):.1f} s" if seen else "-", *shown]


def _total(rates: Iterable[Rate]) -> str:
    """The rate of all together, from the first beginning to the last end."""
    rates = list(rates)
    if not rates:
        return "-"
    taken = max(rate.end for rate in rates) - min(rate.begin for rate in rates)
    return f"{sum(rate.size for rate in rates) / MIB / max(taken, 1e-6):.0f} MiB/s"
