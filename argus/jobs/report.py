# SPDX-License-Identifier: Apache-2.0
"""Texts about jobs for people: the report on one job, and the parts that it shares with the list of jobs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive.failures import Failure
from ..archive.job_warnings import JobWarning
from ..archive.plan import COMMAND
from ..archive.status import ENDED, Attempt, JobState
from ..common.text import duration, printable, printable_line, table, wrap_sentence
from ..launcher import outcome
from ..ray.api import ANSWERS_SLOWLY
from .info import UNREADABLE, JobInfo, Progress

# The end of the year 9999, after which Python has no dates.
MAX_DATE_SECONDS = 253_402_300_799
BARS = "▁▂▃▄▅▆▇█"
MAX_LINE_CHARS = 160
TREND_WIDTH = 40
# The launcher writes to the archive of a running job every 2 s, the steward every 5 s at most.
MAX_ARCHIVE_AGE_SECONDS = 20


@dataclass(frozen=True)
class Report:
    """The arguments of the module argus.verl.report: a title, then a table if there are rows, then lines of text."""

    title: str
    text: list[str]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()

    def lines(self, columns: int | None = None) -> list[str]:
        """The report as a terminal shows it. columns: the width of the terminal; None wraps no line."""
        rows = [table(self.header, self.rows, columns)] if self.rows else []
        return [self.title, *rows, *(wrap_sentence(printable(line), columns) for line in self.text)]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"header": list(self.header), "rows": [list(row) for row in self.rows]}


def clip_line(line: str) -> str:
    text = printable_line(line, colour=False)
    return text if len(text) <= MAX_LINE_CHARS else f"{text[: MAX_LINE_CHARS - 1]}…"


def age_text(seconds: float) -> str:
    """A duration in its largest unit: ``2 d``, ``3 h``, ``5 min``, ``7 s``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def utc_text(seconds: float) -> str:
    """A time in seconds since the epoch: ``2026-01-31 12:00:00 UTC``."""
    # A job can write any number into its status.
    return datetime.fromtimestamp(min(max(0.0, seconds), MAX_DATE_SECONDS), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def steps_text(progress: Progress) -> str:
    """The steps done and to do: ``3/12`` or ``3/?``; ``3`` for a validation of that step; ``-`` if unknown."""
    if not progress.step and not progress.total_steps:
        return "-"
    if progress.validation:
        return str(progress.step)
    return f"{progress.step}/{progress.total_steps or '?'}"


def silence_text(job: JobInfo) -> str:
    return f"no heartbeat for {age_text(job.silent_for or 0)}" if job.is_silent else ""


def sparkline(values: Sequence[float], width: int) -> str:
    """A row of bars such as ``▁▃▆█`` for values over time, at most `width` characters; empty for one value or none."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return ""
    if len(finite) > width:
        finite = [finite[at * (len(finite) - 1) // (width - 1)] for at in range(width)]
    least, span = min(finite), max(finite) - min(finite)
    return "".join(
        BARS[int((value - least) / span * (len(BARS) - 1)) if 0 < span < math.inf else 0] for value in finite
    )


def number_text(value: float) -> str:
    """A number with three decimals, or from a million on with three digits: ``1.23e+07``."""
    return f"{value:.3f}" if abs(value) < 1e6 else f"{value:.3g}"


def throughput_text(progress: Progress) -> str | None:
    """The tokens per second: ``1840/GPU`` as verl measures them, or ``7360`` of all GPUs together; None if unknown."""
    for value, unit in ((progress.tokens_per_second_per_gpu, "/GPU"), (progress.tokens_per_second, "")):
        if value is not None:
            return f"{f'{value:.0f}' if 10 <= value < 1e7 else f'{value:.3g}'}{unit}"
    return None


def tags_text(tags: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(tags.items()))


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``."""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"


def field_line(name: str, value: object) -> str:
    return f"{name + ':':9} {printable(value, lines=False)}"


def head_problem_lines(problem: str, away_for: float | None, consequence: str) -> list[str]:
    """Why the head could not be asked, and the consequence for this report; empty without a problem.

    away_for: for how many seconds the head has been away, if that is known.
    """
    if not problem:
        return []
    state = "is too slow" if ANSWERS_SLOWLY in problem else "does not answer"
    if away_for is not None:
        state = f"has been away for {age_text(away_for)}"
    return [f"The head {state}; {consequence}: {printable(problem, lines=False)}"]


def warning_count_text(warnings: Sequence[JobWarning]) -> str:
    return f"{len(warnings)} warning{'s'[: len(warnings) != 1]}"


def progress_line(job: JobInfo, now: float) -> str:
    """One line about a job that is followed: state, steps, key metric, time since the start, time left."""
    attempt = f" attempt {job.attempt}" if job.attempt > 1 else ""
    parts = [job.submission_id, f"{job.state}{attempt}"]
    progress = job.progress
    if progress.step or progress.total_steps:
        parts.append(f"step {progress.step}" + (f"/{progress.total_steps}" if progress.total_steps else ""))
    if job.phase:
        parts.append(job.phase)
    if progress.last is not None:
        parts.append(f"{progress.metric} {progress.last:.3f}")
    if job.started_at:
        parts.append(duration((job.ended_at or now) - job.started_at))
    if job.time_left is not None and job.state == JobState.RUNNING:
        parts.append(f"{duration(job.time_left)} left")
    if job.warnings:
        parts.append(warning_count_text(job.warnings))
    if job.state not in (JobState.RUNNING, *ENDED) and job.reason:
        parts.append(job.reason)
    if job.notice:
        parts.append(job.notice)
    if job.head_away_for is not None:
        parts.append(f"the head has been away for {duration(job.head_away_for)}{'; the job goes on' * job.goes_on}")
    return printable("  ".join(parts), lines=False)


# The report on one job.


def job_report(job: JobInfo, now: float, commands: Sequence[str], columns: int | None = None) -> Report:
    """The report on one job. commands: lines with commands for this job. columns: the width of the terminal."""
    lines = [*state_lines(job), *time_lines(job, now), *origin_lines(job)]
    width = max(len(name) for name, _value in lines) + 1
    # Values are printed in one line each, so that nothing that a job has set looks like another line.
    text = staleness_lines(job, now)
    text += [f"{name + ':':{width}} {printable(value, lines=False)}" for name, value in lines]
    text += failure_lines(job.failure)
    text += warning_lines(job)
    if len(job.attempts) > 1 or (job.attempts and job.state not in ENDED):
        text += ["", attempts_table(job.attempts, columns)]
    text += log_lines(job)
    consequence = f"{'the job goes on, and ' if job.goes_on else ''}all of this comes from the archive"
    text += ["", *head_problem_lines(job.problem, job.head_away_for, consequence), *commands]
    attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
    warned = f", {warning_count_text(job.warnings)}" if job.warnings else ""
    return Report(title=printable(f"Job {job.submission_id}: {job.state}{attempt}{warned}", lines=False), text=text)


def staleness_lines(job: JobInfo, now: float) -> list[str]:
    """A warning if the archive of a job that has not ended may be out of date: nothing was written, or can be."""
    if job.state in ENDED or job.written_at is None:
        return []
    since = now - job.written_at
    problem = job.root_problem
    if not problem and job.state == JobState.RUNNING and since > MAX_ARCHIVE_AGE_SECONDS:
        problem = "Neither the launcher nor the steward has written to the archive since"
    return [printable(f"{problem}; what follows is from {age_text(since)} ago.", lines=False)] if problem else []


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
    if silence_text(job):
        why = "it cannot write" if job.root_problem else "its launcher was killed or its node is gone"
        lines.append(("Silent", f"{silence_text(job)}: {why}"))
    if job.address:
        lines.append(("Address", job.address))
    if job.phase:
        lines.append(("Phase", job.phase))
    if job.phases:
        lines.append(("Start", ", ".join(f"{name} {seconds:.0f} s" for name, seconds in job.phases.items())))
    if job.progress.step or job.progress.total_steps:
        left = "" if job.time_left is None else f", {duration(job.time_left)} left"
        lines.append(("Step", f"{steps_text(job.progress)}{left}"))
    lines += [("Validation", f"{name} {value:.3f}") for name, value in job.progress.validation.items()]
    if job.progress.last is not None and not job.progress.validation:
        lines.append(("Metric", f"{job.progress.metric} {job.progress.last:.3f}, initially {job.progress.first:.3f}"))
    if trend := sparkline(job.progress.trend, TREND_WIDTH):
        lines.append(("Trend", trend))
    if job.gpu_percent is not None:
        lines.append(("GPUs", f"{job.gpu_percent:.0f} % of their time in use"))
    speed = throughput_text(job.progress)
    if speed:
        value, _slash, unit = speed.partition("/")
        lines.append(("Throughput", f"{value} tokens/s{f' per {unit}' if unit else ''}"))
    if job.progress.seconds:
        lines.append(("Seconds", ", ".join(f"{part} {value:.3g}" for part, value in job.progress.seconds.items())))
    return lines


def time_lines(job: JobInfo, now: float) -> list[tuple[str, str]]:
    by = f" by {job.submitted_by}" if job.submitted_by else ""
    lines = [("Submitted", f"{utc_text(job.submitted_at)}, {age_text(now - job.submitted_at)} ago{by}")]
    if job.started_at:
        verb = "ran for" if job.state in ENDED else "running for"
        lines.append(
            ("Started", f"{utc_text(job.started_at)}, {verb} {duration((job.ended_at or now) - job.started_at)}")
        )
    if job.ended_at:
        lines.append(("Ended", f"{utc_text(job.ended_at)}, {age_text(now - job.ended_at)} ago"))
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
            # The whole path of the checkpoint is that in nodes, where people are not.
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
        printable(f"{verb}{warning_count_text(job.warnings)}:", lines=False),
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
