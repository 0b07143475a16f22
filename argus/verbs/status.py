# SPDX-License-Identifier: GPL-3.0-or-later
"""argus status: one job, or the latest ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from pydantic import Field

from ..common.identity import cluster_name
from ..jobs.info import JobInfo, JobList
from ..jobs.listing import job_status, jobs_status
from ..jobs.report import field, job_report, jobs_report
from ..jobs.selection import Selection
from ..ray.api import slowness
from .request import Request, common, request_from, terminal_width, write_answer


class StatusRequest(Request):
    submission_id: str = ""
    tags: dict[str, Any] = Field(default_factory=dict)
    limit: int = 20
    tail: int = 0
    log_position: str | None = None
    wait_timeout: float = 0.0
    # Which lines of the log, see Selection.
    rank: str = ""
    attempt: int = 0
    first_errors: bool = False


def status(request: StatusRequest) -> dict[str, Any]:
    """One job, or the latest ones. Raises what job_status raises."""
    head = request.head()
    if not request.submission_id:
        return jobs_status(request.root, head, request.limit, request.tags)
    wait = (request.tail, request.log_position, request.wait_timeout)
    selection = Selection(request.rank, request.attempt, request.first_errors)
    return job_status(request.root, head, request.submission_id, *wait, selection)


def shown_status(answer: dict[str, Any]) -> list[str]:
    width = terminal_width()
    if "job" in answer:
        job = JobInfo.from_json(answer["job"])
        logs = f"argus logs {job.submission_id}"
        report = job_report(job, answer["time"], [field("Log", logs if job.ended else f"{logs} --follow")], width)
    else:
        listed = JobList.from_json(answer)
        commands = {
            "status_command": "argus status ID",
            "submit_command": "argus submit FILE",
        }
        report = jobs_report(
            listed, answer["time"], cluster=cluster_name() or "of this node", **commands, columns=width
        )
    return [*slowness(answer["slow"]), *report.lines(width)]


def tag(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    wrong = [value for value in values if "=" not in value]
    if wrong:
        raise click.BadParameter(f"{', '.join(wrong)}: write NAME=VALUE")
    return dict(value.split("=", 1) for value in values)


@click.command(name="status", short_help="Show a job, or the latest ones.")
@click.argument("submission_id", metavar="[ID]", required=False)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", callback=tag, help="List only jobs with this tag.")
@click.option("--limit", type=int, help="How many jobs to list.  [default: 20]")
@common
def command(as_json: bool, **options: Any) -> None:
    """Show the job ID, or the latest jobs."""
    request = request_from(StatusRequest, as_json, **options)
    if as_json:
        write_answer(status(request))
        return
    request = request.model_copy(update={"tail": 5})
    click.echo("\n".join(shown_status(status(request))))
