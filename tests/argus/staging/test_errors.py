"""Lists of names in messages."""

from __future__ import annotations

from argus.staging.options import listed


def test_long_lists_are_shortened() -> None:
    names = [str(number) for number in range(21)]
    assert listed(names[:20]) == ", ".join(names[:20])
    assert listed(iter(names)) == f"{', '.join(names[:20])}, and 1 more"
