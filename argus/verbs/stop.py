# SPDX-License-Identifier: Apache-2.0
"""argus stop, removal: end one job, or all jobs of a cluster that is removed."""

from __future__ import annotations

from typing import Any, Literal

import click

from ..common.shared_root import JOBS_DIR
from ..jobs.registry import Registry
from ..jobs.services import Effect
from ..jobs.stop import close_jobs, end_jobs, stop
from .request import VerbRequest, common, request_from, services, write_answer

# argus stop: end a job.


class StopRequest(VerbRequest):
    submission_id: str
    # USER@HOST, for the archive.
    requested_by: str = ""
    check: bool = False


@click.command(name="stop", short_help="Stop a job.")
@click.argument("submission_id", metavar="ID", required=False)
@common
def stop_command(as_json: bool, **options: Any) -> None:
    """Stop the job ID in whatever state it is, and wait until it has ended."""
    request = request_from(StopRequest, as_json, **options)
    outside = services(request)
    answer = stop(request.shared_root, request.submission_id, outside, request.check, request.requested_by)
    if as_json:
        write_answer(answer.result, changed=answer.changed)
        return
    before = "" if answer.changed else ", it had ended before"
    click.echo(f"Job {request.submission_id}: {answer.result['state']}{before}")


# argus removal: ends the jobs of a cluster before its nodes are removed, and closes their archives.


class RemovalRequest(VerbRequest):
    """The options of `removal`.

    state: "ended": on the head, stewards end the jobs and close their archives. "closed": archives that are still open
    are closed, and files with secrets removed, when no node runs any more.
    check: only tell which archives are open.
    """

    state: Literal["ended", "closed"]
    check: bool = False


def removal(request: RemovalRequest) -> Effect:
    jobs, registered = request.root / JOBS_DIR, Registry().ids()
    if request.state == "closed":
        return close_jobs(jobs, registered, request.check)
    return end_jobs(jobs, registered, services(request), request.check)


@click.command(name="removal", hidden=True)
@common
def removal_command(as_json: bool, **options: Any) -> None:
    """End the jobs of this cluster, as cluster_down.yml does."""
    done = removal(request_from(RemovalRequest, as_json, **options))
    write_answer(done.result, done.findings, done.changed)
