"""Errors as findings, and lists of names in messages."""

from __future__ import annotations

from argus.staging.errors import StagingError, failure, listed


def test_an_error_becomes_a_message_and_a_finding() -> None:
    assert failure(StagingError("here", "is broken.", "Repair it.")) == {
        "msg": "here: is broken. Repair it.",
        "finding": {"where": "here", "what": "is broken.", "todo": "Repair it.", "severity": "error", "key": ""},
    }
    assert failure(OSError("no space"))["finding"] == {
        "where": "staging",
        "what": "no space",
        "todo": "see the message",
        "severity": "error",
        "key": "",
    }


def test_long_lists_are_shortened() -> None:
    names = [str(number) for number in range(21)]
    assert listed(names[:20]) == ", ".join(names[:20])
    assert listed(iter(names)) == f"{', '.join(names[:20])}, and 1 more"
