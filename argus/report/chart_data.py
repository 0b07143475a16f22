# SPDX-License-Identifier: Apache-2.0
"""The data of a page's charts, as the JSON that page.js draws."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .curves import MAX_POINTS, Curve
from .data import JobPage
from .job_curves import MetricsByTitle
from .rendering import cell_text

# The curves of metrics share MAX_POINTS_PER_PAGE, so that a page has at most about 2.2 MB. The curves of step parts,
# nodes and times have at most SMALL_CURVE_POINTS each.
MAX_POINTS_PER_PAGE, MIN_POINTS_PER_CURVE, SMALL_CURVE_POINTS = 200_000, 30, 400
# Observable's categorical colours, which differ enough on white and on black.
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
# The largest magnitude that is drawn: the difference of two such values is still finite.
MAX_DRAWN_VALUE = 1e300


def chart_data(jobs: Sequence[JobPage], charts: Mapping[str, MetricsByTitle]) -> str:
    """The JSON of all charts; it contains no character that could end its <script> element.

    Curves with the same steps share an X axis: a list of steps, each as its difference from the one before.
    """
    all_charts = [chart for section in charts.values() for chart in section.values()]
    curve_count = sum(name in job.curves.curves for chart in all_charts for name in chart for job in jobs)
    max_points = min(MAX_POINTS, max(MIN_POINTS_PER_CURVE, MAX_POINTS_PER_PAGE // max(1, curve_count)))
    axes: dict[tuple[int, ...], int] = {}

    def curve_data(label: str, job_index: int, curve: Curve, limit: int = SMALL_CURVE_POINTS) -> dict[str, Any]:
        steps, values = curve.downsample(limit)
        axis = tuple(after - before for before, after in zip((0, *steps), steps, strict=False))
        axis_index = axes.setdefault(axis, len(axes))
        drawn = list(map(drawn_value, values))
        return {"label": cell_text(label), "job": job_index, "axis": axis_index, "values": drawn}

    series = [
        [
            curve_data(job.info.submission_id if len(jobs) > 1 else name, index, job.curves.curves[name], max_points)
            for name in chart
            for index, job in enumerate(jobs)
            if name in job.curves.curves
        ]
        for chart in all_charts
    ]
    parts = [curve_data(part, 0, curve) for part, curve in jobs[0].curves.part_seconds.items() if any(curve.values)]
    if len(jobs) == 1:
        # Their X axis is the seconds since the first measurement, not the step.
        node_curves = [chart.items() for chart in jobs[0].nodes.values()]
        series += [[curve_data(name, 0, curve) | {"timed": True} for name, curve in items] for items in node_curves]
    times = [curve_data("", 0, job.curves.step_times(job.seconds)) for job in jobs]
    # "clocks": the seconds at each step of each job, with which the script draws curves against the time.
    data = {"colours": COLOURS, "charts": series, "stack": parts, "clocks": times, "axes": list(axes)}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def drawn_value(value: float) -> float | None:
    """The value rounded to five significant digits; None, drawn as a gap, if it is too large or not a number."""
    if not abs(value) < MAX_DRAWN_VALUE:
        return None
    return int(value) if value == int(value) and abs(value) < 1e9 else float(f"{value:.5g}")
