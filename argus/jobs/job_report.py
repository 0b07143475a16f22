# SPDX-License-Identifier: Apache-2.0
"""The report on one job for people."""

from __future__ import annotations

from collections.abc import Sequence

from ..archive.failures import Failure
from ..archive.plan import COMMAND
from ..archive.status import ENDED, Attempt, JobState
from ..common.text import duration, printable, table
from ..launcher import outcome
from .info import UNREADABLE, JobInfo
from .report import (
    Report,
    age_text,
    clip_line,
    head_problem_lines,
    ordinal,
    silence_text,
    sparkline,
    steps_text,
    tags_text,
    throughput_text,
    utc_text,
    warning_count_text,
)

# The launcher writes to the archive of a running job every 2 s, the steward every 5 s at most.
MAX_ARCHIVE_AGE_SECONDS = 20
# The number of characters of a trend.
TREND_WIDTH = 40


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
    """The names and values for the state of a job."""
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
