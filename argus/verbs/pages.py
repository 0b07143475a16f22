# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus pages: the pages of jobs in their archives, of the steward."""

from __future__ import annotations

import os
import sys

import click

from ..common.shared_root import archive_path
from ..jobs.registry import Registry
from ..launcher import node
from ..launcher.archive import Archive
from ..report.kept import write_page

NICE = 19


@click.command(name="pages", hidden=True)
@click.argument("submission_ids", nargs=-1, required=True)
def command(submission_ids: tuple[str, ...]) -> None:
    """Write the pages of jobs of this head into their archives, if they have something new."""
    os.nice(NICE)
    os.umask(node.UMASK)
    registry = Registry()
    for submission_id in submission_ids:
        try:
            job = registry.read(submission_id)
            if job:
                write_page(Archive(archive_path(job.shared_root, submission_id)))
        # A job can put anything into its archive, which must not keep the others from their pages.
        except Exception as error:
            print(f"{submission_id}: its page cannot be written: {error}", file=sys.stderr)
