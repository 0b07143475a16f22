# SPDX-License-Identifier: GPL-3.0-or-later
"""argus resubmit: submit an earlier job again, with its JobSpec."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from ..common.shared_root import JOBS
from ..jobs.listing import UnknownJobError, find_job
from ..jobs.request import resubmission
from .request import common, request_from, services
from .submit import SubmitRequest, submit, write_submitted


class ResubmitRequest(SubmitRequest):
    submission_id: str


@click.command(name="resubmit", short_help="Submit an earlier job again.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--check", is_flag=True, help="Check everything, submit nothing.")
@common
def command(as_json: bool, **options: Any) -> None:
    """Submit the job ID again, with the JobSpec with which it was submitted."""
    request = request_from(ResubmitRequest, as_json, **options)
    outside = services(request)
    job_id = request.submission_id
    # Its archive may be gone.
    with contextlib.suppress(UnknownJobError):
        job_id = find_job(request.root / JOBS, job_id).submission_id
    job = resubmission(request.of_job(), job_id, outside.registry)
    write_submitted(request, submit(request, job, outside), as_json)
