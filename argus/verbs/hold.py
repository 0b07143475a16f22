# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus hold: keep a job that waits from being started."""

from __future__ import annotations

from typing import Any

import click

from ..jobs.hold import hold, text
from .request import Request, common, request_from, services, write_answer


class HoldRequest(Request):
    submission_id: str
    check: bool = False


def perform(held: bool, as_json: bool, options: dict[str, Any]) -> None:
    request = request_from(HoldRequest, as_json, **options)
    answer = hold(request.shared_root, request.submission_id, services(request), held, request.check)
    if as_json:
        write_answer(answer.result, changed=answer.changed)
        return
    before = "" if answer.changed else ", as before"
    click.echo(f"Job {request.submission_id}: {answer.result['state']}, {text(held)}{before}")


@click.command(name="hold", short_help="Keep a job that waits from being started.")
@click.argument("submission_id", metavar="ID", required=False)
@common
def command(as_json: bool, **options: Any) -> None:
    """Keep the job ID, which waits for resources, from being started until it is released."""
    perform(True, as_json, options)
