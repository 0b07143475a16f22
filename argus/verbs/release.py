# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus release: let a job that is held go on."""

from __future__ import annotations

from typing import Any

import click

from .hold import perform
from .request import common


@click.command(name="release", short_help="Let a job that is held go on.")
@click.argument("submission_id", metavar="ID", required=False)
@common
def command(as_json: bool, **options: Any) -> None:
    """Put the job ID, which is held, back into its place in the queue."""
    perform(False, as_json, options)
