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

from . import redact

SHARED_NAMESPACE = "transfer_queue"
CONTROLLER = "TransferQueueController"
# Marks the exception of the guard, by which the failure is recognised.
FOREIGN = "belongs to another job"


def namespace_of(job_id: str) -> str:
    """Ray's namespace of the TransferQueue of a job; job_id: Ray's own id of the attempt."""
    return f"{SHARED_NAMESPACE}-{job_id}"


def enter_worker() -> None:
    """Ray's `worker_process_setup_hook`, of which a job has one: it runs in every worker process before any task."""
    redact.enter_worker()
    isolate()


def isolate() -> None:
    """Map the namespace of TransferQueue to the job's own. A second call changes nothing."""
    import ray
    from ray.actor import ActorClass

    if getattr(ray.get_actor, "is_isolated", False):
        return
    get_actor, options = ray.get_actor, ActorClass.options

    def isolated_get_actor(name: str, namespace: str | None = None) -> Any:
        handle = get_actor(name, job_namespace(namespace))
        if namespace == SHARED_NAMESPACE:
            refuse_foreign(name, handle._actor_id.job_id.hex(), job_id())
        return handle

    def isolated_options(self: Any, **kwargs: Any) -> Any:
        if kwargs.get("namespace") == SHARED_NAMESPACE:
            kwargs["namespace"] = job_namespace(SHARED_NAMESPACE)
        return options(self, **kwargs)

    isolated_get_actor.is_isolated = True  # type: ignore[attr-defined]
    ray.get_actor, ActorClass.options = isolated_get_actor, isolated_options


def job_namespace(namespace: str | None) -> str | None:
    """The namespace to use in this process: the job's own in place of the shared one."""
    return namespace_of(job_id()) if namespace == SHARED_NAMESPACE else namespace


def job_id() -> str:
    """Ray's own id of the job of this process, which it knows only once it runs a task."""
    import ray

    return str(ray.get_runtime_context().get_job_id())


def refuse_foreign(name: str, creator: str, this_id: str) -> None:
    """Raise if an actor is of another job; both by Ray's own ids. An actor's id contains that of its creator's job."""
    if creator != this_id:
        submission_id = Path(os.environ.get(redact.ARCHIVE, "")).name
        raise RuntimeError(
            f"{name} {FOREIGN}: Ray's job {creator} has created it, and this is Ray's job {this_id} ({submission_id}). "
            "Their samples would be mixed; `ray job list` on the head shows both"
        )
