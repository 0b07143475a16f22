# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""argus stewards: for cluster_up, which calls it when a head has lost its processes."""

from __future__ import annotations

from typing import Any

import click
from pydantic import Field

from ..jobs.registry import Registry
from ..jobs.services import start_steward
from ..jobs.stewards import resume
from .request import Request, common, request_from, write_answer


class StewardsRequest(Request):
    adopt: list[str] = Field(default_factory=list)
    check: bool = False


@click.command(name="stewards", hidden=True)
@common
def command(as_json: bool, **options: Any) -> None:
    """Start a steward for each registered job that has none."""
    request = request_from(StewardsRequest, as_json, **options)
    changed, started, findings = resume(request.root, Registry(), request.adopt, start_steward, request.check)
    write_answer({"started": started}, findings, changed)
