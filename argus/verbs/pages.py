# SPDX-License-Identifier: Apache-2.0
"""argus pages: renews the pages of jobs in their archives, and the list of all jobs. Only the steward calls it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..archive.archive import Archive
from ..common.shared_root import JOBS_DIR, archive_path
from ..evidence import node
from ..io.writing import write_text
from ..jobs.bundle import INDEX
from ..jobs.registry import Registry
from ..jobs.services import jobs_api_address
from ..ray.admission import registry_path
from ..ray.api import RayApiError, local_head
from ..ray.departures import bad_nodes
from ..report.index import index, read_rows
from ..report.page import write_page

# The lowest priority: pages must not slow down what else runs on the head.
NICE = 19


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
            text = index(read_rows(root / JOBS_DIR), *nodes_and_losses(), root, time.time())
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
