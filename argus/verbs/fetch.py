# SPDX-License-Identifier: Apache-2.0
"""argus fetch, evidence: the archive of a job as a compressed tar, and what Ray and the nodes of a job report now."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import click

from ..common.shared_root import JOBS_DIR, archive_path
from ..common.text import printable
from ..evidence.node import UMASK
from ..jobs.bundle import bundle_limits, pack
from ..jobs.evidence import collect, collection_result
from ..jobs.listing import find_job
from ..jobs.registry import Registry
from ..jobs.services import OperationError, root_on_machines
from ..ray.api import allow_host
from .request import VerbRequest, common_options, request_from, require_node, write_answer

STDOUT = 1


class FetchRequest(VerbRequest):
    submission_id: str = ""
    checkpoints: bool = False


def fetch(request: FetchRequest, file: BinaryIO) -> dict[str, Any]:
    """Write the archive of a job to a file; return the path of the archive on the machines, and what was skipped.

    Raises UnknownJobError, UnreadableError, and OSError if the file cannot be written.
    """
    archive = find_job(request.root / JOBS_DIR, request.submission_id)
    skipped = pack(archive.path, request.checkpoints, bundle_limits(request.checkpoints), file)
    return {"archive": archive_path(root_on_machines(request.shared_root), archive.submission_id), "skipped": skipped}


@click.command(name="fetch", short_help="Write the archive of a job as a compressed tar.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--checkpoints", is_flag=True, default=None, help="With its checkpoints.")
@common_options
def fetch_command(as_json: bool, **options: Any) -> None:
    """Write the archive of the job ID to standard output, as a compressed tar: argus fetch ID > job.tar.gz

    Skipped files are named on standard error. With --json, the answer is the last line there.
    """
    request = request_from(FetchRequest, as_json, **options)
    if not request.submission_id:
        raise click.UsageError("name a job: argus fetch ID > job.tar.gz; argus status lists the latest ones")
    if os.isatty(STDOUT):
        raise click.UsageError(f"standard output is a terminal: argus fetch {request.submission_id} > job.tar.gz")
    try:
        # Not sys.stdout: what its buffer could not write would be another error when Python ends.
        with open(STDOUT, "wb", closefd=False) as file:
            result = fetch(request, file)
    except OSError as error:
        remedy = "Is there enough free space where it goes?"
        raise OperationError(f"The archive cannot be written: {error.strerror}. {remedy}") from error
    if as_json:
        write_answer(result, err=True)
        return
    for line in result["skipped"]:
        click.echo(f"skipped: {line}", err=True)


# argus evidence: collects evidence, and writes it into the archive of the job.


class EvidenceRequest(VerbRequest):
    submission_id: str
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
