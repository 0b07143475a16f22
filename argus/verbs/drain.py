# SPDX-License-Identifier: GPL-3.0-or-later
"""argus drain: a worker gets no new work.

Only for drain.yml, which keeps the worker's machine from starting it again: it would be a new one, which gets work.
"""

from __future__ import annotations

from typing import Any

import click

from ..jobs.drain import is_alive, remember_end, stop_new_work, wait_while_held
from ..jobs.services import OperationError
from ..ray import bad_nodes, draining
from ..ray.admission import registry_path
from ..ray.api import RayApiError, own_head
from .request import Request, common, request_from, write_answer


class DrainRequest(Request):
    """The options of `drain`.

    worker, node_id: its name, and Ray's id of it. wait_timeout: how many seconds to wait for its jobs.
    held_by: wait no longer when other jobs than these use it; None: wait until none does.
    ends_jobs: it is removed although jobs use it. check: change nothing, and wait for nothing.
    """

    worker: str
    node_id: str
    wait_timeout: float = 0.0
    held_by: list[str] | None = None
    ends_jobs: bool = False
    check: bool = False


def drain(request: DrainRequest) -> tuple[dict[str, Any], bool]:
    """The jobs that use a worker, and whether it gets no new work only since now. Raises OperationError."""
    head, registry, node_id = own_head(request.address), registry_path(), request.node_id
    try:
        changed = node_id not in draining.draining(registry) and is_alive(head, node_id)
        if changed and not request.check:
            stop_new_work(node_id, registry)
            bad_nodes.forget(registry, request.worker)
            draining.forget_all_but(frozenset(node["node_id"] for node in head.nodes()), registry)
        if request.ends_jobs and not request.check:
            remember_end(head, node_id, request.worker, registry)
        return wait_while_held(head, node_id, 0 if request.check else request.wait_timeout, request.held_by), changed
    except (RayApiError, OSError) as error:
        raise OperationError(f"the node still gets new work, or its jobs are unknown: {error}") from error


@click.command(name="drain", hidden=True)
@common
def command(as_json: bool, **options: Any) -> None:
    """Let a worker get no new work, as drain.yml does."""
    drained, changed = drain(request_from(DrainRequest, as_json, **options))
    write_answer(drained, changed=changed)
