# SPDX-License-Identifier: GPL-3.0-or-later
"""argus export: a checkpoint of a job as a model."""

from __future__ import annotations

from typing import Any

import click

from ..jobs.defaults import on_machines
from ..staging.items import Model
from ..staging.options import StageOptions
from .request import Request, common, request_from, write_answer
from .stage import answered, plan


class ExportRequest(Request):
    submission_id: str
    step: int = 0
    name: str | None = None


@click.command(name="export", short_help="Make a model of a checkpoint.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--step", type=int, help="Its step.  [default: the last complete checkpoint]")
@click.option("--name", help="The name of the model.  [default: ID-step-STEP]")
@common
def command(as_json: bool, **options: Any) -> None:
    """Merge a checkpoint of the job ID on a worker, and stage it as a model for the next job."""
    request = request_from(ExportRequest, as_json, **options)
    item = Model(name=request.name, source=f"job:{request.submission_id}@{request.step}")
    _path, work = plan(request.root, item, StageOptions())
    result = answered(work)
    if as_json:
        write_answer(result, changed=result.pop("changed"))
        return
    path = result["path"].replace(request.shared_root, on_machines(request.shared_root), 1)
    click.echo(f"Model {result['name']}: {result['status']}, {path}")
