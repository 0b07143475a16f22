# SPDX-License-Identifier: Apache-2.0
"""argus report, pages: the page of a job, a page that compares several, and the list of all jobs."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from pydantic import Field

from ..archive.archive import Archive, archives
from ..common.shared_root import JOBS_DIR, archive_path
from ..evidence import node
from ..io.writing import write_text
from ..jobs.bundle import INDEX
from ..jobs.listing import UnknownJobError, find_job, has_tags
from ..jobs.registry import Registry
from ..jobs.services import OperationError, jobs_api_address
from ..ray.admission import registry_path
from ..ray.api import RayApiError, local_head
from ..ray.departures import bad_nodes
from ..report.data import read_job
from ..report.index import read_rows, render_index
from ..report.page import render_page, write_page
from .fetch import STDOUT
from .request import VerbRequest, common_options, request_from, tag_option, write_answer

MAX_JOBS = 20
# The lowest priority: pages must not slow down what else runs on the head.
NICE = 19


class ReportRequest(VerbRequest):
    # Ids of jobs, or paths of fetched archives.
    submission_ids: tuple[str, ...] = ()
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


# argus pages: renews the pages of jobs in their archives, and the list of all jobs. Only the steward calls it.


@click.command(name="pages", hidden=True)
@click.argument("submission_ids", nargs=-1, required=True)
def pages_command(submission_ids: tuple[str, ...]) -> None:
    """Write the pages of jobs of this head into archives that have something new, and the list of all jobs."""
    os.nice(NICE)
    os.umask(node.UMASK)
    registry, roots = Registry(), set()
    for submission_id in submission_ids:
        # A job can put anything into its archive; the other jobs get their pages all the same.
        with errors_to_stderr(f"{submission_id}: its page"):
            job = registry.read(submission_id)
            if job:
                roots.add(job.shared_root)
                write_page(Archive(archive_path(job.shared_root, submission_id)))
    for root in map(Path, sorted(roots)):
        with errors_to_stderr(f"the list of jobs in {root}"):
            text = render_index(read_rows(root / JOBS_DIR), *nodes_and_losses(), root, time.time())
            write_text(root / JOBS_DIR / INDEX, text, durable=False)


def nodes_and_losses() -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    """The nodes of the cluster, and those that jobs have lost; nothing if the head does not answer."""
    with contextlib.suppress(RayApiError):
        return local_head(jobs_api_address(), patience=0).nodes(), bad_nodes(registry_path(), time.time())
    return [], {}


@contextlib.contextmanager
def errors_to_stderr(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        print(f"{name} cannot be written: {error}", file=sys.stderr)
