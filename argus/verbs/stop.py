# SPDX-License-Identifier: GPL-3.0-or-later
"""argus stop: end a job."""

from __future__ import annotations

from typing import Any

import click

from ..jobs.stop import stop
from .request import Request, common, request_from, services, write_answer


class StopRequest(Request):
    submission_id: str
    # USER@HOST, for the archive.
    requested_by: str = ""
    check: bool = False


@click.command(name="stop", short_help="Stop a job.")
@click.argument("submission_id", metavar="ID", required=False)
@common
def command(as_json: bool, **options: Any) -> None:
    """Stop the job ID in whatever state it is, and wait until it has ended."""
    request = request_from(StopRequest, as_json, **options)
    outside = services(request)
    answer = stop(request.shared_root, request.submission_id, outside, request.check, request.requested_by)
    if as_json:
        write_answer(answer.result, changed=answer.changed)
        return
    before = "" if answer.changed else ", it had ended before"
    click.echo(f"Job {request.submission_id}: {answer.result['state']}{before}")
