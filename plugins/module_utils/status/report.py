# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reports on jobs for people: the arguments of argus.verl.report."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ..launcher.failures import Failure
from ..launcher.status import ENDED, Attempt, JobState
from ..text import duration, printable, printable_line, table
from .info import UNREADABLE, JobInfo, JobList, Progress

# How many archives the list explains that cannot be read.
UNREADABLE_SHOWN = 5
# How old the heartbeat of a job may be before the job is reported as silent. It is written every 2 s.
SILENT_SECONDS = 60
# How much of a line of a log a report shows.
LINE_LENGTH = 160


@dataclass(frozen=True)
class Report:
    """The arguments of argus.verl.report."""

    title: str
    text: list[str]
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str | int | None, ...], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"header": list(self.header), "rows": [list(row) for row in self.rows]}


def clipped(line: str) -> str:
    """The beginning of a line of a log."""
    text = printable_line(line, colour=False)
    return text if len(text) <= LINE_LENGTH else f"{text[: LINE_LENGTH - 1]}…"


def age(seconds: float) -> str:
    """A duration in its largest unit: ``2 d``, ``3 h``, ``5 min``, ``7 s``."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def steps(progress: Progress) -> str:
    """``3/12``, ``3/?``, or ``-`` if neither is known."""
    if not progress.step and not progress.total_steps:
        return "-"
    return f"{progress.step}/{progress.total_steps or '?'}"


def silence(job: JobInfo) -> str:
    """For how long a running job has written no heartbeat, or an empty string."""
    if job.silent_for is None or job.silent_for <= SILENT_SECONDS:
        return ""
    return f"no heartbeat for {age(job.silent_for)}"


def failure_class(job: JobInfo) -> str | None:
    if job.failure:
        return job.failure.kind
    return "silent" if silence(job) else None


def field(name: str, value: object) -> str:
    return f"{name + ':':9} {printable(value, lines=False)}"


def head_problem(problem: str, consequence: str) -> list[str]:
    return [f"The head does not answer; {consequence}: {printable(problem, lines=False)}"] if problem else []


def jobs_report(listed: JobList, now: float, *, cluster: str, status_command: str, submit_command: str) -> Report:
    """The latest jobs, one row each.

    status_command: shows one job.
    submit_command: submits one; shown if there are no jobs yet.
    """
    rows = tuple(job_row(job, now) for job in listed.jobs)
    shown, total = len(rows), listed.total
    count = f"latest {shown} of {total} jobs" if shown < total else f"{total} job{'s'[: total != 1]}"
    text = head_problem(listed.problem, "states come from the archives")
    if any(not job.archive for job in listed.jobs):
        text.append("Jobs without a workload were submitted to Ray directly.")
    bad = [job for job in listed.jobs if job.state == UNREADABLE]
    text += [field("Unreadable", "; ".join(job.unreadable) or job.reason) for job in bad[:UNREADABLE_SHOWN]]
    if len(bad) > UNREADABLE_SHOWN:
        text.append(f"{len(bad) - UNREADABLE_SHOWN} more archives are unreadable.")
    text.append(field("One job", status_command) if rows else field("Submit", submit_command))
    return Report(
        title=printable(f"Cluster {cluster}: {count} in {listed.directory}", lines=False),
        header=("job", "workload", "state", "class", "step", "attempt", "age", "where"),
        rows=rows,
        text=text,
    )


def job_row(job: JobInfo, now: float) -> tuple[str | int | None, ...]:
    return (
        job.submission_id,
        job.workload or None,
        job.state,
        failure_class(job),
        steps(job.progress),
        job.attempt,
        age(now - job.submitted_at),
        job.driver_host or job.driver_node_ip,
    )


def job_report(job: JobInfo, now: float, commands: Sequence[str]) -> Report:
    """One job in detail.

    commands: the lines with the commands for this job.
    """
    lines = [*situation(job), *timing(job, now), *origin(job)]
    width = max(len(name) for name, _value in lines) + 1
    # Nothing that a job has set may look like another line.
    text = [f"{name + ':':{width}} {printable(value, lines=False)}" for name, value in lines]
    text += failure_lines(job.failure)
    if len(job.attempts) > 1 or (job.attempts and job.state not in ENDED):
        text += ["", attempts_table(job.attempts)]
    text += log_lines(job)
    text += ["", *head_problem(job.problem, "all of this comes from the archive"), *commands]
    attempt = f", attempt {job.attempt}" if job.attempt > 1 else ""
    return Report(title=printable(f"Job {job.submission_id}: {job.state}{attempt}", lines=False), text=text)


def situation(job: JobInfo) -> list[tuple[str, str]]:
    """What the job is, and how far."""
    lines = [("Workload", f"{job.workload or 'unknown'} on {job.code_id or 'unknown'}")]
    if job.tags:
        lines.append(("Tags", ", ".join(f"{name}={value}" for name, value in sorted(job.tags.items()))))
    if job.reason and not job.failure:
        lines.append(("Reason", job.reason))
    if job.notice:
        lines.append(("Waits", job.notice.removeprefix("waits ")))
    # The reason of an unreadable job says the same.
    if job.unreadable and job.state != UNREADABLE:
        lines.append(("Unreadable", "; ".join(job.unreadable)))
    if silence(job):
        lines.append(("Silent", f"{silence(job)}: its launcher was killed or its node is gone"))
    if job.progress.step or job.progress.total_steps:
        has_pace = job.time_left is not None and not silence(job)
        left = f", {duration(job.time_left or 0)} left" if has_pace else ""
        lines.append(("Step", f"{steps(job.progress)}{left}"))
    if job.progress.last is not None:
        lines.append(("Metric", f"{job.progress.metric} {job.progress.last:.3f}, initially {job.progress.first:.3f}"))
    return lines


def timing(job: JobInfo, now: float) -> list[tuple[str, str]]:
    lines = [("Submitted", f"{clock(job.submitted_at)}, {age(now - job.submitted_at)} ago")]
    if job.started_at:
        verb = "ran for" if job.state in ENDED else "running for"
        lines.append(("Started", f"{clock(job.started_at)}, {verb} {duration((job.ended_at or now) - job.started_at)}"))
    if job.ended_at:
        lines.append(("Ended", f"{clock(job.ended_at)}, {age(now - job.ended_at)} ago"))
    return lines


def origin(job: JobInfo) -> list[tuple[str, str]]:
    """Where the job runs, what it has saved, and the jobs it comes from."""
    lines = []
    if job.driver_host:
        where = f" ({job.driver_node_ip})" if job.driver_node_ip else ""
        lines.append(("Driver", f"{job.driver_host}{where}"))
    if job.checkpoints:
        plural = "s" if len(job.checkpoints) > 1 else ""
        lines.append(("Checkpoints", f"step{plural} {', '.join(map(str, job.checkpoints))}"))
    for key, name in (("resubmitted_from", "Resubmitted"), ("resumed_from", "Resumed")):
        if job.lineage.get(key):
            checkpoint = job.lineage.get("checkpoint") if key == "resumed_from" else ""
            lines.append((name, f"from {job.lineage[key]}{f', {checkpoint}' if checkpoint else ''}"))
    return [*lines, ("Archive", job.archive)]


def failure_lines(failure: Failure | None) -> list[str]:
    """Why a job failed, the lines of its log that show it, and what to do."""
    if not failure:
        return []
    lines = [f"  {clipped(line)}" for line in failure.lines]
    reason, todo = printable(failure.reason, lines=False), printable(failure.todo, lines=False)
    return ["", f"Failed: {failure.kind}: {reason}", *lines, f"To do:  {todo}"]


def log_lines(job: JobInfo) -> list[str]:
    """The end of the log of a job that did not succeed, unless lines of the log already show why."""
    if not job.log or job.state == JobState.SUCCEEDED or (job.failure and job.failure.lines):
        return []
    return ["", "The end of its log:", *(f"  {clipped(line)}" for line in job.log)]


def attempts_table(attempts: Sequence[Attempt]) -> str:
    rows = []
    for one in attempts:
        took = duration(one.ended_at - one.started_at) if one.started_at and one.ended_at else None
        rows.append((one.attempt, one.state, one.kind or None, took, one.resumed_from or None, one.reason or None))
    return table(("attempt", "state", "class", "took", "from step", "reason"), rows)
