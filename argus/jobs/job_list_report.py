# SPDX-License-Identifier: Apache-2.0
"""The list of the latest jobs for people, one row for each job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.text import least_width, printable
from .info import UNREADABLE, JobInfo, JobList, Progress
from .progress import VAL_PREFIX
from .report import (
    Report,
    age_text,
    field_line,
    head_problem_lines,
    number_text,
    ordinal,
    silence_text,
    sparkline,
    steps_text,
    tags_text,
    throughput_text,
    warning_count_text,
)

MAX_UNREADABLE_SHOWN = 5
METRIC_NAMES = {"critic/rewards/mean": "reward", "train/loss": "loss"}
MAX_TAGS_CHARS = 40
# The tag that names a user, as job_defaults of an inventory may set it.
OWNER_TAG = "user"
MAX_OWNER_CHARS = 20
SHORT_TREND = 8
OPTIONAL_COLUMNS = {"class", "left", "metric", "trend", "tokens/s", "gpus", "attempt", "by", "tags", "where"}
# The columns that a narrow terminal may leave out, the least important first.
WIDE_COLUMNS = ("trend", "tokens/s", "gpus", "attempt", "workload", "tags", "age", "where", "by")


def jobs_report(
    listed: JobList,
    now: float,
    *,
    cluster: str,
    status_command: str,
    submit_command: str,
    columns: int | None = None,
) -> Report:
    """The report on the latest jobs.

    now: seconds since the epoch. cluster: its name.
    status_command: the command that shows one job.
    submit_command: the command that submits one, which is shown if there are no jobs yet.
    columns: the width of the terminal; None shows all columns.
    """
    fitting, left_out = fit_columns(without_empty_columns([job_row(job, now) for job in listed.jobs]), columns)
    header, rows = tuple(fitting[0]) if fitting else (), tuple(tuple(row.values()) for row in fitting)
    shown, total = len(rows), listed.total
    count = f"latest {shown} of {total} jobs" if shown < total else f"{total} job{'s'[: total != 1]}"
    count += f" with {tags_text(listed.tags)}" if listed.tags else ""
    away = min((job.head_away_for for job in listed.jobs if job.head_away_for is not None), default=None)
    text = head_problem_lines(listed.problem, away, "states come from the archives")
    if left_out:
        text.append(f"Left out at a width of {columns}: {', '.join(left_out)}.")
    if listed.root_problem:
        text.append(printable(f"{listed.root_problem}; states may be behind.", lines=False))
    if "workload" in header and any(not job.archive for job in listed.jobs):
        text.append("Jobs without a workload were submitted to Ray directly.")
    unreadable = [job for job in listed.jobs if job.state == UNREADABLE]
    for job in unreadable[:MAX_UNREADABLE_SHOWN]:
        text.append(field_line("Unreadable", "; ".join(job.unreadable) or job.reason))
    if len(unreadable) > MAX_UNREADABLE_SHOWN:
        text.append(f"{len(unreadable) - MAX_UNREADABLE_SHOWN} more archives are unreadable.")
    if rows or not listed.tags:
        text.append(field_line("One job", status_command) if rows else field_line("Submit", submit_command))
    else:
        text.append("No job has these tags. Without tags, all jobs are listed.")
    return Report(
        title=printable(f"Cluster {cluster}: {count} in {listed.directory}", lines=False),
        header=header,
        rows=rows,
        text=text,
    )


def fit_columns(rows: Sequence[Mapping[str, Any]], width: int | None) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The rows with the columns that fit a terminal, and the names of the columns that were left out.

    If not even the columns fit that always stay, all columns stay: the table then wraps its cells.
    """
    columns = {name: [name, *(str(row[name]) for row in rows)] for name in (rows[0] if rows else ())}
    widths = {name: least_width(column, max(map(len, column))) for name, column in columns.items()}

    def fits(names: Sequence[str]) -> bool:
        return not width or sum(widths[name] + 2 for name in names) - 2 <= width

    kept = [name for name in columns if name not in WIDE_COLUMNS]
    if not fits(kept):
        return [dict(row) for row in rows], ()
    for name in reversed(WIDE_COLUMNS):
        if name in columns and fits([*kept, name]):
            kept.append(name)
    shown = [{name: value for name, value in row.items() if name in kept} for row in rows]
    return shown, tuple(name for name in columns if name not in kept)


def without_empty_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without those optional columns in which no row has a value."""
    empty = {name for name in OPTIONAL_COLUMNS if all(row[name] is None for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def job_row(job: JobInfo, now: float) -> dict[str, str | int | None]:
    progress, tags = job.progress, tags_text(job.tags)
    return {
        "job": job.submission_id,
        "workload": job.workload or None,
        "state": job.state,
        "class": job_class(job),
        "step": steps_text(progress),
        "left": None if job.time_left is None else age_text(job.time_left),
        "metric": metric_text(progress),
        "trend": sparkline(progress.trend, SHORT_TREND) or None,
        "tokens/s": throughput_text(progress),
        "gpus": None if job.gpu_percent is None else f"{job.gpu_percent:.0f} %",
        "attempt": job.attempt if job.attempt > 1 else None,
        "age": age_text(now - job.submitted_at),
        "by": owner_name(job) or None,
        "tags": (tags if len(tags) <= MAX_TAGS_CHARS else f"{tags[: MAX_TAGS_CHARS - 1]}…") or None,
        "where": job.driver_host or job.driver_node_ip,
    }


def job_class(job: JobInfo) -> str | None:
    """The kind of the job's failure, or else the first of: it is silent, its place in the queue, its warnings."""
    if job.failure:
        return job.failure.kind
    if silence_text(job):
        return "silent"
    if job.place is not None:
        return f"{ordinal(job.place)} in line"
    return warning_count_text(job.warnings) if job.warnings else None


def owner_name(job: JobInfo) -> str:
    """Who submitted a job: the user in its tag, or else the user on the controller."""
    return str(job.tags.get(OWNER_TAG) or job.submitted_by.partition("@")[0])[:MAX_OWNER_CHARS]


def metric_text(progress: Progress) -> str | None:
    if progress.last is None:
        return None
    name = METRIC_NAMES.get(progress.metric, progress.metric.removeprefix(VAL_PREFIX))
    return f"{name} {number_text(progress.last)}"
