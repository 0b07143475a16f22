from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.preflight.shared_root import (
    TrialResult,
    trial_findings,
)

NAMES = ("a", "b", "c")
WRITTEN = {"uid": 61000, "seen_uid": 61000, "renamed": True}


def trials(**changed: TrialResult) -> dict[str, TrialResult]:
    """Three machines that see each other; the first holds the locks."""
    found = {}
    for name in NAMES:
        seen = {other: {"seconds": 0.1, "uid": 61000, "right": True} for other in NAMES if other != name}
        first = name == "a"
        locks = {} if first else {"flock": "held", "fcntl": "held"}
        written = {**WRITTEN, "locks": ["flock", "fcntl"]} if first else WRITTEN
        found[name] = TrialResult("", written, seen, locks)
    return {**found, **changed}


def findings(**changed: TrialResult) -> list[tuple[str, str, str]]:
    return [(found.key, found.where, found.problem) for found in trial_findings(trials(**changed))]


def only(**changed: TrialResult) -> tuple[str, str, str]:
    (found,) = findings(**changed)
    return found


B = trials()["b"]


def seeing(**changes: object) -> TrialResult:
    return replace(B, seen={**B.seen, "c": {**B.seen["c"], **changes}})


def test_file_that_is_not_seen() -> None:
    assert findings() == trial_findings({}) == findings(b=seeing(seconds=30.0)) == []
    assert only(b=seeing(seconds=30.1))[0] == "storage.late"
    assert only(b=replace(B, written={**WRITTEN, "renamed": False}))[0] == "storage.rename"
    assert only(b=seeing(seconds=None)) == ("storage.canary", "b", "it does not see the file that c has written")
    assert only(b=seeing(right=False)) == ("storage.canary", "b", "it does not read what c has written")


def test_owner_that_differs() -> None:
    assert only(b=seeing(uid=65534))[:2] == ("storage.owner", "b")
    squashed = replace(B, written={**WRITTEN, "seen_uid": 65534})
    assert ("storage.owner", "b") in [found[:2] for found in findings(b=squashed)]


def test_machine_that_could_not_write_is_said_once() -> None:
    silent = TrialResult(error="Permission denied (user)")
    unseen = {name: replace(trials()[name], seen={"b": {"seconds": None}}) for name in ("a", "c")}
    assert only(b=silent, **unseen) == ("storage.trial", "b", "Permission denied (user)")


def test_locks() -> None:
    free = replace(B, locks={"flock": "free", "fcntl": "held"})
    assert only(b=free)[:2] == ("storage.locks", "b")
    assert only(b=free)[2].endswith("(flock), and this machine gets it, too")
    assert only(b=replace(B, locks={"fcntl": "unsupported"}))[2].endswith("(fcntl), and it fails on this machine")
    holder = replace(trials()["a"], written={**WRITTEN, "locks": ["fcntl"]})
    # Nobody holds the other one, so that it is no news that it is free.
    assert only(a=holder, b=free) == ("storage.locks", "a", "flock does not work")
