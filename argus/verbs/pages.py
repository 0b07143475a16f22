# SPDX-License-Identifier: GPL-3.0-or-later
"""argus pages: the pages of jobs in their archives, of the steward."""

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
from ..common.shared_root import JOBS, archive_path
from ..evidence import node
from ..io.writing import write_text
from ..jobs.bundle import INDEX
from ..jobs.registry import Registry
from ..jobs.services import jobs_api
from ..ray.admission import registry_path
from ..ray.api import RayApiError, own_head
from ..ray.departures import bad_nodes
from ..report.index import index, read_rows
from ..report.page import write_page
from ..staging.listing import list_staged

NICE = 19


@click.command(name="pages", hidden=True)
@click.argument("submission_ids", nargs=-1, required=True)
def pages_command(submission_ids: tuple[str, ...]) -> None:
    """Write the pages of jobs of this head into archives that have something new, and the list of all jobs."""
    os.nice(NICE)
    os.umask(node.UMASK)
    registry, roots = Registry(), set()
    for submission_id in submission_ids:
        # A job can put anything into its archive, which must not keep the others from their pages.
        with told(f"{submission_id}: its page"):
            job = registry.read(submission_id)
            if job:
                roots.add(job.shared_root)
                write_page(Archive(archive_path(job.shared_root, submission_id)))
    for root in map(Path, sorted(roots)):
        with told(f"the list of jobs in {root}"):
            staged = [entry.as_dict() for entry in list_staged(root, is_brief=True)]
            text = index(read_rows(root / JOBS), *nodes(), staged, root, time.time())
            write_text(root / JOBS / INDEX, text, durable=False)


def nodes() -> tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]:
    """The nodes of the cluster, and those that jobs have lost."""
    with contextlib.suppress(RayApiError):
        return own_head(jobs_api(), patience=0).nodes(), bad_nodes(registry_path(), time.time())
    return [], {}


@contextlib.contextmanager
def told(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        print(f"{name} cannot be written: {error}", file=sys.stderr)
