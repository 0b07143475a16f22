# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Curves with few points, however long the job was: reduced while they are read, without losing extremes."""

from __future__ import annotations

import math
from collections.abc import Sequence

# A curve has up to so many points more than it keeps before it is reduced.
SPARE = 12_288
MOST_POINTS = 2000
Points = tuple[list[int], list[float]]


class Curve:
    """The values of one metric over steps; what is not a number, or infinite, is a gap. Memory is bounded."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []

    def add(self, step: int, value: float) -> None:
        steps, values = self.steps, self.values
        # A later attempt replaces the steps that it repeats.
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        steps.append(step)
        values.append(value)
        if len(steps) > 2 * MOST_POINTS + SPARE:
            self.steps, self.values = reduced(steps, values, 2 * MOST_POINTS)


class Parts:
    """Means of the parts of a step, over ranges of equally many steps."""

    def __init__(self, names: Sequence[str], most: int = 400) -> None:
        self.names = names
        self.most = most
        # How many rows a range has: it doubles when there are too many ranges.
        self.size = 1
        # The last step of a range, how many rows it has, and their sums.
        self.ranges: list[tuple[int, int, tuple[float, ...]]] = []

    def add(self, step: int, row: tuple[float, ...]) -> None:
        while self.ranges and self.ranges[-1][0] >= step:
            self.ranges.pop()
        if self.ranges and self.ranges[-1][1] < self.size:
            self.ranges[-1] = joined(self.ranges[-1], (step, 1, row))
        else:
            self.ranges.append((step, 1, row))
        if len(self.ranges) > 2 * self.most:
            pairs = zip(self.ranges[::2], self.ranges[1::2], strict=False)
            odd = self.ranges[-1:] if len(self.ranges) % 2 else []
            self.ranges = [joined(first, second) for first, second in pairs] + odd
            self.size *= 2

    def points(self, part: int) -> Points:
        return [step for step, _rows, _sums in self.ranges], [sums[part] / rows for _step, rows, sums in self.ranges]

    def means(self) -> list[float]:
        count = sum(rows for _step, rows, _sums in self.ranges)
        columns = zip(*(sums for _step, _rows, sums in self.ranges), strict=True)
        return [sum(column) / count for column in columns]


def joined(
    first: tuple[int, int, tuple[float, ...]], second: tuple[int, int, tuple[float, ...]]
) -> tuple[int, int, tuple[float, ...]]:
    sums = tuple(one + other for one, other in zip(first[2], second[2], strict=True))
    return second[0], first[1] + second[1], sums


def reduced(steps: Sequence[int], values: Sequence[float], most: int) -> Points:
    """At most `most` points: the first and the last; of ranges of equally many steps, the lowest, the highest, a gap."""
    if len(steps) <= most:
        return list(steps), list(values)
    first, count = steps[0], max(1, (most - 2) // (2 if all(map(math.isfinite, values)) else 3))
    width = (steps[-1] - first + 1) / count
    # Of each range, the positions of these points.
    low, high, gap = [-1] * count, [-1] * count, [-1] * count
    for position, step in enumerate(steps):
        # Steps may be too large for exact divisions.
        at, value = min(int((step - first) / width), count - 1), values[position]
        if not math.isfinite(value):
            gap[at] = position
            continue
        if low[at] < 0 or value < values[low[at]]:
            low[at] = position
        if high[at] < 0 or value >= values[high[at]]:
            high[at] = position
    kept = sorted({position for position in (0, *low, *high, *gap, len(steps) - 1) if position >= 0})
    return [steps[position] for position in kept], [values[position] for position in kept]
