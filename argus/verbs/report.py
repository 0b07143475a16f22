# SPDX-License-Identifier: Apache-2.0
"""argus report: writes an HTML page about a job, or a page that compares several."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import Field

from ..archive.archive import Archive, archives
from ..common.shared_root import JOBS_DIR
from ..io.writing import write_text
from ..jobs.listing import UnknownJobError, find_job, has_tags
from ..jobs.services import OperationError
from ..report.data import read_job
from ..report.page import render_page
from .fetch import STDOUT
from .request import VerbRequest, common_options, request_from, tag_option, write_answer

MAX_JOBS = 20


class ReportRequest(VerbRequest):
    """The options of `report`."""

    # Ids of jobs, or paths of fetched archives.
    submission_ids: tuple[str, ...] = ()
    # All jobs with all of these tags are added.
    tags: dict[str, Any] = Field(default_factory=dict)

    def names(self) -> list[str]:
        """The ids and paths of all jobs, each once; those with the tags last, in the order of their submission."""
        with_tags = [job for job in archives(self.root / JOBS_DIR) if has_tags(job, self.tags)] if self.tags else []
        tagged = [archive.submission_id for archive in sorted(with_tags, key=Archive.created_at)]
        return list(dict.fromkeys((*self.submission_ids, *tagged)))


def report(request: ReportRequest) -> str:
    """The page of jobs, from their archives alone. Raises UnknownJobError."""
    names = request.names()
    if not 0 < len(names) <= MAX_JOBS:
        match_text = f", but {len(names)} have these tags" if request.tags else ""
        raise click.UsageError(f"name 1 to {MAX_JOBS} jobs{match_text}: argus report ID -o report.html")
    return render_page([read_job(archive_of(request.root, name)) for name in names], time.time())


def archive_of(root: Path, name: str) -> Archive:
    """The archive of a job by its id, or by the path to which `fetch` has copied it."""
    if os.sep not in name:
        return find_job(root / JOBS_DIR, name)
    archive = Archive(Path(name).resolve())
    if not (archive.path / "status.json").exists():
        raise UnknownJobError(f"There is no archive of a job in {name}: it has no status.json.")
    return archive


@click.command(name="report", short_help="Write a page of a job, or of several.")
@click.argument("submission_ids", metavar="ID...", nargs=-1)
@tag_option
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="The file.  [default: stdout]")
@common_options
def report_command(as_json: bool, submission_ids: Sequence[str], output: Path | None, **options: Any) -> None:
    """Write one HTML file about the job ID, or one that compares several: argus report ID -o report.html

    Without the nodes, name the directory of a fetched archive: argus report artifacts/ID -o report.html
    """
    request = request_from(ReportRequest, as_json, submission_ids=submission_ids or None, **options)
    if not output and os.isatty(STDOUT):
        raise click.UsageError("standard output is a terminal: argus report ID -o report.html")
    html = report(request)
    try:
        if output:
            write_text(output.absolute(), html, durable=False)
        else:
            with open(STDOUT, "wb", closefd=False) as file:
                file.write(html.encode())
    except OSError as error:
        raise OperationError(f"The page cannot be written: {error.strerror}") from error
    if as_json:
        write_answer({"output": str(output or ""), "bytes": len(html.encode())}, err=True)
