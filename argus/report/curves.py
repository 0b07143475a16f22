# SPDX-License-Identifier: Apache-2.0
"""A curve of a chart, which keeps few points however long the job is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

# The most points of a curve on a page. While it is read, a curve keeps twice as many, and reduces itself to them
# whenever it has SPARE_POINTS more.
MAX_POINTS = 2000
SPARE_POINTS = 6 * MAX_POINTS
# The most points of a curve of step parts, nodes or times.
SMALL_CURVE_POINTS = 400
# The largest magnitude that is drawn: the difference of two such values is still finite.
MAX_DRAWN_VALUE = 1e300
Points = tuple[list[int], list[float]]


@dataclass
class Curve:
    """The values of one metric of a job over its steps, or of one node over the seconds."""

    # Ascending: steps, or seconds.
    steps: list[int] = field(default_factory=list)
    # One for each step; NaN and infinity are values too.
    values: list[float] = field(default_factory=list)
    # Whether to reduce points to means rather than to extremes. With means, stacked curves still add up.
    is_mean: bool = False

    def add(self, step: int, value: float) -> None:
        steps, values = self.steps, self.values
        # A later attempt replaces the steps that it repeats.
        while steps and steps[-1] >= step:
            steps.pop()
            values.pop()
        steps.append(step)
        values.append(value)
        if len(steps) > 2 * MAX_POINTS + SPARE_POINTS:
            self.steps, self.values = self.downsample(2 * MAX_POINTS)

    def downsample(self, max_points: int) -> Points:
        """At most this many points: of each equal range of steps its mean, or its extremes and one non-finite value.

        Beside extremes, the first and the last point stay as well.
        """
        steps, values = self.steps, self.values
        if len(steps) <= max_points:
            return steps, values
        points_per_range = 1 if self.is_mean else 2 if all(map(math.isfinite, values)) else 3
        count = max(1, (max_points - 2) // points_per_range)
        width = (steps[-1] - steps[0] + 1) / count
        ranges: list[list[int]] = [[] for _range in range(count)]
        for position, step in enumerate(steps):
            # Float rounding may put the last step past the end.
            ranges[min(int((step - steps[0]) / width), count - 1)].append(position)
        if self.is_mean:
            means = [(steps[span[-1]], math.fsum(values[at] for at in span) / len(span)) for span in ranges if span]
            return [step for step, _mean in means], [mean for _step, mean in means]
        kept = {0, len(steps) - 1}.union(*(extreme_positions(span, values) for span in ranges if span))
        return [steps[at] for at in sorted(kept)], [values[at] for at in sorted(kept)]


def extreme_positions(positions: Sequence[int], values: Sequence[float]) -> set[int]:
    """The positions of the lowest and the highest finite value, and of the first one that is not finite."""
    finite = [at for at in positions if math.isfinite(values[at])]
    non_finite = {at for at in positions if not math.isfinite(values[at])} if len(finite) < len(positions) else set()
    kept = {min(finite, key=values.__getitem__), max(finite, key=values.__getitem__)} if finite else set()
    return kept | set(sorted(non_finite)[:1])
