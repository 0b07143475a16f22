# SPDX-License-Identifier: Apache-2.0
"""Drains a node: tells Ray to give it no new work, and waits until no job uses it. Runs on the head."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..archive.status import submission_id_of
from ..evidence import evidence
from ..queue.room import list_active, list_placement_groups
from ..ray import departures
from ..ray.api import RayApiError, RayHead
from ..ray.records import ALIVE
from ..ray.tasks import NodeRunner

POLL_INTERVAL_SECONDS = 2.0
COMMAND_TIMEOUT_SECONDS = 60
# Not DRAIN_NODE_REASON_IDLE_TERMINATION, the other reason that Ray knows: a node that has work refuses it.
DRAIN_REASON = "DRAIN_NODE_REASON_PREEMPTION"
# The namespace prefix of Ray's own actors, such as a job's supervisor on the node of its driver.
RAY_ACTOR_PREFIX = "_ray_internal"


def is_alive(head: RayHead, node_id: str) -> bool:
    return any(node["node_id"] == node_id and node["state"] == ALIVE for node in head.nodes())


def attempts_by_node(head: RayHead) -> dict[str, tuple[str, ...]]:
    """By node id, the names of the attempts with a driver, an actor or reserved resources on the node.

    The name is the submission id of the attempt or, if a driver has none, as in a shell, "Ray's job" with Ray's id.
    """
    jobs = list_active(head.jobs())
    submission_ids = {str(job["job_id"]): str(job["submission_id"]) for job in jobs if job.get("job_id")}
    attempt_places = [(job.get("driver_node_id"), str(job["submission_id"])) for job in jobs]
    ray_job_places = [
        (actor.get("node_id"), str(actor["job_id"]))
        for actor in evidence.list_actors(head, evidence.NOT_DEAD_FILTER, detail=True)
        # A NodeRunner runs a check or collects evidence for this program, and ends soon.
        if actor.get("class_name") != NodeRunner.__name__
        and not str(actor.get("name") or "").startswith(RAY_ACTOR_PREFIX)
    ]
    ray_job_places += [
        (bundle.get("node_id"), str(group.get("creator_job_id")))
        for group in list_placement_groups(head)
        if group.get("state") != "REMOVED"
        for bundle in group.get("bundles") or ()
    ]
    attempt_places += [(place, submission_ids.get(job_id, f"Ray's job {job_id}")) for place, job_id in ray_job_places]
    names_by_node: dict[str, dict[str, None]] = defaultdict(dict)
    for node_id, name in attempt_places:
        names_by_node[str(node_id)][name] = None
    return {node_id: tuple(names) for node_id, names in names_by_node.items()}


def attempts_of_node(head: RayHead, node_id: str) -> tuple[str, ...]:
    return attempts_by_node(head).get(node_id, ())


def stop_new_work(node_id: str, registry: str) -> None:
    """Tell Ray to place no work on a node any more, which cannot be undone, and record it. Raises RayApiError.

    registry: the directory of the registry, which also has the records of nodes that leave.
    """
    # Run as a module, because the PATH of an SSH connection may lack the program.
    ray = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--node-id", node_id]
    code, output = run_command([*ray, "--reason", DRAIN_REASON, "--reason-message", "drain.yml"])
    if code:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        raise RayApiError(lines[-1] if lines else f"exit code {code}")
    departures.remember_draining(node_id, registry)


def record_removal(head: RayHead, node_id: str, node: str, registry: str) -> None:
    """Record that a node is removed, and its attempts, so that the stewards of the jobs can say why these ended.

    node: its name in the inventory.
    """
    departures.remember_draining(node_id, registry, departures.Removal(node, attempts_of_node(head, node_id)))


def run_command(command: Sequence[str]) -> tuple[int, str]:
    """The exit code of a command and its output; 1 and a message if it does not end in time."""
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_TIMEOUT_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no answer within {COMMAND_TIMEOUT_SECONDS} s"
    return done.returncode, done.stdout


def wait_until_unused(
    head: RayHead,
    node_id: str,
    timeout: float,
    known_jobs: Collection[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Wait for at most `timeout` seconds until no job uses a node.

    known_jobs: return at once when the jobs that use the node differ from these, so that the caller can show them.

    The result has `jobs` that still use the node, by submission id or "Ray's job" with Ray's id; `alive`, whether Ray
    still has the node, as a drained one ends by itself once it is idle; and the seconds `waited`.
    """
    start = clock()
    while True:
        alive = is_alive(head, node_id)
        attempts = attempts_of_node(head, node_id) if alive else ()
        jobs = list(dict.fromkeys(map(submission_id_of, attempts)))
        waited = clock() - start
        has_changed = known_jobs is not None and set(jobs) != set(known_jobs)
        if not jobs or has_changed or waited >= timeout:
            return {"jobs": jobs, "alive": alive, "waited": round(waited, 1)}
        sleep(POLL_INTERVAL_SECONDS)
