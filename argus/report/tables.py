# SPDX-License-Identifier: Apache-2.0
"""The tables and the timeline of a job's page, and the tables that compare several jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..archive.plan import Pool
from ..common.text import duration
from ..jobs.report import origin_lines, state_lines, tags_text, time_lines, utc_text
from .curves import MAX_DRAWN_VALUE, SMALL_CURVE_POINTS, Curve
from .data import Event, JobPage
from .job_curves import GPU_MEMORY, MEMORY, STEP_PARTS
from .rendering import Table, cell_text

# Fields of `argus status` that a table or a chart of the page shows.
FIELDS_SHOWN_ELSEWHERE = ("Seconds", "Start", "Trend")
# The number of steps whose mean is "Last steps".
FINAL_MEAN_STEPS = 10
MAX_UNFOLDED_EVENTS = 20
# The packages that people look for first. The table of the others is folded.
MAIN_PACKAGES = ("python", "verl", "torch", "ray", "vllm", "sglang", "transformers", "flash-attn", "megatron-core")
# The events that the timeline shows, beside attempts.
TIMELINE_EVENTS = ("CHECKPOINT", "EVIDENCE", "STALLED", "ENGINE_LOST", "HEAD_RETURNED", "WARNING")


def fact_rows(job: JobPage, now: float) -> Iterator[tuple[str, Any]]:
    """The names and values of the facts with which a job's page begins."""
    yield from (line for line in state_lines(job.info) if line[0] not in FIELDS_SHOWN_ELSEWHERE)
    fields = {"Module": "module", "Command": "command", "Model": "model", "Dataset": "dataset"}
    fields |= {"Reward": "reward_fn_path"}
    yield from ((name, cell_text(job.jobspec[key])) for name, key in fields.items() if job.jobspec.get(key))
    if job.plan.nnodes or job.plan.command:
        yield "Size", pools_text(job)
    yield from result_facts(job).items()
    yield from (*time_lines(job.info, now), *origin_lines(job.info))


def result_facts(job: JobPage) -> dict[str, str]:
    """The best and last values of the key metric, the slowest part of a step, and peaks of memory, as far as known."""
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
    means = {part: approximate_mean(curve) or 0.0 for part, curve in job.curves.part_seconds.items()}
    if any(means.values()):
        slowest = max(means, key=means.__getitem__)
        results["Slowest part"] = f"{slowest}, {means[slowest]:.3g} s of a step"
    for title in (MEMORY, GPU_MEMORY):
        if curves := job.nodes.get(title):
            name = max(curves, key=lambda name: max(curves[name].values))
            results[f"Peak: {title.partition(',')[0].lower()}"] = f"{max(curves[name].values):.3g} GB, {name}"
    return results


def pools_text(job: JobPage) -> str:
    """The number of nodes and GPUs in each pool of the job. The first pool has no name."""

    def pool_text(pool: Pool) -> str:
        prefix = f", {pool.name}: " if pool.name else ""
        return f"{prefix}{pool.nnodes} node{'s'[: pool.nnodes != 1]} with {pool.gpus:g} GPU{'s'[: pool.gpus != 1]}"

    return "".join(map(pool_text, job.plan.all_pools))


def attempts_table(job: JobPage) -> Table:
    rows = []
    for run in job.info.attempts:
        took = duration(run.ended_at - run.started_at) if run.started_at and run.ended_at else None
        rows.append((run.attempt, run.state, run.kind or None, took, run.resumed_from, run.reason or None))
    return Table("Attempts", ("Attempt", "State", "Failure", "Took", "From step", "Reason"), rows)


def start_phases_table(job: JobPage) -> Table:
    """The seconds of each phase before the first step, with a row for each attempt."""
    current = [] if job.info.attempt == len(job.info.attempts) else [(job.info.attempt, job.info.phases)]
    all_attempts = [*((attempt.attempt, attempt.phases) for attempt in job.info.attempts), *current]
    names = list(dict.fromkeys(name for _attempt, phases in all_attempts for name in phases))
    rows = [(attempt, *map(phases.get, names)) for attempt, phases in all_attempts if phases]
    return Table("Seconds before the first step", ("Attempt", *names), rows)


