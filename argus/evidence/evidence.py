# SPDX-License-Identifier: Apache-2.0
"""Collects evidence of a job, what Ray and its nodes report at a moment, in ``debug/``; finds and ends its processes.

``argus launch evidence ARCHIVE MOMENT`` collects on any node as a process of its own, so it neither slows the trainer
down nor ends together with it. Without a head it collects from its own node only.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..archive.archive import Archive, now
from ..archive.plan import Plan
from ..common.identity import JOBS_API, node_name
from ..hooks import redact, worker_secrets
from ..ray.api import RayHead, local_head
from ..ray.tasks import Connection
from . import node


class Moment(StrEnum):
    """The moments at which evidence is collected. DEMAND: a person asked for it."""

    SUBMIT = "submit"
    START = "start"
    PERIODIC = "periodic"
    STALL = "stall"
    DEADLINE = "deadline"
    END = "end"
    DEMAND = "demand"


# At these moments only the head is asked, without a process on any node.
HEAD_ONLY_MOMENTS = (Moment.SUBMIT, Moment.PERIODIC)
# At these moments, the versions of packages are collected as well.
PACKAGE_MOMENTS = (Moment.START, Moment.DEMAND)
# The index: a line of JSON for each file. It has an error if a source failed, and no file if a node did not answer.
INDEX = "debug/index.jsonl"
# The limit for the answers of all nodes.
NODES_TIMEOUT_SECONDS = 45
# The number of periodic collections that are kept: one hour at the steward's interval.
MAX_PERIODIC = 12
# The maximum number of entries of a listing that is kept.
MAX_ENTRIES = 1000
# The filter for actors that are not dead.
NOT_DEAD_FILTER = "&filter_keys=state&filter_predicates=%21%3D&filter_values=DEAD"
# The fields that a job's archive keeps of other jobs, their actors and tasks.
FOREIGN_FIELDS = {
    *("job_id", "submission_id", "type", "status", "state", "start_time", "end_time", "driver_node_id"),
    *("actor_id", "class_name", "node_id", "pid", "required_resources", "num_restarts", "placement_group_id"),
    *("task_id", "attempt_number", "creation_time_ms", "start_time_ms", "end_time_ms"),
}


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
    """A value of Ray's API without runtime environments: the archive already has that of the job."""
    if isinstance(value, dict):
        return {key: without_env(item) for key, item in value.items() if "runtime_env" not in key}
    return [without_env(item) for item in value] if isinstance(value, list) else value


def actors_json(head: RayHead, job_ids: set[str]) -> str:
    """All actors of the job, including dead ones, and the living actors of other jobs."""
    of_job = (list_actors(head, job_filter(job_id), detail=True)[:MAX_ENTRIES] for job_id in sorted(job_ids))
    others = (actor for actor in list_actors(head, NOT_DEAD_FILTER, detail=True) if actor.get("job_id") not in job_ids)
    return entries_json([*itertools.chain(*of_job), *itertools.islice(others, MAX_ENTRIES)], job_ids)


def list_state_api(head: RayHead, url_path: str) -> list[dict[str, Any]]:
    return list(head.get(url_path)["data"]["result"]["result"])


def jobs_json(head: RayHead, submission_id: str) -> str:
    """Ray's records of all jobs; those of other jobs are shortened."""
    jobs = head.get("/api/jobs/")
    shown = [without_env(job) if is_attempt_of(submission_id, job) else foreign_entry(job) for job in jobs]
    return json.dumps(shown, indent=1)


def is_attempt_of(submission_id: str, job: Mapping[str, Any]) -> bool:
    """Whether Ray's record is of an attempt of the job with this submission id."""
    return str(job.get("submission_id") or "").partition("~")[0] == submission_id


def job_ids_of(submission_id: str, jobs: Iterable[Mapping[str, Any]]) -> set[str]:
    """Ray's own ids of the attempts of a job."""
    return {str(job["job_id"]) for job in jobs if job.get("job_id") and is_attempt_of(submission_id, job)}


def nodes_json(head: RayHead) -> str:
    """Load, memory, shared memory, disks, network and GPUs of every node, as their agents measure them."""
    keys = ("hostname", "ip", "cpu", "cpus", "mem", "hostMem", "shm", "disk", "diskIo", "network", "gpus", "loadAvg")
    summary = head.get("/nodes?view=summary")["data"]["summary"]
    return json.dumps([{key: entry.get(key) for key in keys} for entry in summary], indent=1)


def head_sources(head: RayHead, submission_id: str) -> dict[str, Callable[[], str]]:
    """The files of evidence that the head gives, with the functions that ask it for their texts."""
    job_ids = functools.cache(lambda: job_ids_of(submission_id, head.get("/api/jobs/")))

    def listing(query: str) -> Callable[[], str]:
        return lambda: entries_json(list_state_api(head, f"/api/v0/{query}&limit={MAX_ENTRIES}"), job_ids())

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


def collect_head(archive_path: str, prefix: str, address: str) -> list[dict[str, Any]]:
    """Write evidence of the head. Runs on the head itself, whose API may be closed to other nodes."""
    path = Path(archive_path)
    redactor = redact.Redactor(worker_secrets.load(path).values())
    head = local_head(address)
    return [
        node.write(path, f"{prefix}-{name}", source, redactor) for name, source in head_sources(head, path.name).items()
    ]


@dataclass(frozen=True)
class JobProcesses:
    """The nodes and processes of a job, present and past."""

    job_ids: set[str] = field(default_factory=set)  # Ray's own ids of the attempts
    driver_nodes: set[str] = field(default_factory=set)  # Ray's ids of the nodes on which drivers ran
    pids: dict[str, set[int]] = field(default_factory=dict)  # the process ids of actors, by Ray's id of the node


