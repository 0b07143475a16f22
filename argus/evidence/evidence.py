# SPDX-License-Identifier: Apache-2.0
"""Collects evidence: what Ray and a job's nodes report at a moment of the job's life, kept in its archive's ``debug/``.

It runs on any node as a process of its own, ``argus launch evidence ARCHIVE MOMENT``, so it neither slows the trainer
down nor ends together with it. Without a head it collects from its own node only.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..archive.archive import Archive, now
from ..archive.plan import Plan
from ..common.identity import JOBS_API, node_name
from ..hooks import redact
from ..ray.api import local_head
from ..ray.tasks import Connection
from . import listings, node


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
# The index: a line of JSON for each file, or for each source that failed.
INDEX = "debug/index.jsonl"
# The limit for the answers of all nodes.
NODES_TIMEOUT_SECONDS = 45
# The number of periodic collections that are kept: one hour at the steward's interval.
MAX_PERIODIC = 12


def collect_head(archive: str, prefix: str, address: str) -> list[dict[str, Any]]:
    """Write evidence of the head. Runs on the head itself, whose API may be closed to other nodes."""
    path = Path(archive)
    redactor = redact.Redactor(redact.load(path).values())
    head = local_head(address)
    return [
        node.write(path, f"{prefix}-{name}", source, redactor)
        for name, source in listings.head_sources(head, path.name).items()
    ]


@dataclass(frozen=True)
class JobProcesses:
    """The nodes and processes of a job, present and past."""

    job_ids: set[str] = field(default_factory=set)  # Ray's own ids of the attempts
    driver_nodes: set[str] = field(default_factory=set)  # Ray's ids of the nodes on which drivers ran
    pids: dict[str, set[int]] = field(default_factory=dict)  # the process ids of actors, by Ray's id of the node


def processes_on_head(address: str, submission_id: str) -> JobProcesses:
    """The processes of all attempts of a job, from the API of the head. Runs on the head."""
    head = local_head(address)
    jobs = [job for job in head.jobs() if listings.is_of(submission_id, job)]
    processes = JobProcesses(
        listings.job_ids_of(submission_id, jobs),
        {str(job["driver_node_id"]) for job in jobs if job.get("driver_node_id")},
    )
    for job_id in sorted(processes.job_ids):
        for actor in listings.list_actors(head, listings.job_filter(job_id)):
            if actor.get("node_id"):
                processes.pids.setdefault(actor["node_id"], set()).add(int(actor.get("pid") or 0))
    return processes


def address_of(archive: Archive) -> str:
    """The address of Ray's API: on the head that of its environment, because a job can write into its plan."""
    return os.environ.get(JOBS_API) or (archive.plan() or Plan()).address


def head_id(nodes: Iterable[Mapping[str, Any]]) -> str:
    """Ray's id of the head among nodes as ray.nodes() lists them; "" without a head."""
    return next((entry["NodeID"] for entry in nodes if "node:__internal_head__" in entry["Resources"]), "")


def processes_of_job(connection: Connection, head: str, archive: Archive) -> JobProcesses:
    """The nodes and processes of a job; empty if the head does not answer."""
    reference = connection.start_on(head, processes_on_head, address_of(archive), archive.submission_id)
    values, _problems = connection.results({"head": reference}, NODES_TIMEOUT_SECONDS)
    return values.get("head") or JobProcesses()


def collect(archive: Archive, moment: Moment, connection: Connection | None = None) -> list[dict[str, Any]]:
    """Write the available evidence, and an error for the rest; returns the entries that it added to the index."""
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
    head = head_id(connection.nodes())
    address = address_of(archive)
    processes = processes_of_job(connection, head, archive)
    job_ids = sorted(processes.job_ids)
    job_nodes = processes.driver_nodes | set(processes.pids)
    started = {"the head's API": connection.start_on(head, collect_head, path, prefix, address)}
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