def comparison_tables(jobs: Sequence[JobPage]) -> list[Table]:
    """The results of several jobs, and the settings in which they differ, with a column for each job."""
    header = ("", *submission_ids(jobs))
    results, settings = [compared_results(job) for job in jobs], [compared_settings(job) for job in jobs]
    result_rows = [(name, *(by_name[name] for by_name in results)) for name in results[0]]
    names = dict.fromkeys(name for by_name in settings for name in by_name)
    setting_rows = [(name, *(by_name.get(name) for by_name in settings)) for name in names]
    different = [row for row in setting_rows if len(set(row[1:])) > 1]
    return [Table("Results", header, result_rows), Table("What differs", header, different)]


def compared_results(job: JobPage) -> dict[str, Any]:
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


def compared_settings(job: JobPage) -> dict[str, str]:
    """What was set for a job, by name. <id> stands for its id, which the paths in its settings have."""
    values: dict[str, Any] = {"workload": job.info.workload, "code": job.info.code_id, "size": pools_text(job)}
    values |= {key: job.jobspec.get(key) for key in ("module", "command", "model", "dataset", "reward_fn_path")}
    values |= {"tags": tags_text(job.info.tags), "lineage": tags_text(job.info.lineage), **job.overrides}
    values |= {f"file {name}": str(sha256)[:12] for name, sha256 in job.files.items()}
    values |= {f"package {name}": version for name, version in job.versions.items()}
    return {key: cell_text(value).replace(job.info.submission_id, "<id>") for key, value in values.items() if value}


def submission_ids(jobs: Sequence[JobPage]) -> list[str]:
    return [job.info.submission_id for job in jobs]


def step_parts_table(jobs: Sequence[JobPage]) -> Table:
    """The mean seconds of each part of a step: in a column for each job; for one job, with their shares of a step."""
    means = [[approximate_mean(job.curves.part_seconds.get(part, Curve())) for part in STEP_PARTS] for job in jobs]
    rows: list[list[Any]] = [[name, *values] for name, *values in zip(STEP_PARTS, *means, strict=True) if any(values)]
    if len(jobs) > 1:
        return Table("Where the time of a step goes", ("Seconds", *submission_ids(jobs)), rows)
    rows = [[name, value, f"{value / sum(filter(None, means[0])):.0%}"] for name, value in rows]
    return Table("Where the time of a step goes", ("Part", "Seconds", "Share"), rows)


def approximate_mean(curve: Curve) -> float | None:
    """The mean of the curve, reduced to at most SMALL_CURVE_POINTS points; None without points."""
    values = curve.downsample(SMALL_CURVE_POINTS)[1]
    return math.fsum(values) / len(values) if values else None


def timeline_shapes(job: JobPage) -> Iterator[tuple[str, float, float, str]]:
    """The bars of attempts and the marks of events: the class in page.css, the left edge, the width and the text.

    Left edge and width are percents of the time from the first event to the last. A mark has the width 0.
    """
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
    """The overrides of the trainer and the versions of packages: of both, the main ones and the others, folded."""
    overrides = [(key, cell_text(value)) for key, value in job.overrides.items()]
    versions = [(name, cell_text(version)) for name, version in job.versions.items()]
    for title, header, rows, first, others in (
        ("Overrides of the JobSpec", ("Key", "Value"), overrides, job.jobspec_keys, "Other overrides"),
        ("Versions", ("Package", "Version"), versions, MAIN_PACKAGES, "Other packages"),
    ):
        yield Table(title, header, [row for row in rows if row[0] in first])
        yield Table(others, header, [row for row in rows if row[0] not in first], is_folded=True)
