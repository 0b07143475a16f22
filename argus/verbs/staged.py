# SPDX-License-Identifier: GPL-3.0-or-later
"""argus staged: models, datasets and snapshots, and the jobs that use them."""

from __future__ import annotations

from typing import Any

import click

from ..staging.listing import list_staged, row, row_findings
from ..staging.options import Verify, check_shared_root
from .request import Request, common, request_from, show, write_answer

HEADER = ("kind", "name", "size", "staged", "source", "used by")


class StagedRequest(Request):
    """The options of `staged`."""

    verify: Verify = Verify.QUICK


@click.command(name="staged", short_help="List models, datasets and snapshots.")
@click.option(
    "--verify",
    type=click.Choice([verify.value for verify in Verify]),
    help="How files are compared with manifests.  [default: quick]",
)
@common
def staged_command(as_json: bool, **options: Any) -> None:
    """List what is staged, and the jobs that use it."""
    request = request_from(StagedRequest, as_json, **options)
    entries = list(list_staged(check_shared_root(request.root), request.verify))
    rows, findings = [row(entry) for entry in entries], [each for entry in entries for each in row_findings(entry)]
    if as_json:
        staged = [entry.as_dict() for entry in entries]
        write_answer({"staged": staged, "rows": rows, "findings": [finding.as_dict() for finding in findings]})
        return
    show(HEADER, rows, findings)
