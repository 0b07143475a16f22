from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight.storage_trial import (
    Trial,
    trial_findings,
    trial_of,
    trial_rows,
)
from ansible_collections.argus.verl.plugins.module_utils.storage.rates import MIB, Rate
from ansible_collections.argus.verl.plugins.module_utils.storage.trial import Seen, Written

NAMES = ("a", "b", "c")
WRITTEN = Written(61000, 61000, True, (1.0, 4.0))


def rate(mib_per_second: float, begin: float = 100) -> Rate:
    return Rate(64 * MIB, begin, begin + 64 / mib_per_second, True)


def trials(**changed: Trial) -> dict[str, Trial]:
    """Three machines that see each other; the first holds the locks."""
    found = {}
    for name in NAMES:
        seen = {other: Seen(0.1, 61000, True) for other in NAMES if other != name}
        first = name == "a"
        locks = {} if first else {"flock": "held", "fcntl": "held"}
        together = {"write": rate(64), "read": rate(128)}
        found[name] = Trial("", WRITTEN, seen, locks, ["flock", "fcntl"] if first else None, {}, together)
    return {**found, **changed}


def findings(**changed: Trial) -> list[tuple[str, str, str]]:
    return [(found.key, found.where, found.what) for found in trial_findings(trials(**changed))]


def only(**changed: Trial) -> tuple[str, str, str]:
    (found,) = findings(**changed)
    return found


B = trials()["b"]


def seeing(**changes: object) -> Trial:
    return replace(B, seen={**B.seen, "c": replace(B.seen["c"], **changes)})  # type: ignore[arg-type]


def test_healthy_machines() -> None:
    assert findings() == []
    assert trial_findings({}) == []


def test_file_that_is_not_seen() -> None:
    assert only(b=seeing(seconds=None)) == ("storage.canary", "b", "it does not see the file that c has written")
    assert only(b=seeing(right=False)) == ("storage.canary", "b", "it does not read what c has written")


@pytest.mark.parametrize(("seconds", "late"), [(30.0, False), (30.1, True)])
def test_file_that_is_seen_late(seconds: float, late: bool) -> None:
    assert [found[0] for found in findings(b=seeing(seconds=seconds))] == (["storage.late"] if late else [])


def test_owner_that_differs() -> None:
    assert only(b=seeing(uid=65534)) == (
        "storage.owner",
        "b",
        "it sees user 65534 as owner of a file that belongs to user 61000 on c",
    )
    squashed = replace(B, written=Written(61000, 65534, True, (1.0, 4.0)))
    found = findings(b=squashed)
    assert found[0] == ("storage.owner", "b", "a file of user 61000 belongs to user 65534 there")


def test_machine_that_could_not_write_is_said_once() -> None:
    silent = Trial(error="Permission denied (user)")
    unseen = {name: replace(trials()[name], seen={"b": Seen(None)}) for name in ("a", "c")}
    assert only(b=silent, **unseen) == ("storage.trial", "b", "Permission denied (user)")


def test_locks() -> None:
    free = replace(B, locks={"flock": "free", "fcntl": "held"})
    assert only(b=free)[:2] == ("storage.locks", "b")
    assert only(b=free)[2].endswith("(flock), and this machine gets it, too")
    assert only(b=replace(B, locks={"fcntl": "unsupported"}))[2].endswith("(fcntl), and it fails on this machine")
    holder = replace(trials()["a"], held=["fcntl"])
    # Nobody holds the other one, so that it is no news that it is free.
    assert only(a=holder, b=free) == ("storage.locks", "a", "flock does not work")


def test_rename() -> None:
    assert only(b=replace(B, written=replace(WRITTEN, renamed=False)))[0] == "storage.rename"


@pytest.mark.parametrize(("median", "found"), [(20.0, False), (20.1, True)])
def test_slow_small_writes(median: float, found: bool) -> None:
    slow = replace(B, written=replace(WRITTEN, sync_ms=(median, 90.0)))
    assert [each[0] for each in findings(b=slow)] == (["storage.sync"] if found else [])


def test_small_writes_are_compared_with_the_others() -> None:
    usual = {name: replace(trials()[name], written=replace(WRITTEN, sync_ms=(30.0, 90.0))) for name in NAMES}
    assert findings(**usual) == []
    slow = replace(usual["b"], written=replace(WRITTEN, sync_ms=(90.1, 99.0)))
    assert only(**{**usual, "b": slow})[0] == "storage.sync"


def test_slow_machine_among_three() -> None:
    slow = replace(B, together={"write": rate(64), "read": rate(42)})
    assert only(b=slow) == ("storage.rate", "b", "42 MiB/s to read while all do, 128 on most machines")
    assert findings(b=replace(B, together={"write": rate(64), "read": rate(43)})) == []
    two = {name: trial for name, trial in trials(b=slow).items() if name != "c"}
    assert [found.key for found in trial_findings(two)] == []


def test_table() -> None:
    alone = replace(trials()["a"], alone={"write": rate(64), "read": replace(rate(200), direct=False)})
    header, rows = trial_rows(trials(a=alone, c=Trial(error="x")))
    assert len(header) == len(rows[0])
    assert rows[0] == ["a", "1.00 ms", "4.00 ms", "0.1 s", "64 MiB/s", "200 MiB/s (cached)", "64 MiB/s", "128 MiB/s"]
    assert rows[2] == ["c", *["-"] * 7]
    assert rows[3][-2:] == ["128 MiB/s", "256 MiB/s"]
    # One after the other is no faster than one.
    later = replace(B, together={"write": rate(64, begin=101)})
    assert trial_rows({"a": alone, "b": later})[1][2][-2] == "64 MiB/s"
    assert trial_rows({})[1] == []


def test_answers_of_tasks() -> None:
    written = {"written": {"uid": 1, "seen_uid": 1, "renamed": True, "sync_ms": [1, 2]}, "locks": {"held": ["flock"]}}
    seen = {"seen": {"b": {"seconds": 0.5, "uid": 1, "right": True}}, "locks": {"flock": "held"}}
    together = {"rates": {"write": {"size": 1, "begin": 2, "end": 3, "direct": True}}}
    found = trial_of(written, seen, {}, together)
    assert found.written == Written(1, 1, True, [1, 2])
    assert (found.seen, found.locks, found.held) == ({"b": Seen(0.5, 1, True)}, {"flock": "held"}, ["flock"])
    assert (found.alone, found.together, found.error) == ({}, {"write": Rate(1, 2, 3, True)}, "")
    assert trial_of({"msg": "no"}, {"msg": "not either"}, {}, {}).error == "no"
    assert trial_of({}, {}, {}, {}) == Trial()
