# SPDX-License-Identifier: Apache-2.0
"""Renders the HTML page of one or several jobs, and writes it into a job's archive. All text from jobs is escaped."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from ..archive.archive import Archive
from ..archive.plan import Pool
from ..common.text import duration, printable, printable_line
from ..io.writing import write_text
from ..jobs.bundle import PAGE
from ..jobs.report import origin_lines, state_lines, tags_text, time_lines, utc_text
from ..launcher import outcome
from ..queue import attempts
from .curves import GPU_MEMORY, MAX_POINTS, MEMORY, STEP_PARTS, Curve, MetricsByTitle, job_charts
from .data import Event, JobPage, Sample, read_job

# The points of a page are limited, to about 2.2 MB; the curves of step parts, nodes and clocks are small.
MAX_POINTS_PER_PAGE, MIN_POINTS_PER_CURVE, SMALL_CURVE_POINTS = 200_000, 30, 400
# Observable's categorical colours, which are told apart on white and on black.
COLOURS = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0")
# The largest magnitude drawn: the difference of two such values is still finite.
MAX_DRAWN_VALUE = 1e300
# Fields that a table or a chart shows already.
FIELDS_SHOWN_ELSEWHERE = ("Seconds", "Start", "Trend")
MAX_CELL_CHARS, MAX_LINE_CHARS, MAX_UNFOLDED_EVENTS = 500, 2000, 20
# The number of steps whose mean a page shows as the job's end result.
FINAL_MEAN_STEPS = 10
# The packages that people ask for first; others are folded.
MAIN_PACKAGES = ("python", "verl", "torch", "ray", "vllm", "sglang", "transformers", "flash-attn", "megatron-core")
TIMELINE_EVENTS = ("CHECKPOINT", "EVIDENCE", "STALLED", "ENGINE_LOST", "HEAD_RETURNED", "WARNING")


class Table(NamedTuple):
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_folded: bool = False


def render_page(jobs: Sequence[JobPage], now: float) -> str:
    """The page of one job, or one that compares several."""
    charts = job_charts([job.curves for job in jobs])
    return render_template(
        "page.html",
        [f"/*\n{read_resource('uplot.LICENSE')}*/\n{read_resource('uplot.min.js')}", read_resource("page.js")],
        read_resource("uplot.min.css"),
        now,
        jobs=jobs,
        title=jobs[0].info.submission_id if len(jobs) == 1 else f"{len(jobs)} jobs",
        data=Markup(chart_data(jobs, charts)),  # noqa: S704 - JSON without markup
        compared=comparison_tables(jobs) if len(jobs) > 1 else [],
        charts=charts,
        node_charts=jobs[0].nodes if len(jobs) == 1 else {},
        parts=step_parts_table(jobs),
        colours=COLOURS,
        facts=lambda job: [(name, cell_text(value)) for name, value in fact_rows(job, now)],
        advice=outcome.trusted_advice,
        attempts=attempts_table,
        start_phases=start_phases_table,
        events=events_table,
        samples_of=lambda job: job.samples if len(jobs) == 1 else samples_of_last_step(job.samples),
        timeline=timeline,
        configuration=configuration_tables,
        log=lambda job: "\n".join(printable_line(line, colour=False)[:MAX_LINE_CHARS] for line in job.info.log),
    )


def render_template(name: str, scripts: Sequence[str], style: str, now: float, **values: Any) -> str:
    """Render a template with our own scripts and styles; a policy blocks all other code and external resources.

    All template values but Markup are escaped.
    """
    environment = jinja2.Environment(
        autoescape=True,
        finalize=finalize,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.FunctionLoader(read_resource),
    )
    style += read_resource("page.css")
    policy = f"default-src 'none'; script-src {' '.join(map(csp_hash, scripts))}; style-src {csp_hash(style)}; "
    return environment.get_template(name).render(
        policy=Markup(f"{policy}base-uri 'none'; form-action 'none'"),  # noqa: S704 - hashes
        style=Markup(style),  # noqa: S704 - our own
        scripts=[Markup(script) for script in scripts],  # noqa: S704 - our own
        generated_at=utc_text(now),
        **values,
    )


def read_resource(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def csp_hash(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"


def finalize(value: Any) -> Any:
    """A value for the template, which escapes it: control characters as text. Only this file makes Markup."""
    if isinstance(value, (Markup, jinja2.Undefined)):
        return value
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else printable(value)


def cell_text(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), lines=False)
    return text if len(text) <= MAX_CELL_CHARS else f"{text[: MAX_CELL_CHARS - 1]}…"


def fact_rows(job: JobPage, now: float) -> Iterator[tuple[str, Any]]:
    yield from (line for line in state_lines(job.info) if line[0] not in FIELDS_SHOWN_ELSEWHERE)
    fields = (
        ("Module", "module"),
        ("Command", "command"),
        ("Model", "model"),
        ("Dataset", "dataset"),
        ("Reward", "reward_fn_path"),
    )
    yield from ((name, cell_text(job.jobspec[key])) for name, key in fields if job.jobspec.get(key))
    if job.plan.nnodes or job.plan.command:
        yield "Size", resources_text(job)
    yield from result_facts(job).items()
    yield from (*time_lines(job.info, now), *origin_lines(job.info))


def result_facts(job: JobPage) -> dict[str, str]:
    """The results and resource use of a job, as far as known."""
    results: dict[str, str] = {}
    curve = job.curves.curves.get(job.info.progress.metric, Curve())
    if points := [
        (value, step) for step, value in zip(curve.steps, curve.values, strict=True) if abs(value) < MAX_DRAWN_VALUE
    ]:
        # A loss is better the lower it is, and a reward the higher.
        value, step = (min if job.info.workload == "sft" else max)(points, key=lambda point: point[0])
        results["Best"] = f"{value:.5g} at step {step}"
        last = [value for value, _step in points[-FINAL_MEAN_STEPS:]]
        results["Last steps"] = f"{math.fsum(last) / len(last):.5g} on average"
    means = {part: mean(curve) or 0.0 for part, curve in job.curves.part_seconds.items()}
    if any(means.values()):
        slowest = max(means, key=means.__getitem__)
        results["Slowest part"] = f"{slowest}, {means[slowest]:.3g} s of a step"
    for title in (MEMORY, GPU_MEMORY):
        if curves := job.nodes.get(title):
            name = max(curves, key=lambda name: max(curves[name].values))
            results[f"Peak: {title.partition(',')[0].lower()}"] = f"{max(curves[name].values):.3g} GB, {name}"
    return results


def resources_text(job: JobPage) -> str:
    def pool_text(pool: Pool) -> str:
        beside = f", {pool.name}: " if pool.name else ""
        return f"{beside}{pool.nnodes} node{'s'[: pool.nnodes != 1]} with {pool.gpus:g} GPU{'s'[: pool.gpus != 1]}"

    return "".join(map(pool_text, job.plan.all_pools))


def attempts_table(job: JobPage) -> Table:
    rows = []
    for run in job.info.attempts:
        took = duration(run.ended_at - run.started_at) if run.started_at and run.ended_at else None
        rows.append((run.attempt, run.state, run.kind or None, took, run.resumed_from, run.reason or None))
    return Table("Attempts", ("Attempt", "State", "Failure", "Took", "From step", "Reason"), rows)


def start_phases_table(job: JobPage) -> Table:
    """The seconds of each phase before the first step, by attempt."""
    current = [] if job.info.attempt == len(job.info.attempts) else [(job.info.attempt, job.info.phases)]
    all_attempts = [*((attempt.attempt, attempt.phases) for attempt in job.info.attempts), *current]
    names = list(dict.fromkeys(name for _attempt, phases in all_attempts for name in phases))
    rows = [(attempt, *map(phases.get, names)) for attempt, phases in all_attempts if phases]
    return Table("Seconds before the first step", ("Attempt", *names), rows)


def comparison_tables(jobs: Sequence[JobPage]) -> list[Table]:
    """The results of jobs, and what differs between them."""
    results, values = [comparison_result(job) for job in jobs], [settings(job) for job in jobs]
    keys = dict.fromkeys(key for item in values for key in item)
    return [
        Table("Results", ("", *submission_ids(jobs)), [(key, *(item[key] for item in results)) for key in results[0]]),
        Table(
            "What differs",
            ("", *submission_ids(jobs)),
            [row for key in keys if len(set((row := (key, *(item.get(key) for item in values)))[1:])) > 1],
        ),
    ]


def comparison_result(job: JobPage) -> dict[str, Any]:
    info, progress = job.info, job.info.progress
    return {
        "State": info.state,
        "Failure": info.failure.kind if info.failure else None,
        "Warnings": len(info.warnings) or None,
        "Step": progress.step,
        "Metric": progress.metric or None,
        "First": progress.first,
        "Last": progress.last,
        "Best": result_facts(job).get("Best"),
        "Tokens/s per GPU": progress.tokens_per_second_per_gpu,
        "Duration": None if job.seconds is None else duration(job.seconds),
        "Submitted": utc_text(info.submitted_at),
    }


def settings(job: JobPage) -> dict[str, str]:
    """The settings to compare between jobs. A job's own id in a value, such as a directory, is no difference."""
    values: dict[str, Any] = {"workload": job.info.workload, "code": job.info.code_id, "size": resources_text(job)}
    values |= {key: job.jobspec.get(key) for key in ("module", "command", "model", "dataset", "reward_fn_path")}
    values |= {"tags": tags_text(job.info.tags), "lineage": tags_text(job.info.lineage), **job.overrides}
    values |= {f"file {name}": str(sha256)[:12] for name, sha256 in job.files.items()}
    values |= {f"package {name}": version for name, version in job.versions.items()}
    return {key: cell_text(value).replace(job.info.submission_id, "<id>") for key, value in values.items() if value}


