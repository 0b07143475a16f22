# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page as HTML: one file that loads nothing. Whatever a job has written is text in it, never markup or code."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from ..common.text import duration, printable, printable_line
from ..jobs.report import clipped, clock, origin, situation, tags_text
from ..launcher import outcome
from ..launcher.status import Attempt
from .curves import Chart, groups
from .data import Event, Job
from .points import MOST_POINTS, Points, reduced

# Of all curves of a page together: about 2.2 MB.
TOTAL_POINTS, LEAST_POINTS = 200_000, 30
CLOCK_POINTS = 400
# Observable's categorical colours, which are told apart on white and on black.
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
CELL_LENGTH, LOG_LINE_LENGTH = 500, 2000
# What people ask for first of hundreds of packages.
PACKAGES = ("python", "verl", "torch", "ray", "vllm", "sglang", "transformers", "flash-attn", "megatron-core")
# How the strip of time shows what happened.
MARKS = {"CHECKPOINT": "saved", "EVIDENCE": "seen", "STALLED": "bad", "HEAD_RETURNED": "bad", "WARNING": "warned"}
LOOKS = {"SUCCEEDED": "good", "FAILED": "bad", "UNREADABLE": "bad", "STOPPED": "still"}
UNCHANGED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True)
class Table:
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    is_folded: bool = False

    @property
    def looks(self) -> tuple[str, ...]:
        """Of each column, whether it has numbers only."""
        columns = zip(*self.rows, strict=True)
        return tuple(
            "number" if all(isinstance(value, (int, float, type(None))) for value in column) else ""
            for column in columns
        )


@dataclass(frozen=True)
class Mark:
    """A thing in the strip of time; places in percent of its width."""

    look: str
    begin: float
    width: float
    text: str


@dataclass(frozen=True)
class Panel:
    """Of one job, what is not compared."""

    job: Job
    look: str
    colour: str
    facts: tuple[tuple[str, str], ...]
    failure: tuple[str, tuple[str, ...], str] | None
    attempts: Table
    strip: tuple[Mark, ...]
    history: tuple[Table, ...]
    settings: tuple[Table, ...]
    log: str


