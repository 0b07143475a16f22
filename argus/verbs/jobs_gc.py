# SPDX-License-Identifier: Apache-2.0
"""argus gc --jobs: removes checkpoints or archives of jobs that have ended."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from ..archive.archive import archives
from ..common.findings import Finding
from ..common.shared_root import JOBS
from ..common.text import size_text
from ..jobs.registry import Registry
from ..jobs.superfluous import SUPERFLUOUS, Rules, Verdict, What, used, verdict, verdicts
from ..staging.files import remove_tree
from .request import Request, common, of_tag, request_from, require_own_cluster, show, write_answer

HEADER = ("job", "state", "size", "verdict")
REMOVED = "removed"
NO_RULE = Finding(
    "keep",
    "nothing is removed: neither a number nor an age is set",
    "set how many of the latest jobs stay (-e keep=20; --keep 20), or for how many days (keep_days)",
)


class JobsGcRequest(Request, Rules):
    """The options of `gc --jobs`; remove: without it, and with check, nothing is removed."""

    remove: bool = False
    check: bool = False


def remove(found: Verdict, rules: Rules, registry: Registry) -> tuple[str, list[Finding]]:
    """Remove what is to be removed of a job; what has become of it. A job that was submitted meanwhile may name it."""
    uses = used(archives(found.archive.jobs), registry)
    now = verdict(found.archive, found.index, uses, rules, time.time())
    if now.text != SUPERFLUOUS:
        return now.text, []
    for path in now.paths:
        # What a job has nested too deeply, or taken the rights of, stays.
        with suppress(OSError, RecursionError):
            remove_tree(path)
    if left := [path for path in now.paths if os.path.lexists(path)]:
        todo = f"look at its owner and mode: ls -ld {left[0]}"
        return "not removed", [Finding(found.archive.submission_id, "cannot be removed", todo)]
    if not found.archive.exists():
        registry.remove(found.archive.submission_id)
    return REMOVED, []


@click.command(name="gc --jobs", short_help="Remove old checkpoints or archives of jobs.")
@click.option(
    "--what", type=click.Choice([each.value for each in What]), help="What is removed.  [default: checkpoints]"
)
@of_tag
@click.option("--keep", type=int, help="How many of the latest jobs stay.")
@click.option("--keep-days", type=float, help="Jobs that ended later stay, in days.")
@click.option("--remove", is_flag=True, default=None, help="Remove it, rather than only list it.")
@common
def gc_jobs_command(as_json: bool, **options: Any) -> None:
    """List checkpoints or archives of jobs that have ended, or remove them.

    Whatever the options are, the last complete checkpoint of a job stays if another job names that job.
    """
    request = request_from(JobsGcRequest, as_json, **options)
    require_own_cluster(request)
    registry, removes = Registry(), request.remove and not request.check
    rows, findings = [], [] if request.keep or request.keep_days else [NO_RULE]
    for each in verdicts(request.root / JOBS, request, registry, time.time()):
        text = each.text
        if text == SUPERFLUOUS and removes:
            text, problems = remove(each, request, registry)
            findings += problems
        rows.append(replace(each, text=text))
    freed = sum(each.size for each in rows if each.text in (REMOVED, SUPERFLUOUS))
    sizes = [size_text(each.size) if each.size else "-" for each in rows]
    table = [[each.archive.submission_id, each.state, size, each.text] for each, size in zip(rows, sizes, strict=True)]
    if as_json:
        result = {"rows": table, "freed": size_text(freed), "removes": removes}
        is_done = any(each.text == REMOVED for each in rows)
        write_answer({**result, "findings": [finding.as_dict() for finding in findings]}, changed=is_done)
        return
    show(HEADER, table, findings)
    click.echo(f"{size_text(freed)} {'freed' if removes else 'would be freed'}")