def submission_ids(jobs: Sequence[JobPage]) -> list[str]:
    return [job.info.submission_id for job in jobs]


def step_parts_table(jobs: Sequence[JobPage]) -> Table:
    """The mean seconds of each part of a step, and for one job the shares."""
    means = [[mean(job.curves.part_seconds.get(part, Curve())) for part in STEP_PARTS] for job in jobs]
    rows: list[list[Any]] = [[name, *values] for name, *values in zip(STEP_PARTS, *means, strict=True) if any(values)]
    if len(jobs) > 1:
        return Table("Where the time of a step goes", ("Seconds", *submission_ids(jobs)), rows)
    rows = [[name, value, f"{value / sum(filter(None, means[0])):.0%}"] for name, value in rows]
    return Table("Where the time of a step goes", ("Part", "Seconds", "Share"), rows)


def mean(curve: Curve) -> float | None:
    values = curve.downsample(SMALL_CURVE_POINTS)[1]
    return math.fsum(values) / len(values) if values else None


def samples_of_last_step(by_kind: Mapping[str, Sequence[Sample]]) -> dict[str, list[Sample]]:
    return {kind: [row for row in rows if row.step == rows[-1].step] for kind, rows in by_kind.items() if rows}


def timeline(job: JobPage) -> Iterator[tuple[str, float, float, str]]:
    """Style, position, width and text of attempts, and of events, which have no width. Positions are percents."""
    times = [event.at for event in job.events] or [0.0]
    begin, width = times[0], max(1.0, times[-1] - times[0])

    def percent(at: float | None) -> float:
        return 100.0 if at is None else round(100 * min(max(0.0, (at - begin) / width), 1.0), 2)

    bars = [(run.state, run.started_at, run.ended_at, f"attempt {run.attempt}") for run in job.info.attempts]
    if job.info.attempt > len(job.info.attempts):
        running = [event.at for event in job.events if event.name == "RUNNING"][-1:]
        bars += [("RUNNING", at, None, f"attempt {job.info.attempt}") for at in running]
    for state, started, ended, text in bars:
        yield state.lower(), percent(started), max(0.3, percent(ended) - percent(started)), f"{text}: {state}"
    for event in job.events:
        if (name := event.name) in TIMELINE_EVENTS:
            yield name.lower(), percent(event.at), 0, f"{name} after {time_after_start(event, job)}: {event.text}"