def page(jobs: Sequence[Job], now: float) -> str:
    """The page of one job, or of several."""
    charts = groups([job.curves for job in jobs])
    scripts = [f"/*\n{source('uplot.LICENSE')}\n*/\n{source('uplot.min.js')}", source("page.js")]
    style = source("uplot.min.css") + source("page.css")
    policy = (
        f"default-src 'none'; script-src {' '.join(map(digest, scripts))}; style-src {digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = jinja2.Environment(
        autoescape=True, finalize=shown, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(source("page.html")).render(
        title=jobs[0].info.submission_id if len(jobs) == 1 else f"{len(jobs)} jobs",
        made=clock(now),
        policy=Markup(policy),  # noqa: S704 - of hashes
        style=Markup(style),  # noqa: S704 - our own
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own
        panels=[panel(job, number) for number, job in enumerate(jobs)],
        compared=[table for table in compared(jobs) if table.rows] if len(jobs) > 1 else [],
        charts=charts,
        parts=parts(jobs),
        numbers=numbers(jobs[0]) if len(jobs) == 1 else None,
        data=Markup(drawn(jobs, charts)),  # noqa: S704 - JSON without markup
    )


def source(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def digest(code: str) -> str:
    """A source of a Content-Security-Policy: this code, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def shown(value: Any) -> Any:
    """What a template writes: control characters as text. Markup is only what this module has made."""
    if isinstance(value, (Markup, jinja2.Undefined)):
        return value
    if isinstance(value, float):
        return f"{value:.5g}"
    return "–" if value is None else printable(value)


def cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = printable(text, lines=False)
    return text if len(text) <= CELL_LENGTH else f"{text[: CELL_LENGTH - 1]}…"


# --- One job ---------------------------------------------------------------------------------------------------------


def panel(job: Job, number: int) -> Panel:
    info, failure = job.info, job.info.failure
    return Panel(
        job=job,
        look=LOOKS.get(info.state, "busy"),
        colour=COLOURS[number % len(COLOURS)],
        facts=tuple(facts(job)),
        failure=(f"{failure.kind}: {failure.reason}", tuple(map(clipped, failure.lines)), outcome.advice(failure))
        if failure
        else None,
        attempts=attempts(info.attempts if len(info.attempts) > 1 or not info.ended else ()),
        strip=tuple(strip(job)),
        history=tuple(table for table in (events(job),) if table.rows),
        settings=tuple(table for table in configuration(job) if table.rows),
        log="\n".join(printable_line(line, colour=False)[:LOG_LINE_LENGTH] for line in info.log),
    )


def facts(job: Job) -> Iterable[tuple[str, str]]:
    info = job.info
    known = [line for line in situation(info) if line[0] != "Seconds"]
    known += [(name.capitalize(), cell(job.jobspec[name])) for name in ("model", "dataset") if job.jobspec.get(name)]
    if job.jobspec.get("reward_fn_path"):
        known.append(("Reward", cell(job.jobspec["reward_fn_path"])))
    if job.plan.nnodes:
        known.append(("Size", size(job)))
    known.append(("Submitted", clock(info.submitted_at)))
    known += [(name, clock(at)) for name, at in (("Started", info.started_at), ("Ended", info.ended_at)) if at]
    if job.seconds is not None:
        known.append(("Duration", duration(job.seconds)))
    return [(name, cell(value)) for name, value in (*known, *origin(info))]


def size(job: Job) -> str:
    nodes, gpus = job.plan.nnodes, job.plan.gpus_per_node
    return f"{nodes} node{'s'[: nodes != 1]} × {gpus} GPU{'s'[: gpus != 1]}"


def attempts(of: Sequence[Attempt]) -> Table:
    rows = []
    for one in of:
        took = duration(one.ended_at - one.started_at) if one.started_at and one.ended_at else None
        rows.append((one.attempt, one.state, one.kind or None, took, one.resumed_from, one.reason or None))
    return Table("Attempts", ("Attempt", "State", "Failure", "Took", "From step", "Reason"), tuple(rows))


def events(job: Job) -> Table:
    start = job.events[0].at if job.events else 0
    rows = tuple((clock(event.at), since(event.at - start), event.name, event.text) for event in job.events)
    return Table("Events", ("Time", "After", "Event", "Details"), rows, is_folded=len(rows) > 20)


def configuration(job: Job) -> Iterable[Table]:
    overrides = [(cell(key), cell(value), key in job.own) for key, value in job.overrides.items()]
    for title, is_own in (("Overrides of the JobSpec", True), ("Other overrides", False)):
        rows = tuple((key, value) for key, value, own in overrides if own == is_own)
        yield Table(title, ("Key", "Value"), rows, is_folded=not is_own)
    named = [name for name in PACKAGES if name in job.versions]
    for title, names in (("Versions", named), ("Other packages", [name for name in job.versions if name not in named])):
        rows = tuple((cell(name), cell(job.versions[name])) for name in names)
        yield Table(title, ("Package", "Version"), rows, is_folded=names is not named)


def since(seconds: float) -> str:
    return duration(min(max(0.0, seconds), 1e9))


def strip(job: Job) -> Iterable[Mark]:
    """Attempts as bars, and what happened as marks, over the time of the job."""
    if len(job.events) < 2:
        return
    begin, end = job.events[0].at, max(job.events[-1].at, job.events[0].at + 1)

    def place(at: float) -> float:
        return round(100 * min(max(0.0, at - begin), end - begin) / (end - begin), 2)

    for one in job.info.attempts:
        if one.started_at:
            text = f"Attempt {one.attempt}: {one.state} {one.kind}".rstrip()
            ended = place(one.ended_at or end)
            left = place(one.started_at)
            yield Mark(LOOKS.get(one.state, "busy"), left, max(0.3, ended - left), text)
    if job.info.attempt > len(job.info.attempts):
        runs = [event.at for event in job.events if event.name == "RUNNING"]
        if runs:
            yield Mark("busy", place(runs[-1]), max(0.3, 100 - place(runs[-1])), f"Attempt {job.info.attempt}")
    for event in job.events:
        if event.name in MARKS:
            yield Mark(MARKS[event.name], place(event.at), 0, mark_text(event, begin))


def mark_text(event: Event, begin: float) -> str:
    return f"{event.name.replace('_', ' ').capitalize()} after {since(event.at - begin)}: {event.text}"


def numbers(job: Job) -> Table:
    """The metrics as numbers, which need no script."""
    rows = []
    for name, curve in sorted(job.curves.curves.items()):
        finite = [value for value in curve.values if math.isfinite(value)]
        if finite:
            row = (finite[0], min(finite), max(finite), finite[-1])
            rows.append((cell(name), *map(float, row), curve.steps[-1]))
    return Table("All metrics as numbers", ("Metric", "First", "Lowest", "Highest", "Last", "Step"), tuple(rows), True)


def parts(jobs: Sequence[Job]) -> Table | None:
    """Where the time of a step goes, on average."""
    means = [job.curves.parts.means() if job.curves.parts.ranges else [] for job in jobs]
    rows: list[tuple[Any, ...]] = []
    for number, name in enumerate(jobs[0].curves.parts.names):
        values = [mean[number] if mean else None for mean in means]
        if any(values):
            share = [f"{values[0] / sum(means[0]):.0%}"] if len(jobs) == 1 and values[0] else []
            rows.append((name, *values, *share))
    header = ("Seconds", "Share") if len(jobs) == 1 else tuple(job.info.submission_id for job in jobs)
    return Table("Where the time of a step goes", ("Part", *header), tuple(rows)) if rows else None


# --- Several jobs ----------------------------------------------------------------------------------------------------


def compared(jobs: Sequence[Job]) -> list[Table]:
    header = tuple(job.info.submission_id for job in jobs)
    results = [result(job) for job in jobs]
    values = [settings(job) for job in jobs]
    names = dict.fromkeys(name for each in values for name in each)
    differing = [name for name in names if len({each.get(name) for each in values}) > 1]

    def rows(of: Sequence[Mapping[str, Any]], which: Iterable[str]) -> tuple[tuple[Any, ...], ...]:
        return tuple((name, *(each.get(name) for each in of)) for name in which)

    return [
        Table("Results", ("", *header), rows(results, results[0])),
        Table("What differs", ("", *header), rows(values, differing)),
    ]


def result(job: Job) -> dict[str, Any]:
    info, done = job.info, job.info.progress
    return {
        "State": info.state,
        "Failure": info.failure.kind if info.failure else None,
        "Warnings": len(info.warnings) or None,
        "Step": done.step,
        "Metric": done.metric or None,
        "First": done.first,
        "Last": done.last,
        "Tokens per second and GPU": done.tokens_per_second_per_gpu,
        "Duration": None if job.seconds is None else duration(job.seconds),
        "Submitted": clock(info.submitted_at),
    }


def settings(job: Job) -> dict[str, str]:
    """What may differ between jobs. A job's own id in a value, such as a directory, is no difference."""
    info = job.info
    values: dict[str, Any] = {"workload": info.workload, "code": info.code_id, "size": size(job)}
    values |= {name: job.jobspec[name] for name in ("model", "dataset", "reward_fn_path") if name in job.jobspec}
    values |= {"tags": tags_text(info.tags), **{f"lineage: {name}": value for name, value in info.lineage.items()}}
    values |= {**job.overrides, **{f"package {name}": version for name, version in job.versions.items()}}
    return {name: cell(value).replace(info.submission_id, "<id>") for name, value in values.items()}


# --- Charts ----------------------------------------------------------------------------------------------------------


def drawn(jobs: Sequence[Job], charts: Mapping[str, Sequence[Chart]]) -> str:
    """What the script draws, as JSON that cannot end its element. Curves have the differences between their steps."""
    every = [chart for group in charts.values() for chart in group]
    count = sum(name in job.curves.curves for chart in every for name in chart.metrics for job in jobs)
    most = min(MOST_POINTS, max(LEAST_POINTS, TOTAL_POINTS // max(1, count)))
    axes: dict[tuple[int, ...], int] = {}

    def points(curve: Points) -> tuple[int, list[float | None]]:
        steps, values = curve
        axis = tuple(after - before for before, after in zip([0, *steps], steps, strict=False))
        return axes.setdefault(axis, len(axes)), list(map(rounded, values))

    def series(chart: Chart) -> list[dict[str, Any]]:
        return [
            {
                "label": cell(job.info.submission_id if len(jobs) > 1 else chart.label(name)),
                "job": number,
                "points": points(reduced(curve.steps, curve.values, most)),
            }
            for name in chart.metrics
            for number, job in enumerate(jobs)
            if (curve := job.curves.curves.get(name))
        ]

    whole = jobs[0].curves.parts if len(jobs) == 1 else None
    used = [number for number, mean in enumerate(whole.means()) if mean] if whole and whole.ranges else []
    value = {
        "colours": COLOURS,
        "charts": [{"series": series(chart), "spread": chart.is_spread} for chart in every],
        "stack": [
            {"label": whole.names[part], "job": 0, "points": points(whole.points(part))} for part in used if whole
        ],
        "clocks": [points(reduced(*job.curves.clock_points(job.seconds), CLOCK_POINTS)) for job in jobs],
        "axes": list(axes),
    }
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.translate(str.maketrans(UNCHANGED))


def rounded(value: float) -> float | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(value) if value.is_integer() and abs(value) < 1e9 else short
