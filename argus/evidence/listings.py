# SPDX-License-Identifier: Apache-2.0
"""Ray's listings of jobs, actors, nodes and tasks, as the API of its head gives them: for one job, and as evidence.

Of other jobs, evidence has a few fields only, without what these jobs got and printed.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from ..ray.api import RayHead

# The maximum number of entries of a listing that is kept.
MAX_ENTRIES = 1000
# The filter for actors that are not dead.
NOT_DEAD = "&filter_keys=state&filter_predicates=%21%3D&filter_values=DEAD"
# The fields that a job's archive keeps of other jobs, their actors and tasks.
FOREIGN_FIELDS = {
    *("job_id", "submission_id", "type", "status", "state", "start_time", "end_time", "driver_node_id"),
    *("actor_id", "class_name", "node_id", "pid", "required_resources", "num_restarts", "placement_group_id"),
    *("task_id", "attempt_number", "creation_time_ms", "start_time_ms", "end_time_ms"),
}


def list_actors(head: RayHead, filters: str, detail: bool = False) -> list[dict[str, Any]]:
    """Actors that match NOT_DEAD or a `job_filter`. detail: with the causes of death of dead ones."""
    return list_entries(head, f"/api/v0/actors?detail={int(detail)}&limit=10000{filters}")


def job_filter(job_id: str) -> str:
    """The filter for actors of one job, dead or alive. Without one, Ray's limit of 10,000 may leave out some."""
    return f"&filter_keys=job_id&filter_predicates=%3D&filter_values={quote(job_id, safe='')}"


def nodes_of_dead_actors(actors: Iterable[Mapping[str, Any]], job_id: str, *, driver_ended: bool) -> set[str]:
    """Ray's ids of the nodes whose loss killed actors of a job.

    driver_ended: whether the driver has ended. Its actors then ended with it, perhaps before Ray noticed a lost node.
    """
    reasons = {"NODE_DIED", "OWNER_DIED"} if driver_ended else {"NODE_DIED"}
    nodes = set()
    for actor in actors:
        context = (actor.get("death_cause") or {}).get("actor_died_error_context") or {}
        if actor["job_id"] == job_id and context.get("reason") in reasons:
            nodes.add(str(actor["node_id"]))
    return nodes


def entries_json(entries: Iterable[Mapping[str, Any]], job_ids: set[str]) -> str:
    """Entries of a listing as JSON. Those of other jobs are shortened; those without a job concern the cluster."""
    return json.dumps(
        [foreign_entry(row) if row.get("job_id") not in {None, *job_ids} else without_env(row) for row in entries],
        indent=1,
    )


def foreign_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """An entry of another job, without what the job got and printed."""
    return {key: value for key, value in entry.items() if key in FOREIGN_FIELDS}


def without_env(value: Any) -> Any:
    """A value of Ray's API without runtime environments, of which the archive already has the job's."""
    if isinstance(value, dict):
        return {key: without_env(item) for key, item in value.items() if "runtime_env" not in key}
    return [without_env(item) for item in value] if isinstance(value, list) else value


def actors_json(head: RayHead, job_ids: set[str]) -> str:
    """All actors of the job, including dead ones, and the living actors of other jobs."""
    entries = [
        actor
        for job_id in sorted(job_ids)
        for actor in list_actors(head, job_filter(job_id), detail=True)[:MAX_ENTRIES]
    ]
    others = (actor for actor in list_actors(head, NOT_DEAD, detail=True) if actor.get("job_id") not in job_ids)
    return entries_json([*entries, *itertools.islice(others, MAX_ENTRIES)], job_ids)


def list_entries(head: RayHead, path: str) -> list[dict[str, Any]]:
    return list(head.get(path)["data"]["result"]["result"])


def jobs_json(head: RayHead, submission_id: str) -> str:
    """Ray's records of all jobs; those of other jobs are shortened."""
    jobs = head.get("/api/jobs/")
    return json.dumps([without_env(job) if is_of(submission_id, job) else foreign_entry(job) for job in jobs], indent=1)


def is_of(submission_id: str, job: Mapping[str, Any]) -> bool:
    """Whether Ray's record is of an attempt of the job with this submission id."""
    return str(job.get("submission_id") or "").partition("~")[0] == submission_id


def job_ids_of(submission_id: str, jobs: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ray's own ids of the attempts of a job."""
    return {str(job["job_id"]) for job in jobs if job.get("job_id") and is_of(submission_id, job)}


def nodes_json(head: RayHead) -> str:
    """Load, memory, shared memory, disks, network and GPUs of every node, as their agents measure them."""
    keys = ("hostname", "ip", "cpu", "cpus", "mem", "hostMem", "shm", "disk", "diskIo", "network", "gpus", "loadAvg")
    summary = head.get("/nodes?view=summary")["data"]["summary"]
    return json.dumps([{key: entry.get(key) for key in keys} for entry in summary], indent=1)


def head_sources(head: RayHead, submission_id: str) -> dict[str, Callable[[], str]]:
    """The files of evidence that the head gives, with the functions that ask it for their texts."""
    job_ids = functools.cache(lambda: job_ids_of(submission_id, head.get("/api/jobs/")))

    def listing(query: str) -> Callable[[], str]:
        return lambda: entries_json(list_entries(head, f"/api/v0/{query}&limit={MAX_ENTRIES}"), job_ids())

    return {
        "ray_job_list.json": lambda: jobs_json(head, submission_id),
        "ray_list_nodes.json": listing("nodes?detail=1"),
        "ray_list_actors.json": lambda: actors_json(head, job_ids()),
        "ray_list_tasks.json": listing("tasks?detail=0"),
        "ray_list_placement_groups.json": listing("placement_groups?detail=1"),
        "nodes.json": lambda: nodes_json(head),
        # The resources in use on each node, which the text of ``ray status`` lacks.
        "ray_cluster_status.json": lambda: json.dumps(
            head.get("/api/cluster_status")["data"]["clusterStatus"], indent=1
        ),
        # The text of ``ray status``.
        "ray_status.txt": lambda: f"{head.get('/api/cluster_status?format=1')['data']['clusterStatus']}\n",
    }
