# SPDX-License-Identifier: Apache-2.0
"""argus drain: tells Ray to give a worker no new work, and waits until no job uses it.

Only for drain.yml, which also keeps the worker's machine from starting the worker again: that would be a new one, which
gets work.
"""

from __future__ import annotations

from typing import Any

import click

from ..jobs.drain import is_alive, remember_ending_attempts, stop_new_work, wait_until_unused
from ..jobs.services import OperationError
from ..ray import departures
from ..ray.admission import registry_path
from ..ray.api import RayApiError, local_head
from .request import VerbRequest, common_options, request_from, write_answer


class DrainRequest(VerbRequest):
    """The options of `drain`."""

    # The name of the worker, and Ray's id of it.
    worker: str
    node_id: str
    # For how many seconds to wait for its jobs.
    wait_timeout: float = 0.0
    # The jobs that the caller knows to use the worker: wait no longer when the jobs differ. None: wait for all jobs.
    held_by: list[str] | None = None
    # Whether the caller will remove the worker even while jobs use it, so that their stewards can say why they ended.
    ends_jobs: bool = False
    # Change nothing, and wait for nothing.
    check: bool = False


def drain(request: DrainRequest) -> tuple[dict[str, Any], bool]:
    """Drain a worker. Returns what wait_until_unused returns, and whether it still got work before this call.

    Raises OperationError.
    """
    head, registry, node_id = local_head(request.address), registry_path(), request.node_id
    try:
        changed = node_id not in departures.draining_nodes(registry) and is_alive(head, node_id)
        if changed and not request.check:
            stop_new_work(node_id, registry)
            departures.forget_losses(registry, request.worker)
            departures.forget_all_draining_but(frozenset(node["node_id"] for node in head.nodes()), registry)
        if request.ends_jobs and not request.check:
            remember_ending_attempts(head, node_id, request.worker, registry)
        timeout = 0 if request.check else request.wait_timeout
        return wait_until_unused(head, node_id, timeout, request.held_by), changed
    except (RayApiError, OSError) as error:
        raise OperationError(f"the node still gets new work, or its jobs are unknown: {error}") from error


@click.command(name="drain", hidden=True)
@common_options
def drain_command(as_json: bool, **options: Any) -> None:
    """Let a worker get no new work, as drain.yml does."""
    drained, changed = drain(request_from(DrainRequest, as_json, **options))
    write_answer(drained, changed=changed)
