from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.preflight.storage import TrialResult, trial_findings

NAMES = ("a", "b", "c")
WRITTEN = {"uid": 61000, "seen_uid": 61000, "renamed": True}


def trials(**changed: TrialResult) -> dict[str, TrialResult]:
    """Three machines that see each other; the first holds the locks."""
    results = {}
    for name in NAMES:
        seen = {other: {"seconds": 0.1, "uid": 61000, "right": True} for other in NAMES if other != name}
        first = name == "a"
        locks = {} if first else {"flock": "held", "fcntl": "held"}
        written = {**WRITTEN, "locks": ["flock", "fcntl"]} if first else WRITTEN
        results[name] = TrialResult("", written, seen, locks)
    return {**results, **changed}


def findings(**changed: TrialResult) -> list[tuple[str, str]]:
    return [(finding.key.removeprefix("storage."), finding.where) for finding in trial_findings(trials(**changed))]


B = trials()["b"]


def seeing(**changes: object) -> TrialResult:
    return replace(B, seen={**B.seen, "c": {**B.seen["c"], **changes}})


def test_file_that_is_not_seen() -> None:
    assert findings() == trial_findings({}) == findings(b=seeing(seconds=30.0)) == []
    assert findings(b=seeing(seconds=30.1)) == [("late", "b")]
    assert findings(b=replace(B, written={**WRITTEN, "renamed": False})) == [("rename", "b")]
    assert findings(b=seeing(seconds=None)) == findings(b=seeing(right=False)) == [("canary", "b")]
    assert findings(b=seeing(uid=65534)) == [("owner", "b")]
    assert ("owner", "b") in findings(b=replace(B, written={**WRITTEN, "seen_uid": 65534}))
    # A machine that could not write is reported once.
    silent = TrialResult(error="Permission denied (user)")
    unseen = {name: replace(trials()[name], seen={"b": {"seconds": None}}) for name in ("a", "c")}
    assert findings(b=silent, **unseen) == [("trial", "b")]


def test_locks() -> None:
    free = replace(B, locks={"flock": "free", "fcntl": "held"})
    assert findings(b=free) == findings(b=replace(B, locks={"fcntl": "unsupported"})) == [("locks", "b")]
    holder = replace(trials()["a"], written={**WRITTEN, "locks": ["fcntl"]})
    # Nobody holds the other lock: it may be free.
    assert findings(a=holder, b=free) == [("locks", "a")]
