# SPDX-License-Identifier: GPL-3.0-or-later
"""Curves with few points, however long the job was: they are reduced while they are read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_POINTS = 2000
# A curve grows by so many points before it is reduced again.
SPARE = 6 * MOST_POINTS
Points = tuple[list[int], list[float]]


@dataclass
class Curve:
    """The values of one metric over steps. is_mean: reduced to means of ranges, which add up, and not to extremes."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    is_mean: bool = False

    def add(self, step: int, value: float) -> None:
        steps, values = self.steps, self.values
        # A later attempt replaces the steps that it repeats.
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        steps.append(step)
        values.append(value)
        if len(steps) > 2 * MOST_POINTS + SPARE:
            self.steps, self.values = self.points(2 * MOST_POINTS)

    def points(self, most: int) -> Points:
        """At most `most` points of it: of ranges of equally many steps, the mean, or the extremes and a gap."""
        steps, values = self.steps, self.values
        if len(steps) <= most:
            return steps, values
        # With the first and the last point.
        count = max(1, (most - 2) // (1 if self.is_mean else 2 if all(map(math.isfinite, values)) else 3))
        width = (steps[-1] - steps[0] + 1) / count
        ranges: list[list[int]] = [[] for _range in range(count)]
        for position, step in enumerate(steps):
            # Steps may be too large for exact divisions.
            ranges[min(int((step - steps[0]) / width), count - 1)].append(position)
        if self.is_mean:
            means = [(steps[each[-1]], math.fsum(values[at] for at in each) / len(each)) for each in ranges if each]
            return [step for step, _mean in means], [mean for _step, mean in means]
        kept = {0, len(steps) - 1}.union(*(extremes(each, values) for each in ranges if each))
        return [steps[at] for at in sorted(kept)], [values[at] for at in sorted(kept)]


def extremes(positions: Sequence[int], values: Sequence[float]) -> set[int]:
    """The positions of the lowest and the highest value, and of one that is not finite."""
    finite = [at for at in positions if math.isfinite(values[at])]
    gap = {at for at in positions if not math.isfinite(values[at])} if len(finite) < len(positions) else set()
    kept = {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)} if finite else set()
    return kept | set(sorted(gap)[:1])
