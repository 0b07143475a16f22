from __future__ import annotations

import pytest

from argus.jobspec.spec import seconds


@pytest.mark.parametrize(
    ("duration", "value"),
    [
        (None, None),
        ("0", None),
        ("0m", None),
        ("90", 90.0),
        ("90s", 90.0),
        ("0.5", 0.5),
        ("30m", 1800.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1d2h3m4s", 93_784.0),
    ],
)
def test_durations(duration: str | None, value: float | None) -> None:
    assert seconds(duration) == value


@pytest.mark.parametrize("duration", ["", " ", "h", "1 h", "-1", "1e3", "nan", "1h1h", "1m1h", "1,5h", "1H", "90\n"])
def test_malformed_durations(duration: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(duration)
