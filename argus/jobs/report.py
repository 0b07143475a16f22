# SPDX-License-Identifier: Apache-2.0
"""Texts about jobs for people: the parts that the report on one job and the list of jobs share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..archive.job_warnings import JobWarning
from ..archive.status import ENDED, JobState
from ..common.text import duration, printable, printable_line, table, wrap_sentence
from ..ray.api import ANSWERS_SLOWLY
from .info import JobInfo, Progress

# The end of the year 9999, after which Python has no dates.
MAX_DATE_SECONDS = 253_402_300_799
# The characters of a sparkline, from the least value to the greatest.
BARS = "▁▂▃▄▅▆▇█"
# The length of a log line in a report.
MAX_LINE_CHARS = 160


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
    """That a running job has written no heartbeat for some time; empty if it has."""
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
    """``Name:    value``."""
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
