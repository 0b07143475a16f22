# SPDX-License-Identifier: GPL-3.0-or-later
"""argus removal: ends the jobs of a cluster before its nodes are removed, and closes their archives."""

from __future__ import annotations

from typing import Any, Literal

import click

from ..common.shared_root import JOBS
from ..jobs.registry import Registry
from ..jobs.removal import close_jobs, end_jobs
from ..jobs.services import Answer
from .request import Request, common, request_from, services, write_answer


class RemovalRequest(Request):
    """The options of `removal`.

    state: "ended": on the head, stewards end the jobs and close their archives. "closed": archives that are still open
    are closed, and files with secrets removed, when no node runs any more.
    check: only tell which archives are open.
    """

    state: Literal["ended", "closed"]
    check: bool = False


def removal(request: RemovalRequest) -> Answer:
    jobs, registered = request.root / JOBS, Registry().ids()
    if request.state == "closed":
        return close_jobs(jobs, registered, request.check)
    return end_jobs(jobs, registered, services(request), request.check)


@click.command(name="removal", hidden=True)
@common
def command(as_json: bool, **options: Any) -> None:
    """End the jobs of this cluster, as cluster_down.yml does."""
    done = removal(request_from(RemovalRequest, as_json, **options))
    write_answer(done.result, done.findings, done.changed)
