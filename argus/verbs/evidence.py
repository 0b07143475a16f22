# SPDX-License-Identifier: Apache-2.0
"""argus evidence: collects what Ray and the nodes of a job report now, and writes it into the archive of the job."""

from __future__ import annotations

import os
from typing import Any

import click

from ..common.shared_root import JOBS_DIR
from ..common.text import printable
from ..evidence.node import UMASK
from ..jobs.evidence import collect, collection_result
from ..jobs.listing import find_job
from ..jobs.registry import Registry
from ..jobs.services import root_on_machines
from ..ray.api import allow_host
from .request import VerbRequest, common_options, request_from, require_node, write_answer


class EvidenceRequest(VerbRequest):
    """The options of `evidence`."""

    submission_id: str
    # Only look for the job.
    check: bool = False


def evidence(request: EvidenceRequest) -> dict[str, Any]:
    """Collect the evidence, and return what was collected. Raises UnknownJobError, UnreadableError, OperationError."""
    require_node(request)
    archive = find_job(request.root / JOBS_DIR, request.submission_id)
    job = Registry().read(archive.submission_id)
    allow_host(job.address if job else "")
    os.umask(UMASK)
    return collection_result(archive, []) if request.check else collect(archive)


@click.command(name="evidence", short_help="Collect evidence of a job.")
@click.argument("submission_id", metavar="ID", required=False)
@common_options
def evidence_command(as_json: bool, **options: Any) -> None:
    """Collect stacks, logs and states of the job ID from Ray and from the job's nodes, without pausing any process."""
    request = request_from(EvidenceRequest, as_json, **options)
    result = evidence(request)
    if as_json:
        write_answer(result, changed=True)
        return
    nodes = f" from {', '.join(result['nodes'])}" if result["nodes"] else ""
    debug = f"{root_on_machines(request.shared_root)}/{JOBS_DIR}/{request.submission_id}/debug"
    for line in (f"{result['files']} files{nodes} in {debug}", *result["problems"]):
        click.echo(printable(line))
