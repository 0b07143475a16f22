"""Curves with few points."""

from __future__ import annotations

import math

import pytest

from argus.report.curves import MAX_POINTS, SPARE_POINTS, Curve


def curve(values: list[float]) -> Curve:
    made = Curve()
    for step, value in enumerate(values, start=1):
        made.add(step, value)
    return made


@pytest.mark.parametrize("most", [30, MAX_POINTS])
def test_extremes_ends_and_gaps_stay(most: int) -> None:
    values = [math.sin(step * step) for step in range(3 * SPARE_POINTS)]
    values[20_001], values[20_003], values[5] = 9.0, -9.0, math.nan
    steps, kept = curve(values).downsample(most)
    assert len(steps) <= most and steps == sorted(set(steps))
    assert (steps[0], steps[-1], kept[0], kept[-1]) == (1, len(values), values[0], values[-1])
    assert dict(zip(steps, kept, strict=True)).items() >= {20_002: 9.0, 20_004: -9.0}.items()
    assert sum(map(math.isnan, kept)) == 1


def test_a_later_attempt_replaces_the_steps_that_it_repeats() -> None:
    made = curve([1.0, 2.0, 3.0, 4.0])
    made.add(3, 30.0)
    assert made.downsample(10) == ([1, 2, 3], [1.0, 2.0, 30.0])
