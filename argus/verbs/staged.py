# SPDX-License-Identifier: Apache-2.0
"""argus staged: lists models, datasets and snapshots, with the jobs that use them. argus gc: removes old snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..common.findings import Finding
from ..common.text import size_text
from ..staging.listing import entry_findings, list_staged, table_row
from ..staging.options import StagingError, Verify, check_shared_root
from ..staging.snapshots import SUPERFLUOUS, remove_snapshot, snapshot_verdicts
from ..staging.usage import programs_in_use
from .request import VerbRequest, common_options, print_table, request_from, require_same_cluster, write_answer

STAGED_HEADER = ("kind", "name", "size", "staged", "source", "used by")
GC_HEADER = ("name", "staged", "size", "verdict")
NO_RULE = Finding(
    "keep",
    "nothing was removed: neither a number nor an age is set",
    "set how many of the newest snapshots stay (-e keep=5; argus gc --keep 5), or how old they may be "
    "(-e keep_days=30; argus gc --keep-days 30), or both",
)


class StagedRequest(VerbRequest):
    """The options of `staged`."""

    verify: Verify = Verify.QUICK
    # All modules send it; this verb never changes anything.
    check: bool = False


@click.command(name="staged", short_help="List models, datasets and snapshots.")
@click.option(
    "--verify",
    type=click.Choice([verify.value for verify in Verify]),
    help="How files are compared with manifests.  [default: quick]",
)
@common_options
def staged_command(as_json: bool, **options: Any) -> None:
    """List what is staged, and the jobs that use it."""
    request = request_from(StagedRequest, as_json, **options)
    entries = list(list_staged(check_shared_root(request.root), request.verify))
    rows = [table_row(entry) for entry in entries]
    findings = [finding for entry in entries for finding in entry_findings(entry)]
    if as_json:
        staged = [entry.as_dict() for entry in entries]
        write_answer({"staged": staged, "rows": rows, "findings": [finding.as_dict() for finding in findings]})
        return
    print_table(STAGED_HEADER, rows, findings)


class GcRequest(VerbRequest):
    """The options of `gc`. A snapshot stays if `keep`, `keep_days`, the inventory or a job needs it."""

    keep: int = 0
    # Snapshots that are less than so many days old stay; 0 for no such rule.
    keep_days: float = 0
    declared: Sequence[dict[str, Any]] = ()
    check: bool = False


@click.command(name="gc", short_help="Remove old snapshots of verl.")
@click.option("--keep", type=int, help="How many of the newest snapshots stay.")
@click.option("--keep-days", type=float, help="Younger snapshots stay, in days.")
@click.option("--check", is_flag=True, default=None, help="Only list them.")
@common_options
def gc_command(as_json: bool, **options: Any) -> None:
    """Remove all snapshots that neither of the options keeps, and that no job uses which has not ended.

    The inventory is unknown here: playbooks/stage_gc.yml also keeps the snapshots that it declares.
    """
    request = request_from(GcRequest, as_json, **options)
    require_same_cluster(request)
    staged = list_staged(check_shared_root(request.root))
    snapshots = snapshot_verdicts(staged, request.keep, request.keep_days, request.declared)
    removed, findings = [], [] if request.keep or request.keep_days else [NO_RULE]
    for entry, verdict in snapshots:
        if verdict == SUPERFLUOUS:
            try:
                remove_snapshot(request.root, entry.name, check=request.check)
                removed.append(entry.name)
            except StagingError as error:
                # Such as a job that was submitted meanwhile.
                findings.append(error.finding)
    rows = [[entry.name, entry.staged_at, size_text(entry.bytes or 0), verdict] for entry, verdict in snapshots]
    if as_json:
        result = {"rows": rows, "removed": removed, "programs": programs_in_use(request.root)}
        write_answer({**result, "findings": [finding.as_dict() for finding in findings]}, changed=bool(removed))
        return
    print_table(GC_HEADER, rows, findings)