def list_actors(head: RayHead, filters: str, detail: bool = False) -> list[dict[str, Any]]:
    """Actors that match NOT_DEAD_FILTER or a `job_filter`. detail: with the causes of death of dead ones."""
    return list_state_api(head, f"/api/v0/actors?detail={int(detail)}&limit=10000{filters}")


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


def read_job_processes(address: str, submission_id: str) -> JobProcesses:
    """The processes of all attempts of a job, from the API of the head. Runs on the head."""
    head = local_head(address)
    jobs = [job for job in head.jobs() if is_attempt_of(submission_id, job)]
    processes = JobProcesses(
        job_ids_of(submission_id, jobs), {str(job["driver_node_id"]) for job in jobs if job.get("driver_node_id")}
    )
    for job_id in sorted(processes.job_ids):
        for actor in list_actors(head, job_filter(job_id)):
            if actor.get("node_id"):
                processes.pids.setdefault(actor["node_id"], set()).add(int(actor.get("pid") or 0))
    return processes


def address_of(archive: Archive) -> str:
    """The address of Ray's API: on the head that of its environment, because a job can write into its plan."""
    return os.environ.get(JOBS_API) or (archive.plan() or Plan()).address


def head_node_id(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Ray's id of the head among nodes as ray.nodes() lists them; "" without a head."""
    return next((entry["NodeID"] for entry in nodes if "node:__internal_head__" in entry["Resources"]), "")


def job_processes_from_head(connection: Connection, head_id: str, archive: Archive) -> JobProcesses:
    """The nodes and processes of a job, which the head lists; empty if it does not answer."""
    reference = connection.start_on(head_id, read_job_processes, address_of(archive), archive.submission_id)
    values, _problems = connection.results({"head": reference}, NODES_TIMEOUT_SECONDS)
    return values.get("head") or JobProcesses()


def collect(archive: Archive, moment: Moment, connection: Connection | None = None) -> list[dict[str, Any]]:
    """Write evidence, or the error of a source; returns the new entries of the index. connection: None to connect."""
    prefix = f"debug/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{moment}"
    if moment in HEAD_ONLY_MOMENTS:
        entries = collect_head(str(archive.path), prefix, address_of(archive))
    else:
        entries = collect_everywhere(archive, connection or Connection(), prefix, moment in PACKAGE_MOMENTS)
    stamp = now()
    lines = "".join(
        json.dumps({"time": stamp, "moment": moment, **entry}, ensure_ascii=False) + "\n" for entry in entries
    )
    archive.append(INDEX, lines)
    if moment is Moment.PERIODIC:
        prune(archive)
    return entries


def collect_everywhere(
    archive: Archive, connection: Connection, prefix: str, with_packages: bool
) -> list[dict[str, Any]]:
    """Write evidence of the head and of every node on which the job has or had processes."""
    since = archive.read_status().started_at or 0.0
    path = str(archive.path)
    if connection.problem:
        # Evidence of this node alone is better than none.
        entries = node.collect(path, f"{prefix}-{node_name()}", [], since, with_packages)
        return [{"file": "", "error": f"{connection.problem}; only this node was inspected"}, *entries]
    nodes = {entry["NodeID"]: entry["NodeName"] for entry in connection.nodes()}
    head_id = head_node_id(connection.nodes())
    address = address_of(archive)
    processes = job_processes_from_head(connection, head_id, archive)
    job_ids = sorted(processes.job_ids)
    job_nodes = processes.driver_nodes | set(processes.pids)
    started = {"the head's API": connection.start_on(head_id, collect_head, path, prefix, address)}
    for node_id, name in nodes.items():
        if node_id in job_nodes:
            directory = f"{prefix}-{name}"
            started[name] = connection.start_on(node_id, node.collect, path, directory, job_ids, since, with_packages)
    values, problems = connection.results(started, NODES_TIMEOUT_SECONDS)
    for node_id in job_nodes - set(nodes):
        problems[f"node {node_id}"] = "it is not alive"
    return [
        *({"file": "", "error": f"{name}: {problem}"} for name, problem in problems.items()),
        *({"node": name, **entry} for name, entries in values.items() for entry in entries),
    ]


def sweep_job(archive: Archive, connection: Connection) -> dict[str, Any]:
    """End the processes that an ended job left on any node.

    Returns ``{"nodes": {name: the result of node.sweep_node}, "problems": {name: why a node did not answer}}``.
    """
    if connection.problem:
        return {"nodes": {}, "problems": {"Ray": connection.problem}}
    nodes = connection.nodes()
    head_id = head_node_id(nodes)
    processes = job_processes_from_head(connection, head_id, archive)
    started = {
        entry["NodeName"]: connection.start_on(
            entry["NodeID"], node.sweep_node, archive.submission_id, sorted(processes.pids.get(entry["NodeID"], ()))
        )
        for entry in nodes
        if entry["NodeID"] != head_id
    }
    values, problems = connection.results(started, NODES_TIMEOUT_SECONDS)
    return {"nodes": values, "problems": problems}


def prune(archive: Archive) -> None:
    """Remove all but the newest periodic collections, and their lines in the index."""
    moment = Moment.PERIODIC
    stamps = sorted({path.name.partition(f"-{moment}-")[0] for path in archive.path.glob(f"debug/*-{moment}-*")})
    prefixes = [f"{stamp}-{moment}-" for stamp in stamps[:-MAX_PERIODIC]]
    for name in prefixes:
        for path in archive.path.glob(f"debug/{name}*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    if prefixes:
        lines = archive.read_text(INDEX).splitlines(keepends=True)
        archive.write_text(INDEX, "".join(line for line in lines if not any(name in line for name in prefixes)))
