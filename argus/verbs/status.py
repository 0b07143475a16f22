# SPDX-License-Identifier: Apache-2.0
"""argus status: shows one job, or the latest ones. argus logs: shows the log of a job, or follows it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click
from pydantic import Field

from ..archive.status import ENDED
from ..common.identity import cluster_name
from ..common.text import printable_line
from ..jobs.info import JobInfo, JobList
from ..jobs.job_list_report import jobs_report
from ..jobs.listing import job_status, jobs_status
from ..jobs.logs import BEGINNING, Selection
from ..jobs.report import field_line, job_report
from ..ray.api import slowness_lines
from .request import VerbRequest, common_options, request_from, tag_option, terminal_width, write_answer

# The time for which one call waits for more lines of a log.
FOLLOW_SECONDS = 10.0


class StatusRequest(VerbRequest):
    submission_id: str = ""
    # Which jobs to list: those with all of these tags, and at most so many.
    tags: dict[str, Any] = Field(default_factory=dict)
    limit: int = 20
    # The number of lines of the end of the log, or the position after which lines are wanted.
    tail: int = 0
    log_position: str | None = None
    # For how many seconds to wait for the end of the job, or for lines after the position.
    wait_timeout: float = 0.0
    rank: str = ""
    attempt: int = 0
    first_errors: bool = False


def status(request: StatusRequest) -> dict[str, Any]:
    """One job, or the latest ones, as JSON. Raises what job_status raises."""
    head = request.head()
    if not request.submission_id:
        return jobs_status(request.root, head, request.limit, request.tags)
    selection = Selection(request.rank, request.attempt, request.first_errors)
    log_options = (request.tail, request.log_position, request.wait_timeout, selection)
    return job_status(request.root, head, request.submission_id, *log_options)


def status_lines(answer: dict[str, Any]) -> list[str]:
    width = terminal_width()
    if "job" in answer:
        job = JobInfo.from_json(answer["job"])
        logs = f"argus logs {job.submission_id}"
        log_line = field_line("Log", logs if job.ended else f"{logs} --follow")
        report = job_report(job, answer["time"], [log_line], width)
    else:
        report = jobs_report(
            JobList.from_json(answer),
            answer["time"],
            cluster=cluster_name() or "of this node",
            status_command="argus status ID",
            submit_command="argus submit FILE",
            columns=width,
        )
    return [*slowness_lines(answer["slow"]), *report.lines(width)]


@click.command(name="status", short_help="Show a job, or the latest ones.")
@click.argument("submission_id", metavar="[ID]", required=False)
@tag_option
@click.option("--limit", type=int, help="How many jobs to list.  [default: 20]")
@common_options
def status_command(as_json: bool, **options: Any) -> None:
    """Show the job ID, or the latest jobs."""
    request = request_from(StatusRequest, as_json, **options)
    if as_json:
        write_answer(status(request))
        return
    request = request.model_copy(update={"tail": 5})
    click.echo("\n".join(status_lines(status(request))))


def follow_log(request: StatusRequest) -> Iterator[str]:
    """The chosen lines of a job's log after the request's position, until the job has ended; then its state."""
    position = request.log_position
    request = request.model_copy(update={"first_errors": False})
    while True:
        next_request = request.model_copy(update={"log_position": position, "wait_timeout": FOLLOW_SECONDS})
        job = status(next_request)["job"]
        yield from job["log"]
        if job["log_position"] == position and (job["state"] in ENDED or job["unattended"]):
            end = job["notice"] if job["unattended"] else job["reason"]
            yield f"{job['submission_id']} {job['state']}{f': {end}' if end else ''}"
            return
        position = job["log_position"]


@click.command(name="logs", short_help="Show the log of a job.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("-n", "--lines", "tail", type=int, help="Show so many lines of its end.  [default: 100]")
@click.option("-f", "--follow", is_flag=True, help="Show what comes, until the job has ended.")
@click.option("--rank", metavar="N", help="Only lines of this rank of torch.")
@click.option("--attempt", type=int, metavar="N", help="Only lines of this attempt.")
@click.option("--first-error", "first_errors", is_flag=True, default=None, help="The first error of each process.")
@common_options
def logs_command(as_json: bool, follow: bool, **options: Any) -> None:
    """Show the log of the job ID."""
    request = request_from(StatusRequest, as_json, **options)
    if not request.submission_id:
        raise click.UsageError("name a job: argus logs ID; argus status lists the latest ones")
    if follow and request.attempt:
        raise click.UsageError("the lines of one attempt cannot be followed: leave --follow or --attempt out")
    if as_json:
        write_answer(status(request))
        return
    answer = status(request.model_copy(update={"tail": request.tail or 100}))["job"]
    for line in answer["log"]:
        click.echo(printable_line(line, colour="NO_COLOR" not in os.environ))
    if follow:
        for line in follow_log(request.model_copy(update={"log_position": answer["log_position"] or BEGINNING})):
            click.echo(printable_line(line, colour="NO_COLOR" not in os.environ))
