# SPDX-License-Identifier: Apache-2.0
"""argus fetch: writes the archive of a job to standard output, as a compressed tar."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import click

from ..common.shared_root import JOBS_DIR, archive_path
from ..jobs.bundle import bundle_limits
from ..jobs.bundle_packing import pack
from ..jobs.listing import find_job
from ..jobs.services import OperationError, root_on_machines
from .request import VerbRequest, common_options, request_from, write_answer

# The descriptor of standard output.
STDOUT = 1


class FetchRequest(VerbRequest):
    """The options of `fetch`."""

    submission_id: str = ""
    # Whether its checkpoints are included.
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
