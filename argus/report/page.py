# SPDX-License-Identifier: Apache-2.0
"""Renders the HTML page of one job or of several from their archives, and keeps the one in a job's archive current."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup

from ..archive.archive import Archive
from ..common.text import printable_line
from ..io.writing import write_text
from ..jobs.bundle import PAGE
from ..launcher import outcome
from ..queue import attempts
from . import tables
from .chart_data import COLOURS, chart_data
from .data import JobPage, Sample, read_job
from .job_curves import job_charts
from .rendering import cell_text, read_resource, render_template

MAX_LOG_LINE_CHARS = 2000
# The files in the archive of a job that change when its page changes, beside the metrics of the current attempt.
PAGE_SOURCES = ("status.json", "events.jsonl", "logs/driver.log")


def render_page(jobs: Sequence[JobPage], now: float) -> str:
    """The page of one job, or one page that compares several. now: seconds since the epoch."""
    charts = job_charts([job.curves for job in jobs])
    return render_template(
        "page.html",
        [f"/*\n{read_resource('uplot.LICENSE')}*/\n{read_resource('uplot.min.js')}", read_resource("page.js")],
        read_resource("uplot.min.css"),
        now,
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
