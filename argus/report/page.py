# SPDX-License-Identifier: Apache-2.0
"""Renders the HTML page of one or several jobs; renews a job's page in its archive when its sources change."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..archive.archive import Archive
from ..common.text import printable_line
from ..io.writing import write_text
from ..jobs.bundle import PAGE
from ..launcher import outcome
from ..queue import attempts
from . import tables
from .curves import MAX_DRAWN_VALUE, MAX_POINTS, SMALL_CURVE_POINTS, Curve
from .data import JobPage, Sample, read_job
from .job_curves import MetricsByTitle, job_charts
from .rendering import cell_text, read_resource, render_template

MAX_LOG_LINE_CHARS = 2000
# The curves of metrics share MAX_POINTS_PER_PAGE, so that a page has at most about 2.2 MB.
MAX_POINTS_PER_PAGE, MIN_POINTS_PER_CURVE = 200_000, 30
# Observable's categorical colours, which differ enough on white and on black.
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
# The files in the archive of a job that change when its page changes, beside the metrics of the current attempt.
PAGE_SOURCES = ("status.json", "events.jsonl", "logs/driver.log")


def render_page(jobs: Sequence[JobPage], now: float) -> str:
    """The page of one job, or one page that compares several. now: seconds since the epoch."""
    charts = job_charts([job.curves for job in jobs])
    return render_template(
        "page.html",
        scripts=[f"/*\n{read_resource('uplot.LICENSE')}*/\n{read_resource('uplot.min.js')}", read_resource("page.js")],
        style=read_resource("uplot.min.css"),
        now=now,
        jobs=jobs,
        title=jobs[0].info.submission_id if len(jobs) == 1 else f"{len(jobs)} jobs",
        data=Markup(chart_data(jobs, charts)),  # noqa: S704 - JSON without markup
        compared=tables.comparison_tables(jobs) if len(jobs) > 1 else [],
        charts=charts,
        node_charts=jobs[0].nodes if len(jobs) == 1 else {},
        parts=tables.step_parts_table(jobs),
        colours=COLOURS,
        facts=lambda job: [(name, cell_text(value)) for name, value in tables.fact_rows(job, now)],
        advice=outcome.trusted_advice,
        attempts=tables.attempts_table,
        start_phases=tables.start_phases_table,
        events=tables.events_table,
        samples_of=lambda job: job.samples if len(jobs) == 1 else samples_of_last_step(job.samples),
        timeline=tables.timeline_shapes,
        configuration=tables.configuration_tables,
        log=lambda job: "\n".join(printable_line(line, colour=False)[:MAX_LOG_LINE_CHARS] for line in job.info.log),
    )


def samples_of_last_step(by_kind: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    """Of each kind of samples, those of its last step."""
    return {kind: [row for row in rows if row.step == rows[-1].step] for kind, rows in by_kind.items() if rows}


def chart_data(jobs: Sequence[JobPage], charts: Mapping[str, MetricsByTitle]) -> str:
    """The JSON of all charts; it contains no character that could end its <script> element.

    "charts" has the curves of each chart, "stack" the parts of a step, and "clocks" the seconds at each step of a job,
    with which page.js draws curves against the time. "axes" has the X axes, which curves share: lists of steps, each as
    its difference from the one before. The X axis of a curve with "timed" is the seconds since the first measurement.
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

    all_curves = [
        [
            curve_data(job.info.submission_id if len(jobs) > 1 else name, index, job.curves.curves[name], max_points)
            for name in chart
            for index, job in enumerate(jobs)
            if name in job.curves.curves
        ]
        for chart in all_charts
    ]
    stack = [curve_data(part, 0, curve) for part, curve in jobs[0].curves.part_seconds.items() if any(curve.values)]
    if len(jobs) == 1:
        node_curves = [chart.items() for chart in jobs[0].nodes.values()]
        all_curves += [[curve_data(name, 0, curve) | {"timed": True} for name, curve in items] for items in node_curves]
    clocks = [curve_data("", 0, job.curves.step_times(job.seconds)) for job in jobs]
    data = {"colours": COLOURS, "charts": all_curves, "stack": stack, "clocks": clocks, "axes": list(axes)}
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def drawn_value(value: float) -> float | None:
    """The value rounded to five significant digits; None, drawn as a gap, if it is too large or not a number."""
    if not abs(value) < MAX_DRAWN_VALUE:
        return None
    return int(value) if value == int(value) and abs(value) < 1e9 else float(f"{value:.5g}")


def last_change_ns(archive: Archive) -> int:
    """The time in nanoseconds when a source of the job's page was last written. Raises UnreadableError."""
    metrics = archive.metrics_file(attempts.current_attempt(archive))
    return max(mtime_ns(path) for path in (*(archive.path / name for name in PAGE_SOURCES), metrics))


def mtime_ns(path: Path) -> int:
    """The time in nanoseconds when a file was last written, or 0 if there is none."""
    with contextlib.suppress(OSError):
        return os.lstat(path).st_mtime_ns
    return 0


def write_page(archive: Archive) -> bool:
    """Write the page of a job into its archive, and return True; False if the page there is current.

    A page is current if its modification time is that of its newest source. Raises OSError and UnreadableError.
    """
    # The time is taken before the archive is read: what changes meanwhile is in the next page. The page gets the time
    # of its source because the clocks of machines differ.
    newest_ns = last_change_ns(archive)
    target = archive.path / PAGE
    if mtime_ns(target) == newest_ns:
        return False
    write_text(target, render_page([read_job(archive)], time.time()), durable=False)
    os.utime(target, ns=(newest_ns, newest_ns), follow_symlinks=False)
    return True
