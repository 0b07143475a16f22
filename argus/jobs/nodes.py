# SPDX-License-Identifier: Apache-2.0
"""Operations on nodes: take one out of Ray, and collect evidence of a job on demand."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from ..archive.archive import Archive
from ..archive.status import submission_id_of
from ..evidence import evidence
from ..evidence.evidence import Moment
from ..queue.room import list_active, list_placement_groups
from ..ray import departures
from ..ray.api import RayApiError, RayHead
from ..ray.records import ALIVE
from ..ray.tasks import NodeRunner, error_line, start_in_thread
from .services import OperationError

# Take a node out of Ray: it gets no new work, and is removed when its jobs have ended. Runs on the head.

POLL_INTERVAL_SECONDS = 2.0
DRAIN_TIMEOUT_SECONDS = 60
# The other reason that Ray knows is refused by a node that has work.
REASON = "DRAIN_NODE_REASON_PREEMPTION"
# The namespace prefix of Ray's own actors, such as a job's supervisor on the node of its driver.
RAY_PREFIX = "_ray_internal"


def is_alive(head: RayHead, node_id: str) -> bool:
    return any(node["node_id"] == node_id and node["state"] == ALIVE for node in head.nodes())


def attempts_by_node(head: RayHead) -> dict[str, tuple[str, ...]]:
    """The attempts with a driver, an actor or reserved resources on each node, by the ids of nodes."""
    jobs = list_active(head.jobs())
    submitted = {str(job["job_id"]): str(job["submission_id"]) for job in jobs if job.get("job_id")}
    uses = [(job.get("driver_node_id"), str(job["submission_id"])) for job in jobs]
    used = [
        (actor.get("node_id"), str(actor["job_id"]))
        for actor in evidence.list_actors(head, evidence.NOT_DEAD, detail=True)
        # The gate's actors end soon.
        if actor.get("class_name") != NodeRunner.__name__ and not str(actor.get("name") or "").startswith(RAY_PREFIX)
    ]
    used += [
        (bundle.get("node_id"), str(group.get("creator_job_id")))
        for group in list_placement_groups(head)
        if group.get("state") != "REMOVED"
        for bundle in group.get("bundles") or ()
    ]
    uses += [(node_id, submitted.get(job_id, f"Ray's job {job_id}")) for node_id, job_id in used]
    attempts: dict[str, dict[str, None]] = defaultdict(dict)
    for node_id, attempt in uses:
        attempts[str(node_id)][attempt] = None
    return {node_id: tuple(names) for node_id, names in attempts.items()}


def attempts_of_node(head: RayHead, node_id: str) -> tuple[str, ...]:
    return attempts_by_node(head).get(node_id, ())


def stop_new_work(node_id: str, registry: str) -> None:
    """Let Ray place nothing on a node any more, which nothing reverses, and remember it. Raises RayApiError."""
    # Run as a module, because the PATH of a connection may lack the program.
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    code, output = run([*ray, "drain-node", "--node-id", node_id, "--reason", REASON, "--reason-message", "drain.yml"])
    if code:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        raise RayApiError(lines[-1] if lines else f"exit code {code}")
    departures.remember_draining(node_id, registry)


def remember_end(head: RayHead, node_id: str, node: str, registry: str) -> None:
    """Remember which attempts end with a node that is removed, so that their stewards can say why."""
    departures.remember_draining(node_id, registry, departures.Removal(node, attempts_of_node(head, node_id)))


def run(command: Sequence[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DRAIN_TIMEOUT_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"no answer within {DRAIN_TIMEOUT_SECONDS} s"
    return done.returncode, done.stdout


def wait_while_held(
    head: RayHead,
    node_id: str,
    timeout: float,
    held_by: Collection[str] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Wait until no job uses a node, or others than `held_by` do; at most `timeout` seconds.

    held_by: None for any jobs.

    Returns the jobs that still use it, of drivers without a submission id Ray's ids; whether Ray still has the node,
    which ends by itself without work; and the seconds.
    """
    start = clock()
    while True:
        alive = is_alive(head, node_id)
        attempts = attempts_of_node(head, node_id) if alive else ()
        jobs = list(dict.fromkeys(map(submission_id_of, attempts)))
        waited = clock() - start
        is_news = held_by is not None and set(jobs) != set(held_by)
        if not jobs or is_news or waited >= timeout:
            return {"jobs": jobs, "alive": alive, "waited": round(waited, 1)}
        sleep(POLL_INTERVAL_SECONDS)


# Collect evidence of a job on demand.

# Connecting to Ray, asking the head and asking all nodes have time limits of their own, in total below this one.
TIMEOUT_SECONDS = 180
EXIT_TIMEOUT_SECONDS = 30


def collect(archive: Archive, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Collect evidence into the archive, for at most `timeout` seconds. Raises OperationError."""
    # A disk or a node that hangs does not keep this process from giving an answer.
    collection = start_in_thread(evidence.collect, archive, Moment.DEMAND)
    if not wait([collection], timeout).done:
        # It may also keep this process from ending after its answer.
        signal.alarm(EXIT_TIMEOUT_SECONDS)
        raise OperationError(
            f"The evidence of {archive.submission_id} is incomplete: collecting it took longer than {timeout:g} s. "
            f"{archive.path}/debug has what was collected."
        )
    try:
        entries = collection.result()
    except Exception as error:
        message = f"The evidence of {archive.submission_id} could not be collected: {error_line(error)}"
        raise OperationError(message) from error
    return collection_result(archive, entries)


def collection_result(archive: Archive, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The result of job_evidence; plugins/modules/job_evidence.py documents it."""
    return {
        "archive": str(archive.path),
        "files": sum(bool(entry.get("file")) for entry in entries),
        "nodes": sorted({str(entry["node"]) for entry in entries if entry.get("node")}),
        "problems": [f"{entry.get('file', '')} {entry['error']}".strip() for entry in entries if entry.get("error")],
    }
