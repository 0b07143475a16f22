# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs as people read them: the arguments of argus.verl.report, from what ray_job_info returned."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from ..launcher.archive import ENDED, SUCCEEDED
from ..text import duration, table

# After this long without its launcher's sign of life, which comes every 2 s, a job is said to be silent.
SILENT_SECONDS = 60
# What is shown of each line of a log, where the log is not the subject.
LINE_LENGTH = 160
# What moves the cursor or clears lines would write over what a terminal shows already.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-HJKSTfhlnsu]|\x1b[^\[]|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def readable(line: str, colour: bool) -> str:
    """A line of a log, fit for a terminal, or for a file when there is no colour."""
    line = CONTROL.sub("", line)
    return line if colour else COLOUR.sub("", line)


def clipped(line: str) -> str:
    """A line of a log where the log is not the subject."""
    text = readable(line, colour=False)
    return text if len(text) <= LINE_LENGTH else f"{text[: LINE_LENGTH - 1]}…"


def age(seconds: float) -> str:
    """How long ago, in the one unit that matters."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def steps(progress: Mapping[str, Any]) -> str:
    """``3/12``, or what is known of it."""
    if not progress["step"] and not progress["total_steps"]:
        return "-"
    return f"{progress['step']}/{progress['total_steps'] or '?'}"


def silence(job: Mapping[str, Any]) -> str:
    """Of a job that should give signs of life and does not."""
    silent = job["silent_for"]
    return f"no sign of life for {age(silent)}" if silent is not None and silent > SILENT_SECONDS else ""


def failure_class(job: Mapping[str, Any]) -> str | None:
    if job["failure"]:
        return str(job["failure"]["kind"])
    return "silent" if silence(job) else None


def field(name: str, value: Any) -> str:
    return f"{name + ':':9} {value}"


def asked(problem: str, what: str) -> list[str]:
    return [f"The head does not answer, {what}: {problem}"] if problem else []


def jobs_report(looked: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    """The last jobs, a row for each.

    looked: as ray_job_info returned it. about: the texts `cluster`, its name, `one`, the command that shows one job,
    and `submit`, the one that makes one.
    """
    rows = [
        [
            job["submission_id"],
            job["workload"] or None,
            job["state"],
            failure_class(job),
            steps(job["progress"]),
            job["attempt"],
            age(looked["time"] - job["submitted_at"]),
            job["driver_host"] or job["driver_node_ip"],
        ]
        for job in looked["jobs"]
    ]
    shown, total = len(rows), looked["total"]
    count = f"the last {shown} of {total} jobs" if shown < total else f"{total} job{'s'[: total != 1]}"
    text = asked(looked["problem"], "states are those of the archives")
    if any(not job["archive"] for job in looked["jobs"]):
        text.append("Without a workload: jobs that Ray has and that were not submitted from here.")
    return {
        "title": f"Cluster {about['cluster']}: {count} in {looked['directory']}",
        "header": ["job", "workload", "state", "class", "step", "attempt", "age", "where"],
        "rows": rows,
        "text": [*text, field("One job", about["one"]) if rows else field("Submit", about["submit"])],
    }


def job_report(looked: Mapping[str, Any], commands: Sequence[str]) -> dict[str, Any]:
    """One job in detail.

    commands: lines that say what can be done next.
    """
    job, now = looked["job"], looked["time"]
    failure, progress, lineage = job["failure"], job["progress"], job["lineage"]
    lines: list[tuple[str, Any]] = [("Workload", f"{job['workload'] or 'unknown'} on {job['code_id'] or 'unknown'}")]
    if job["tags"]:
        lines.append(("Tags", ", ".join(f"{name}={value}" for name, value in sorted(job["tags"].items()))))
    if job["reason"] and not failure:
        lines.append(("Reason", job["reason"]))
    if silence(job):
        lines.append(("Silent", f"{silence(job)}: its launcher has ended without a word, or its node is gone"))
    if progress["step"] or progress["total_steps"]:
        paced = job["time_left"] is not None and not silence(job)
        left = f", {duration(job['time_left'])} left" if paced else ""
        lines.append(("Step", f"{steps(progress)}{left}"))
    if progress["last"] is not None:
        lines.append(("Metric", f"{progress['metric']} {progress['last']:.3f}, at first {progress['first']:.3f}"))
    lines.append(("Submitted", f"{clock(job['submitted_at'])}, {age(now - job['submitted_at'])} ago"))
    if job["started_at"]:
        until = job["ended_at"] or now
        verb = "ran" if job["state"] in ENDED else "has run"
        lines.append(("Started", f"{clock(job['started_at'])}, {verb} {duration(until - job['started_at'])}"))
    if job["ended_at"]:
        lines.append(("Ended", f"{clock(job['ended_at'])}, {age(now - job['ended_at'])} ago"))
    if job["driver_host"]:
        where = f" ({job['driver_node_ip']})" if job["driver_node_ip"] else ""
        lines.append(("Driver", f"{job['driver_host']}{where}"))
    if job["checkpoints"]:
        plural = "s" if len(job["checkpoints"]) > 1 else ""
        lines.append(("Checkpoints", f"step{plural} {', '.join(map(str, job['checkpoints']))}"))
    for key, name in (("resubmitted_from", "Resubmitted"), ("resumed_from", "Resumed")):
        if lineage.get(key):
            at = f", {lineage['checkpoint']}" if key == "resumed_from" and lineage.get("checkpoint") else ""
            lines.append((name, f"from {lineage[key]}{at}"))
    lines.append(("Archive", job["archive"]))
    width = max(len(name) for name, _value in lines) + 1
    text = [f"{name + ':':{width}} {value}" for name, value in lines]
    text += failure_lines(failure)
    if len(job["attempts"]) > 1 or (job["attempts"] and job["state"] not in ENDED):
        text += ["", attempts_table(job["attempts"])]
    text += log_lines(job)
    text += ["", *asked(job["problem"], "this is what the archive tells"), *commands]
    attempt = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
    return {"title": f"Job {job['submission_id']}: {job['state']}{attempt}", "header": [], "rows": [], "text": text}


def failure_lines(failure: Mapping[str, Any] | None) -> list[str]:
    """Why a job failed, what in its log says so, and what to do."""
    if not failure:
        return []
    lines = [f"  {clipped(line)}" for line in failure.get("lines") or []]
    return ["", f"Failed: {failure['kind']}: {failure['reason']}", *lines, f"To do:  {failure['todo']}"]


def log_lines(job: Mapping[str, Any]) -> list[str]:
    """The end of the log, of a job that did not end well and of which nobody can say why."""
    if not job["log"] or job["state"] == SUCCEEDED or (job["failure"] or {}).get("lines"):
        return []
    return ["", "The end of its log:", *(f"  {clipped(line)}" for line in job["log"])]


def attempts_table(attempts: list[Mapping[str, Any]]) -> str:
    keys = ("attempt", "state", "kind", "took", "resumed_from", "reason")
    rows = []
    for attempt in attempts:
        begin, end = attempt.get("started_at"), attempt.get("ended_at")
        took = duration(end - begin) if begin and end else None
        rows.append([{**attempt, "took": took}.get(key) or None for key in keys])
    return table(("attempt", "state", "class", "took", "from step", "reason"), rows)
