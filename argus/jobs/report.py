# SPDX-License-Identifier: Apache-2.0
"""Formats reports on jobs for people, as the arguments of argus.verl.report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive.failures import Failure
from ..archive.plan import COMMAND
from ..archive.status import ENDED, Attempt, JobState
from ..common.text import duration, least_width, printable, printable_line, sentence, table
from ..launcher import outcome
from ..ray.api import ANSWERS_SLOWLY
from .info import UNREADABLE, JobInfo, JobList, Progress
from .progress import VAL_PREFIX, warning_count

# The number of unreadable archives that the list explains.
MAX_UNREADABLE_SHOWN = 5
# The steward writes every 5 s at most, the launcher every 2 s.
MAX_ARCHIVE_AGE_SECONDS = 20
# How the list names the key metrics.
METRIC_NAMES = {"critic/rewards/mean": "reward", "train/loss": "loss"}
# The length of a job's tags in the list.
MAX_TAGS_CHARS = 40
# The tag that names a user, as job_defaults of an inventory may set it, and how much of a name the list shows.
OWNER_TAG, MAX_OWNER_CHARS = "user", 20
# The columns of the list that are left out if no job has a value there.
OPTIONAL_COLUMNS = {"class", "left", "metric", "trend", "tokens/s", "gpus", "attempt", "by", "tags", "where"}
# The columns that a narrow terminal may leave out, the least important first.
WIDE_COLUMNS = ("trend", "tokens/s", "gpus", "attempt", "workload", "tags", "age", "where", "by")
# The end of the year 9999: dates have no later one.
MAX_DATE_SECONDS = 253_402_300_799
# A trend, and how many of them one has: of a job, and in the list.
BARS, TREND_WIDTH, SHORT_TREND = "▁▂▃▄▅▆▇█", 40, 8
# The length of a log line in a report.
MAX_LINE_CHARS = 160


@dataclass(frozen=True)
class Report:
    """The arguments of argus.verl.report."""

    title: str
    text: list[str]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()

    def lines(self, columns: int | None = None) -> list[str]:
        rows = [table(self.header, self.rows, columns)] if self.rows else []
        return [self.title, *rows, *(sentence(printable(line), columns) for line in self.text)]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"header": list(self.header), "rows": [list(row) for row in self.rows]}


def clip_line(line: str) -> str:
    text = printable_line(line, colour=False)
    return text if len(text) <= MAX_LINE_CHARS else f"{text[: MAX_LINE_CHARS - 1]}…"


def age(seconds: float) -> str:
    """A duration in its largest unit: ``2 d``, ``3 h``, ``5 min``, ``7 s``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def clock(seconds: float) -> str:
    # A job can write any number into its status.
    return datetime.fromtimestamp(min(max(0.0, seconds), MAX_DATE_SECONDS), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def steps(progress: Progress) -> str:
    """``3/12``, ``3/?``, ``3`` of what was validated, or ``-`` if neither is known."""
    if not progress.step and not progress.total_steps:
        return "-"
    if progress.validation:
        return str(progress.step)
    return f"{progress.step}/{progress.total_steps or '?'}"


def silence(job: JobInfo) -> str:
    """For how long a running job has written no heartbeat, or an empty string."""
    return f"no heartbeat for {age(job.silent_for or 0)}" if job.is_silent else ""


def staleness(job: JobInfo, now: float) -> list[str]:
    """Why the archive of a job that has not ended may be behind: nothing can be written, or nothing was."""
    if job.state in ENDED or job.written_at is None:
        return []
    since = now - job.written_at
    problem = job.root_problem
    if not problem and job.state == JobState.RUNNING and since > MAX_ARCHIVE_AGE_SECONDS:
        problem = "Neither the launcher nor the steward has written to the archive since"
    return [printable(f"{problem}; what follows is from {age(since)} ago.", lines=False)] if problem else []


def sparkline(values: Sequence[float], width: int) -> str:
    """``▁▃▆█`` for values over time; empty for fewer than two."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    shown = [finite[at * (len(finite) - 1) // (width - 1)] for at in range(width)] if len(finite) > width else finite
    least, span = min(shown), max(shown) - min(shown)
    return "".join(BARS[int((value - least) / span * (len(BARS) - 1)) if 0 < span < math.inf else 0] for value in shown)


def number(value: float) -> str:
    """A number with three decimals, or in few characters if it is large."""
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3g}"


def throughput(progress: Progress) -> str | None:
    """``1840/GPU`` as verl measures it, or ``7360`` of all GPUs together."""
    for value, unit in ((progress.tokens_per_second_per_gpu, "/GPU"), (progress.tokens_per_second, "")):
        if value is not None:
            return f"{f'{value:.0f}' if 10 <= value < 1e7 else f'{value:.3g}'}{unit}"
    return None


def tags_text(tags: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(tags.items()))


def ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"


def job_class(job: JobInfo) -> str | None:
    """The kind of a failure, or else what makes a job look worse than its state."""
    if job.failure:
        return job.failure.kind
    if silence(job):
        return "silent"
    if job.place is not None:
        return f"{ordinal(job.place)} in line"
    return warning_count(job.warnings) if job.warnings else None


def field(name: str, value: object) -> str:
    return f"{name + ':':9} {printable(value, lines=False)}"


def head_problem(problem: str, away_for: float | None, consequence: str) -> list[str]:
    if not problem:
        return []
    state = "is too slow" if ANSWERS_SLOWLY in problem else "does not answer"
    if away_for is not None:
        state = f"has been away for {age(away_for)}"
    return [f"The head {state}; {consequence}: {printable(problem, lines=False)}"]


def fit_columns(rows: Sequence[Mapping[str, Any]], width: int | None) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Rows with the columns for which a terminal is wide enough, and the others; with all if it is not even for few."""
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


def jobs_report(
    listed: JobList,
    now: float,
    *,
    cluster: str,
    status_command: str,
    submit_command: str,
    columns: int | None = None,
) -> Report:
    """The latest jobs, one row each.

    columns: the width of the terminal.
    status_command: shows one job.
    submit_command: submits one; shown if there are no jobs yet.
    """
    narrow, left_out = fit_columns(without_empty_columns([job_row(job, now) for job in listed.jobs]), columns)
    header, rows = tuple(narrow[0]) if narrow else (), tuple(tuple(row.values()) for row in narrow)
    shown, total = len(rows), listed.total
    count = f"latest {shown} of {total} jobs" if shown < total else f"{total} job{'s'[: total != 1]}"
    count += f" with {tags_text(listed.tags)}" if listed.tags else ""
    away = min((job.head_away_for for job in listed.jobs if job.head_away_for is not None), default=None)
    text = head_problem(listed.problem, away, "states come from the archives")
    if left_out:
        text.append(f"Left out at a width of {columns}: {', '.join(left_out)}.")
    if listed.root_problem:
        text.append(printable(f"{listed.root_problem}; states may be behind.", lines=False))
    if "workload" in header and any(not job.archive for job in listed.jobs):
        text.append("Jobs without a workload were submitted to Ray directly.")
    bad = [job for job in listed.jobs if job.state == UNREADABLE]
    text += [field("Unreadable", "; ".join(job.unreadable) or job.reason) for job in bad[:MAX_UNREADABLE_SHOWN]]
    if len(bad) > MAX_UNREADABLE_SHOWN:
        text.append(f"{len(bad) - MAX_UNREADABLE_SHOWN} more archives are unreadable.")
    if rows or not listed.tags:
        text.append(field("One job", status_command) if rows else field("Submit", submit_command))
    else:
        text.append("No job has these tags. Without tags, all jobs are listed.")
    return Report(
        title=printable(f"Cluster {cluster}: {count} in {listed.directory}", lines=False),
        header=header,
        rows=rows,
        text=text,
    )


def owner(job: JobInfo) -> str:
    """The submitter of a job: the user of its tag, or of the controller."""
    return str(job.tags.get(OWNER_TAG) or job.submitted_by.partition("@")[0])[:MAX_OWNER_CHARS]


def metric_text(done: Progress) -> str | None:
    if done.last is None:
        return None
    name = METRIC_NAMES.get(done.metric, done.metric.removeprefix(VAL_PREFIX))
    return f"{name} {number(done.last)}"


def job_row(job: JobInfo, now: float) -> dict[str, str | int | None]:
    done, tags = job.progress, tags_text(job.tags)
    return {
        "job": job.submission_id,
        "workload": job.workload or None,
        "state": job.state,
        "class": job_class(job),
        "step": steps(done),
        "left": None if job.time_left is None else age(job.time_left),
        "metric": metric_text(done),
        "trend": sparkline(done.trend, SHORT_TREND) or None,
        "tokens/s": throughput(done),
        "gpus": None if job.gpu_percent is None else f"{job.gpu_percent:.0f} %",
        "attempt": job.attempt if job.attempt > 1 else None,
        "age": age(now - job.submitted_at),
        "by": owner(job) or None,
        "tags": (tags if len(tags) <= MAX_TAGS_CHARS else f"{tags[: MAX_TAGS_CHARS - 1]}…") or None,
        "where": job.driver_host or job.driver_node_ip,
    }


def without_empty_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows without those optional columns in which no row has a value."""
    empty = {name for name in OPTIONAL_COLUMNS if all(row[name] is None for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def job_report(job: JobInfo, now: float, commands: Sequence[str], columns: int | None = None) -> Report:
    """One job in detail.

    commands: the lines with the commands for this job.
    columns: the width of the terminal.
    """
    lines = [*state_lines(job), *time_lines(job, now), *origin_lines(job)]
    width = max(len(name) for name, _value in lines) + 1
    # Nothing that a job has set may look like another line.
    text = staleness(job, now)
    text += [f"{name + ':':{width}} {printable(value, lines=False)}" for name, value in lines]
    text += failure_lines(job.failure)
    text += warning_lines(job)
    if len(job.attempts) > 1 or (job.attempts and job.state not in ENDED):
        text += ["", attempts_table(job.attempts, columns)]
    text += log_lines(job)
    consequence = f"{'the job goes on, and ' if job.goes_on else ''}all of this comes from the archive"
    text += ["", *head_problem(job.problem, job.head_away_for, consequence), *commands]
    attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
    warned = f", {warning_count(job.warnings)}" if job.warnings else ""
    return Report(title=printable(f"Job {job.submission_id}: {job.state}{attempt}{warned}", lines=False), text=text)


def state_lines(job: JobInfo) -> list[tuple[str, str]]:
    code = "" if job.workload == COMMAND else f" on {job.code_id or 'unknown'}"
    lines = [("Workload", f"{job.workload or 'unknown'}{code}")]
    if job.tags:
        lines.append(("Tags", tags_text(job.tags)))
    if job.reason and not job.failure:
        lines.append(("Reason", job.reason))
    if job.notice:
        place = f"{ordinal(job.place)} in line: " if job.place else ""
        lines.append(("Waits", f"{place}{job.notice.removeprefix('waits').removeprefix(':').lstrip()}"))
    # The reason of an unreadable job says the same.
    if job.unreadable and job.state != UNREADABLE:
        lines.append(("Unreadable", "; ".join(job.unreadable)))
    if silence(job):
        why = "it cannot write" if job.root_problem else "its launcher was killed or its node is gone"
        lines.append(("Silent", f"{silence(job)}: {why}"))
    if job.address:
        lines.append(("Address", job.address))
    if job.phase:
        lines.append(("Phase", job.phase))
    if job.phases:
        lines.append(("Start", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in job.phases.items())))
    if job.progress.step or job.progress.total_steps:
        left = "" if job.time_left is None else f", {duration(job.time_left)} left"
        lines.append(("Step", f"{steps(job.progress)}{left}"))
    lines += [("Validation", f"{name} {value:.3f}") for name, value in job.progress.validation.items()]
    if job.progress.last is not None and not job.progress.validation:
        lines.append(("Metric", f"{job.progress.metric} {job.progress.last:.3f}, initially {job.progress.first:.3f}"))
    if trend := sparkline(job.progress.trend, TREND_WIDTH):
        lines.append(("Trend", trend))
    if job.gpu_percent is not None:
        lines.append(("GPUs", f"{job.gpu_percent:.0f} % of their time in use"))
    speed = throughput(job.progress)
    if speed:
        value, _slash, unit = speed.partition("/")
        lines.append(("Throughput", f"{value} tokens/s{f' per {unit}' if unit else ''}"))
    if job.progress.seconds:
        lines.append(("Seconds", ", ".join(f"{part} {value:.3g}" for part, value in job.progress.seconds.items())))
    return lines


def time_lines(job: JobInfo, now: float) -> list[tuple[str, str]]:
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    lines = [("Submitted", f"{clock(job.submitted_at)}, {age(now - job.submitted_at)} ago{by}")]
    if job.started_at:
        verb = "ran for" if job.state in ENDED else "running for"
        lines.append(("Started", f"{clock(job.started_at)}, {verb} {duration((job.ended_at or now) - job.started_at)}"))
    if job.ended_at:
        lines.append(("Ended", f"{clock(job.ended_at)}, {age(now - job.ended_at)} ago"))
    return lines


def origin_lines(job: JobInfo) -> list[tuple[str, str]]:
    lines = []
    if job.driver_host:
        where = f" ({job.driver_node_ip})" if job.driver_node_ip else ""
        lines.append(("Driver", f"{job.driver_host}{where}"))
    if job.checkpoints:
        plural = "s" if len(job.checkpoints) > 1 else ""
        lines.append(("Checkpoints", f"step{plural} {', '.join(map(str, job.checkpoints))}"))
    if job.models:
        text = ", ".join(map(str, job.models))
        lines.append(("Models", f"saved at {text}, without what a job resumes with (save_contents)"))
    for key, name in (("resubmitted_from", "Resubmitted"), ("resumed_from", "Resumed")):
        if job.lineage.get(key):
            # Its path is the one in the nodes.
            checkpoint = str(job.lineage.get("checkpoint", "")).rpartition("/")[2] if key == "resumed_from" else ""
            lines.append((name, f"from {job.lineage[key]}{f', {checkpoint}' if checkpoint else ''}"))
    return [*lines, ("Archive", job.archive)]


def failure_lines(failure: Failure | None) -> list[str]:
    if not failure:
        return []
    lines = [f"  {clip_line(line)}" for line in failure.lines]
    reason, remedy = printable(failure.reason, lines=False), outcome.trusted_advice(failure)
    return ["", f"Failed: {failure.kind}: {reason}", *lines, f"To do:  {remedy}"]


def warning_lines(job: JobInfo) -> list[str]:
    if not job.warnings:
        return []
    verb = f"{job.state} with " if job.state in ENDED else ""
    return [
        "",
        printable(f"{verb}{warning_count(job.warnings)}:", lines=False),
        *(f"  {printable(warning.text, lines=False)}" for warning in job.warnings),
    ]


def log_lines(job: JobInfo) -> list[str]:
    """The end of the log of a job that did not succeed, unless lines of the log already show why."""
    if not job.log or job.state == JobState.SUCCEEDED or (job.failure and job.failure.lines):
        return []
    return ["", "The end of its log:", *(f"  {clip_line(line)}" for line in job.log)]


def attempts_table(attempts: Sequence[Attempt], columns: int | None = None) -> str:
    rows = []
    for run in attempts:
        took = duration(run.ended_at - run.started_at) if run.started_at and run.ended_at else None
        rows.append((run.attempt, run.state, run.kind or None, took, run.resumed_from or None, run.reason or None))
    return table(("attempt", "state", "class", "took", "from step", "reason"), rows, columns)
