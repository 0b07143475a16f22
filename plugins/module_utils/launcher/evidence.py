# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence: what Ray and every node of a job say at a moment of its life, kept under ``debug/``.

Run on its own, on any node: ``python3 <archive>/config/launcher evidence <archive> <moment>``. In a process of its
own it can neither slow the trainer down nor be ended together with it. With the head gone it takes what this node has.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import node, redact
from .archive import Archive, now
from .plan import Plan
from .ray_api import RayHead
from .tasks import Connection

# Why it is collected.
SUBMIT, START, PERIODIC, STALL, DEADLINE, END, DEMAND = (
    "submit",
    "start",
    "periodic",
    "stall",
    "deadline",
    "end",
    "demand",
)
# What the head knows, without a process on any node.
FROM_HEAD = (SUBMIT, PERIODIC)
INDEX = "debug/index.jsonl"
NODES_SECONDS = 45
# An hour of them at the interval at which they are taken.
PERIODIC_KEPT = 12
LIMIT = 1000


# --- What the head knows ---------------------------------------------------------------------------------------------


def api(head: RayHead, path: str) -> Callable[[], str]:
    """A listing of Ray's state API."""
    return lambda: json.dumps(head.get(path)["data"]["result"]["result"], indent=1)


def job_list(head: RayHead) -> str:
    jobs = head.get("/api/jobs/")
    for job in jobs:
        # The environments of other people's jobs are none of this archive's business.
        job.pop("runtime_env", None)
    return json.dumps(jobs, indent=1)


def node_summary(head: RayHead) -> str:
    """Load, memory, shared memory, disks, network and GPUs of every node, as their agents measure them."""
    keys = ("hostname", "ip", "cpu", "cpus", "mem", "hostMem", "shm", "disk", "diskIo", "network", "gpus", "loadAvg")
    summary = head.get("/nodes?view=summary")["data"]["summary"]
    return json.dumps([{key: node.get(key) for key in keys} for node in summary], indent=1)


def head_sources(head: RayHead) -> dict[str, Callable[[], str]]:
    return {
        "ray_status.txt": lambda: node.run("ray", "status", "-v", seconds=30),
        "ray_job_list.json": lambda: job_list(head),
        "ray_list_nodes.json": api(head, f"/api/v0/nodes?detail=1&limit={LIMIT}"),
        "ray_list_actors.json": api(head, f"/api/v0/actors?detail=1&limit={LIMIT}"),
        "ray_list_tasks.json": api(head, f"/api/v0/tasks?limit={LIMIT}"),
        "ray_list_placement_groups.json": api(head, f"/api/v0/placement_groups?detail=1&limit={LIMIT}"),
        "nodes.json": lambda: node_summary(head),
    }


