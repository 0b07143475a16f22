# SPDX-License-Identifier: GPL-3.0-or-later
"""argus logs: the log of a job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import click

from ..archive.status import ENDED
from ..common.text import printable_line
from ..jobs.logs import BEGINNING
from .request import common, request_from, write_answer
from .status import StatusRequest, status

FOLLOW_SECONDS = 10.0


def followed(request: StatusRequest) -> Iterator[str]:
    """The lines of a job's log from a position on that are meant, until the job has ended."""
    position = request.log_position
    request = request.model_copy(update={"first_errors": False})
    while True:
        asked = request.model_copy(update={"log_position": position, "wait_timeout": FOLLOW_SECONDS})
        job = status(asked)["job"]
        yield from job["log"]
        if job["log_position"] == position and (job["state"] in ENDED or job["unattended"]):
            end = job["notice"] if job["unattended"] else job["reason"]
            yield f"{job['submission_id']} {job['state']}{f': {end}' if end else ''}"
            return
        position = job["log_position"]


@click.command(name="logs", short_help="Show the log of a job.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--tail", type=int, help="Show so many lines of its end.  [default: 100]")
@click.option("--follow", is_flag=True, help="Show what comes, until the job has ended.")
@click.option("--rank", metavar="N", help="Only lines of this rank of torch.")
@click.option("--attempt", type=int, metavar="N", help="Only lines of this attempt.")
@click.option("--first-error", "first_errors", is_flag=True, default=None, help="The first error of each process.")
@common
def command(as_json: bool, follow: bool, **options: Any) -> None:
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
        for line in followed(request.model_copy(update={"log_position": answer["log_position"] or BEGINNING})):
            click.echo(printable_line(line, colour="NO_COLOR" not in os.environ))
