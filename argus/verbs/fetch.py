# SPDX-License-Identifier: GPL-3.0-or-later
"""argus fetch: the archive of a job as a compressed tar."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

import click

from ..common.shared_root import JOBS, archive_path
from ..jobs.bundle import limits, pack
from ..jobs.defaults import on_machines
from ..jobs.listing import find_job
from ..jobs.services import OperationError
from .request import Request, common, request_from, write_answer

STDOUT = 1


class FetchRequest(Request):
    """The options of `fetch`. Limits of 0 stand for the defaults."""

    submission_id: str = ""
    checkpoints: bool = False
    max_file_mib: int = 0
    max_total_mib: int = 0


def fetch(request: FetchRequest, file: BinaryIO) -> dict[str, Any]:
    """Write the archive of a job to a file; returns its path on the machines, and what was skipped.

    Raises UnknownJobError, UnreadableError, and OSError if it cannot be written.
    """
    archive = find_job(request.root / JOBS, request.submission_id)
    size = limits(request.checkpoints, request.max_file_mib, request.max_total_mib)
    skipped = pack(archive.path, request.checkpoints, size, file)
    return {"archive": archive_path(on_machines(request.shared_root), archive.submission_id), "skipped": skipped}


@click.command(name="fetch", short_help="Write the archive of a job as a compressed tar.")
@click.argument("submission_id", metavar="ID", required=False)
@click.option("--checkpoints", is_flag=True, default=None, help="With its checkpoints.")
@click.option("--max-file-mib", type=int, help="Skip larger files.  [default: 2048; 65536 with checkpoints]")
@click.option("--max-total-mib", type=int, help="Skip files beyond.  [default: 8192; 4194304 with checkpoints]")
@common
def command(as_json: bool, **options: Any) -> None:
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
