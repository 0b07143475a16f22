# SPDX-License-Identifier: Apache-2.0
"""argus gc --jobs: lists checkpoints or archives of ended jobs that are not needed any more, or removes them."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import click

from ..archive.archive import archives
from ..common.findings import Finding
from ..common.shared_root import JOBS_DIR
from ..common.text import size_text
from ..jobs.registry import Registry
from ..jobs.superfluous import SUPERFLUOUS, Decision, RemovalRules, RemovalScope, decide, decide_all, job_uses
from ..staging.files import remove_tree
from .request import (
    VerbRequest,
    common_options,
    print_table,
    request_from,
    require_same_cluster,
    tag_option,
    write_answer,
)

HEADER = ("job", "state", "size", "verdict")
REMOVED = "removed"
NO_RULE = Finding(
    "keep",
    "nothing is removed: neither a number nor an age is set",
    "set how many of the latest jobs stay (-e keep=20; --keep 20), or for how many days (keep_days)",
)


class JobsGcRequest(VerbRequest, RemovalRules):
    # Remove the superfluous parts; otherwise only list them.
    remove: bool = False
    check: bool = False  # Ansible's check mode: list them, even with `remove`


def remove_if_superfluous(candidate: Decision, rules: RemovalRules, registry: Registry) -> tuple[str, list[Finding]]:
    """Decide again, as a new job may name this one, and remove superfluous parts; return the verdict and failures."""
    uses = job_uses(archives(candidate.archive.jobs), registry)
    current = decide(candidate.archive, candidate.index, uses, rules, time.time())
    if current.text != SUPERFLUOUS:
        return current.text, []
    for path in current.paths:
        # Directories that are nested too deeply, or without permissions, stay.
        with suppress(OSError, RecursionError):
            remove_tree(path)
    if remaining := [path for path in current.paths if os.path.lexists(path)]:
        remedy = f"look at its owner and mode: ls -ld {remaining[0]}"
        return "not removed", [Finding(candidate.archive.submission_id, "cannot be removed", remedy)]
    if not candidate.archive.exists():
        registry.remove(candidate.archive.submission_id)
    return REMOVED, []


@click.command(name="gc --jobs", short_help="Remove old checkpoints or archives of jobs.")
@click.option("--scope", type=click.Choice([*map(str, RemovalScope)]), help="Parts of a job.  [default: checkpoints]")
@tag_option
@click.option("--keep", type=int, help="How many of the latest jobs stay.")
@click.option("--keep-days", type=float, help="Jobs that ended within so many days stay.")
@click.option("--remove", is_flag=True, default=None, help="Remove the listed parts.")
@common_options
def gc_jobs_command(as_json: bool, **options: Any) -> None:
    """List checkpoints or archives of jobs that have ended, or remove them.

    Whatever the options are, the last complete checkpoint of a job stays if another job names that job.
    """
    request = request_from(JobsGcRequest, as_json, **options)
    require_same_cluster(request)
    registry, removes = Registry(), request.remove and not request.check
    decisions, findings = [], [] if request.keep or request.keep_days else [NO_RULE]
    for decision in decide_all(request.root / JOBS_DIR, request, registry, time.time()):
        text = decision.text
        if text == SUPERFLUOUS and removes:
            text, problems = remove_if_superfluous(decision, request, registry)
            findings += problems
        decisions.append(replace(decision, text=text))
    freed_bytes = sum(row.size for row in decisions if row.text in (REMOVED, SUPERFLUOUS))
    sizes = [size_text(row.size) if row.size else "-" for row in decisions]
    table = [[row.archive.submission_id, row.state, size, row.text] for row, size in zip(decisions, sizes, strict=True)]
    if as_json:
        result = {"rows": table, "freed": size_text(freed_bytes), "removes": removes}
        is_done = any(row.text == REMOVED for row in decisions)
        write_answer({**result, "findings": [finding.as_dict() for finding in findings]}, changed=is_done)
        return
    print_table(HEADER, table, findings)
    click.echo(f"{size_text(freed_bytes)} {'freed' if removes else 'would be freed'}")
