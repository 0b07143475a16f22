# SPDX-License-Identifier: GPL-3.0-or-later
"""argus evidence: what Ray and the nodes of a job report now, written into its archive."""

from __future__ import annotations

import os
from typing import Any

import click

from ..common.text import printable
from ..evidence.node import UMASK
from ..jobs.defaults import on_machines
from ..jobs.evidence import collect, collected
from ..jobs.listing import find_job
from ..jobs.registry import Registry
from ..ray.api import allow_host
from .request import Request, common, request_from, require_node, write_answer


class EvidenceRequest(Request):
    submission_id: str
    check: bool = False


def evidence(request: EvidenceRequest) -> dict[str, Any]:
    """What was collected. Raises UnknownJobError, UnreadableError and OperationError."""
    require_node(request)
    archive = find_job(request.root / "jobs", request.submission_id)
    job = Registry().read(archive.submission_id)
    allow_host(job.address if job else "")
    os.umask(UMASK)
    return collected(archive, []) if request.check else collect(archive)


@click.command(name="evidence", short_help="Collect evidence of a job.")
@click.argument("submission_id", metavar="ID", required=False)
@common
def command(as_json: bool, **options: Any) -> None:
    """Collect stacks, logs and states of the job ID from Ray and from the job's nodes, without pausing any process."""
    request = request_from(EvidenceRequest, as_json, **options)
    result = evidence(request)
    if as_json:
        write_answer(result, changed=True)
        return
    nodes = f" from {', '.join(result['nodes'])}" if result["nodes"] else ""
    debug = f"{on_machines(request.shared_root)}/jobs/{request.submission_id}/debug"
    for line in (f"{result['files']} files{nodes} in {debug}", *result["problems"]):
        click.echo(printable(line))
