# SPDX-License-Identifier: Apache-2.0
"""Gives each job its own TransferQueue, whatever else runs in the Ray cluster.

TransferQueue creates and finds its controller as ``TransferQueueController`` in Ray's namespace ``transfer_queue``,
which all jobs of a cluster share (transfer_queue/interface.py). In the worker processes of a job, this namespace means
one of the job's own. A controller of another job is refused before anything is read from it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from . import worker_secrets

SHARED_NAMESPACE = "transfer_queue"
CONTROLLER_NAME = "TransferQueueController"
# The words of `refuse_foreign_actor` by which the failure of the job is recognised.
FOREIGN_ACTOR_TEXT = "belongs to another job"


def namespace_of(job_id: str) -> str:
    """The namespace of a job's own TransferQueue; job_id: the id that Ray gave to the attempt."""
    return f"{SHARED_NAMESPACE}-{job_id}"


def enter_worker() -> None:
    """Ray's `worker_process_setup_hook`, which runs in every worker process before any task. A job has only one."""
    worker_secrets.provide_secrets()
    isolate_transfer_queue()


def isolate_transfer_queue() -> None:
    """Map the shared namespace to the job's own for `ray.get_actor` and options of actors, once."""
    import ray
    from ray.actor import ActorClass

    if getattr(ray.get_actor, "is_isolated", False):
        return
    get_actor, options = ray.get_actor, ActorClass.options

    def isolated_get_actor(name: str, namespace: str | None = None) -> Any:
        handle = get_actor(name, job_namespace(namespace))
        if namespace == SHARED_NAMESPACE:
            refuse_foreign_actor(name, handle._actor_id.job_id.hex(), job_id())
        return handle

    def isolated_options(self: Any, **kwargs: Any) -> Any:
        if kwargs.get("namespace") == SHARED_NAMESPACE:
            kwargs["namespace"] = job_namespace(SHARED_NAMESPACE)
        return options(self, **kwargs)

    isolated_get_actor.is_isolated = True  # type: ignore[attr-defined]
    ray.get_actor, ActorClass.options = isolated_get_actor, isolated_options


def job_namespace(namespace: str | None) -> str | None:
    """The namespace to use in this process: the job's own in place of the shared one, or else the same."""
    return namespace_of(job_id()) if namespace == SHARED_NAMESPACE else namespace


def job_id() -> str:
    """The id that Ray gave to the job of this process. A worker process has it only once it runs a task."""
    import ray

    return str(ray.get_runtime_context().get_job_id())


def refuse_foreign_actor(name: str, creator_id: str, this_id: str) -> None:
    """Raise if an actor is of another job. Both ids are Ray's; an actor's id contains that of its creator's job."""
    if creator_id != this_id:
        submission_id = Path(os.environ.get(worker_secrets.ARCHIVE_VARIABLE, "")).name
        raise RuntimeError(
            f"{name} {FOREIGN_ACTOR_TEXT}: Ray's job {creator_id} has created it, and this is Ray's job {this_id} "
            f"({submission_id}). Their samples would be mixed; `ray job list` on the head shows both"
        )