def collect_head(archive: str, prefix: str, address: str) -> list[dict[str, Any]]:
    """What the head knows, asked on the head itself: its API may be open to nobody else."""
    path = Path(archive)
    redactor = redact.Redactor(redact.load(path).values())
    head = RayHead(address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
    return [node.write(path, f"{prefix}-{name}", source, redactor) for name, source in head_sources(head).items()]


# --- Who belongs to a job --------------------------------------------------------------------------------------------


def actors(head: RayHead, detail: bool = False) -> list[dict[str, Any]]:
    """Actors of all states: those that died have left logs, too; with `detail`, of what they died."""
    return list(head.get(f"/api/v0/actors?detail={int(detail)}&limit=10000")["data"]["result"]["result"])


def died_with(actors: Iterable[Mapping[str, Any]], job_id: str, *, ended: bool) -> set[str]:
    """The nodes together with which a job may have lost actors; those that had ended before are no loss.

    ended: its driver has ended, and has taken all actors along that were there, before Ray knew of a lost node.
    """
    reasons = {"NODE_DIED", "OWNER_DIED"} if ended else {"NODE_DIED"}
    found = set()
    for actor in actors:
        context = (actor.get("death_cause") or {}).get("actor_died_error_context") or {}
        if actor["job_id"] == job_id and context.get("reason") in reasons:
            found.add(str(actor["node_id"]))
    return found


def own_jobs(submission_id: str, jobs: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Ray's records of a job's attempts."""
    return [job for job in jobs if str(job.get("submission_id") or "").partition("~")[0] == submission_id]


def members(actors: Sequence[Mapping[str, Any]], job_ids: set[str]) -> dict[str, set[int]]:
    """The nodes on which a job has or had actors, and the actors' process ids."""
    found: dict[str, set[int]] = {}
    for actor in actors:
        if actor["job_id"] in job_ids and actor.get("node_id"):
            found.setdefault(actor["node_id"], set()).add(int(actor.get("pid") or 0))
    return found


def address_of(archive: Archive) -> str:
    return (archive.plan() or Plan()).address


def connect(archive: Archive) -> Connection:
    """Ray, with processes that find this package in the archive."""
    return Connection({"PYTHONPATH": str(archive.path / "config" / "launcher")})


def job_records(connection: Connection, head_id: str, address: str) -> dict[str, Any]:
    """Ray's jobs and actors, from the head's own API."""
    reference = connection.on(head_id, ask_head, address)
    values, _problems = connection.results({"head": reference}, NODES_SECONDS)
    return dict(values.get("head") or {"jobs": [], "actors": []})


def ask_head(address: str) -> dict[str, Any]:
    head = RayHead(address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
    return {"jobs": head.jobs(), "actors": actors(head)}


# --- Collecting ------------------------------------------------------------------------------------------------------


def collect(archive: Archive, moment: str, connection: Connection | None = None) -> list[dict[str, Any]]:
    """Write what can be had, and in place of what cannot, why; the entries that were added to the index."""
    address = address_of(archive)
    prefix = f"debug/{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{moment}"
    if moment in FROM_HEAD:
        entries = collect_head(str(archive.path), prefix, address)
    else:
        entries = collect_everywhere(archive, connection or connect(archive), prefix, moment in (START, DEMAND))
    stamp = now()
    lines = "".join(
        json.dumps({"time": stamp, "moment": moment, **entry}, ensure_ascii=False) + "\n" for entry in entries
    )
    with (archive.path / INDEX).open("a", encoding="utf-8") as index:
        index.write(lines)
    if moment == PERIODIC:
        prune(archive)
    return entries


def collect_everywhere(
    archive: Archive, connection: Connection, prefix: str, with_packages: bool
) -> list[dict[str, Any]]:
    request: dict[str, Any] = {
        "job_ids": [],
        "since": float(archive.status().get("started_at") or 0),
        "packages": with_packages,
    }
    path = str(archive.path)
    if connection.problem:
        # This node is better than nothing, and the index says so.
        own = node.collect(path, f"{prefix}-{socket.gethostname()}", request)
        return [{"file": "", "error": f"{connection.problem}; only this node was looked at"}, *own]
    nodes = {entry["NodeID"]: entry["NodeName"] for entry in connection.nodes()}
    head_id = next(
        (entry["NodeID"] for entry in connection.nodes() if "node:__internal_head__" in entry["Resources"]), ""
    )
    address = address_of(archive)
    records = job_records(connection, head_id, address)
    own_records = own_jobs(archive.submission_id, records["jobs"])
    job_ids = {job["job_id"] for job in own_records if job.get("job_id")}
    request["job_ids"] = sorted(job_ids)
    wanted = {job.get("driver_node_id") for job in own_records} | set(members(records["actors"], job_ids))
    started = {"the head's API": connection.on(head_id, collect_head, path, prefix, address)}
    for node_id, name in nodes.items():
        if node_id in wanted:
            started[name] = connection.on(node_id, node.collect, path, f"{prefix}-{name}", request)
    values, problems = connection.results(started, NODES_SECONDS)
    for node_id in wanted - set(nodes) - {None}:
        problems[f"node {node_id}"] = "it is not alive"
    return [
        *({"file": "", "error": f"{name}: {problem}"} for name, problem in problems.items()),
        *({"node": name, **entry} for name, own in values.items() for entry in own),
    ]


def sweep(archive: Archive, connection: Connection) -> dict[str, Any]:
    """End what a job that has ended left on any node: what that was by node, and the nodes that gave no answer."""
    if connection.problem:
        return {"nodes": {}, "problems": {"Ray": connection.problem}}
    nodes = connection.nodes()
    head_id = next((entry["NodeID"] for entry in nodes if "node:__internal_head__" in entry["Resources"]), "")
    records = job_records(connection, head_id, address_of(archive))
    job_ids = {job["job_id"] for job in own_jobs(archive.submission_id, records["jobs"]) if job.get("job_id")}
    pids = members(records["actors"], job_ids)
    started = {
        entry["NodeName"]: connection.on(
            entry["NodeID"], node.sweep, archive.submission_id, sorted(pids.get(entry["NodeID"], ()))
        )
        for entry in nodes
        if entry["NodeID"] != head_id
    }
    values, problems = connection.results(started, NODES_SECONDS)
    return {"nodes": values, "problems": problems}


def prune(archive: Archive) -> None:
    """Only the newest periodic collections are kept; the index follows."""
    stamps = sorted({path.name.partition(f"-{PERIODIC}-")[0] for path in archive.path.glob(f"debug/*-{PERIODIC}-*")})
    for stamp in stamps[:-PERIODIC_KEPT]:
        for path in archive.path.glob(f"debug/{stamp}-{PERIODIC}-*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if len(stamps) > PERIODIC_KEPT and (archive.path / INDEX).is_file():
        lines = (archive.path / INDEX).read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [
            line for line in lines if not json.loads(line)["file"] or (archive.path / json.loads(line)["file"]).exists()
        ]
        archive.write_text(INDEX, "".join(kept))
