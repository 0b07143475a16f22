# SPDX-License-Identifier: GPL-3.0-or-later
"""argus admit: check a job whose dependency has succeeded. The steward of the cluster calls it."""

from __future__ import annotations

from typing import Any

import click

from ..jobs.dependency import admit_dependent
from .request import Request, common, request_from, services


class AdmitRequest(Request):
    submission_id: str


@click.command(name="admit", hidden=True)
@click.argument("submission_id", metavar="ID", required=False)
@common
def command(as_json: bool, **options: Any) -> None:
    """Check the job ID as a whole, and put it into the queue."""
    request = request_from(AdmitRequest, as_json, **options)
    admit_dependent(request.submission_id, services(request))
