# SPDX-License-Identifier: Apache-2.0
"""argus stop: ends one job. argus removal: ends all jobs of a cluster that cluster_down.yml removes."""

from __future__ import annotations

from typing import Any, Literal

import click

from ..common.shared_root import JOBS_DIR
from ..jobs.registry import Registry
from ..jobs.removal import close_jobs, end_jobs
from ..jobs.services import Effect
from ..jobs.stop import stop
from .request import VerbRequest, common_options, job_services, request_from, write_answer


class StopRequest(VerbRequest):
    submission_id: str
    # USER@HOST, for the archive.
    requested_by: str = ""
    check: bool = False


@click.command(name="stop", short_help="Stop a job.")
@click.argument("submission_id", metavar="ID", required=False)
@common_options
def stop_command(as_json: bool, **options: Any) -> None:
    """Stop the job ID in whatever state it is, and wait until it has ended."""
    request = request_from(StopRequest, as_json, **options)
    services = job_services(request)
    effect = stop(request.shared_root, request.submission_id, services, request.check, request.requested_by)
    if as_json:
        write_answer(effect.result, changed=effect.changed)
        return
    before = "" if effect.changed else ", it had ended before"
    click.echo(f"Job {request.submission_id}: {effect.result['state']}{before}")


class RemovalRequest(VerbRequest):
    """The options of `removal`, which cluster_down.yml calls twice."""

    # "ended", while the nodes run: let the stewards end the jobs and close their archives. "closed", when no node runs
    # any more: close the archives that are still open, and remove files with secrets.
    state: Literal["ended", "closed"]
    check: bool = False


def removal(request: RemovalRequest) -> Effect:
    jobs, registered = request.root / JOBS_DIR, Registry().ids()
    if request.state == "closed":
        return close_jobs(jobs, registered, request.check)
    return end_jobs(jobs, registered, job_services(request), request.check)


@click.command(name="removal", hidden=True)
@common_options
def removal_command(as_json: bool, **options: Any) -> None:
    """End the jobs of this cluster, as cluster_down.yml does."""
    effect = removal(request_from(RemovalRequest, as_json, **options))
    write_answer(effect.result, effect.findings, effect.changed)