def events_table(job: JobPage) -> Table:
    rows = [(utc_text(event.at), time_after_start(event, job), event.name, event.text) for event in job.events]
    return Table("Events", ("Time", "After", "Event", "Details"), rows, is_folded=len(rows) > MAX_UNFOLDED_EVENTS)


def time_after_start(event: Event, job: JobPage) -> str:
    return duration(event.at - job.events[0].at)


def configuration_tables(job: JobPage) -> Iterator[Table]:
    overrides = [(key, cell_text(value)) for key, value in job.overrides.items()]
    versions = [(name, cell_text(version)) for name, version in job.versions.items()]
    for title, header, rows, first, others in (
        ("Overrides of the JobSpec", ("Key", "Value"), overrides, job.jobspec_keys, "Other overrides"),
        ("Versions", ("Package", "Version"), versions, MAIN_PACKAGES, "Other packages"),
    ):
        yield Table(title, header, [row for row in rows if row[0] in first])
        yield Table(others, header, [row for row in rows if row[0] not in first], is_folded=True)


def chart_data(jobs: Sequence[JobPage], charts: Mapping[str, MetricsByTitle]) -> str:
    """The data for the script, as JSON that cannot end its element. X axes are delta-encoded."""
    all_charts = [chart for section in charts.values() for chart in section.values()]
    count = sum(name in job.curves.curves for chart in all_charts for name in chart for job in jobs)
    max_points = min(MAX_POINTS, max(MIN_POINTS_PER_CURVE, MAX_POINTS_PER_PAGE // max(1, count)))
    axes: dict[tuple[int, ...], int] = {}

    def curve_data(label: str, job: int, curve: Curve, points: int = SMALL_CURVE_POINTS) -> dict[str, Any]:
        steps, values = curve.downsample(points)
        axis = tuple(after - before for before, after in zip((0, *steps), steps, strict=False))
        axis_index = axes.setdefault(axis, len(axes))
        return {"label": cell_text(label), "job": job, "axis": axis_index, "values": list(map(drawn_value, values))}

    series = [
        [
            curve_data(job.info.submission_id if len(jobs) > 1 else name, number, job.curves.curves[name], max_points)
            for name in chart
            for number, job in enumerate(jobs)
            if name in job.curves.curves
        ]
        for chart in all_charts
    ]
    parts = [curve_data(part, 0, curve) for part, curve in jobs[0].curves.part_seconds.items() if any(curve.values)]
    if len(jobs) == 1:
        # Against the time since they were first measured.
        curves = [chart.items() for chart in jobs[0].nodes.values()]
        series += [[curve_data(name, 0, curve) | {"timed": True} for name, curve in items] for items in curves]
    times = [curve_data("", 0, job.curves.step_times(job.seconds)) for job in jobs]
    value = {"colours": COLOURS, "charts": series, "stack": parts, "clocks": times, "axes": list(axes)}
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"})


def drawn_value(value: float) -> float | None:
    """A value rounded to five significant digits; None, drawn as a gap, if it cannot be drawn."""
    if not abs(value) < MAX_DRAWN_VALUE:
        return None
    return int(value) if value == int(value) and abs(value) < 1e9 else float(f"{value:.5g}")


# The page in an archive, which is made again when the archive has something new.

PAGE_SOURCES = ("status.json", "events.jsonl", "logs/driver.log")


def changed_at(archive: Archive) -> int:
    """The time in nanoseconds when the sources of a page were last written. Raises UnreadableError."""
    metrics = archive.metrics_file(attempts.current_attempt(archive))
    return max(mtime_ns(path) for path in (*(archive.path / name for name in PAGE_SOURCES), metrics))


def mtime_ns(path: Path) -> int:
    with contextlib.suppress(OSError):
        return os.lstat(path).st_mtime_ns
    return 0


def write_page(archive: Archive) -> bool:
    """Write the page of a job into its archive; False if the one there is as new as the archive.

    Raises OSError, and UnreadableError.
    """
    # The time is taken before reading, so that later changes are in the next page. Clocks of servers are not compared.
    newest = changed_at(archive)
    target = archive.path / PAGE
    if mtime_ns(target) == newest:
        return False
    write_text(target, render_page([read_job(archive)], time.time()), durable=False)
    os.utime(target, ns=(newest, newest), follow_symlinks=False)
    return True
