# SPDX-License-Identifier: Apache-2.0
"""What is read from the records of nodes and jobs that Ray's HTTP API lists."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..archive.status import ENDED

# The state of a node or an actor.
ALIVE = "ALIVE"
# Ray names a node by its id or its address.
NODE_ID = re.compile(r"\b(?:[0-9a-f]{56}|[0-9]{1,3}(?:\.[0-9]{1,3}){3})\b")


def names_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of nodes by their ids, and by their addresses unless nodes of several names share one."""
    by_address: dict[str, set[str]] = {}
    for node in nodes:
        by_address.setdefault(str(node.get("node_ip") or ""), set()).add(node["node_name"])
    unique = {address: names.copy().pop() for address, names in by_address.items() if address and len(names) == 1}
    return unique | {node["node_id"]: node["node_name"] for node in nodes}


def with_names(text: str, nodes: Mapping[str, str]) -> str:
    """A message of Ray's with names in place of the ids and addresses of nodes. nodes: the result of `names_of`."""
    return NODE_ID.sub(lambda match: nodes.get(match[0], match[0]), text)


@dataclass(frozen=True)
class JobRecord:
    """Ray's record of a submitted job, which is one attempt of a job of this collection."""

    status: str  # PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
    # Ray's id of the driver; "" until the driver has started.
    job_id: str = ""
    driver_node_id: str = ""
    driver_node_ip: str = ""  # "" until the driver has connected to Ray
    # Ray's text on the status; after a failure, with the end of the log.
    message: str = ""
    driver_exit_code: int | None = None
    submission_id: str = ""  # the archive's submission id, with the number of the attempt after the first
    started_at: float = 0.0  # in seconds since the epoch; 0 if unknown

    @property
    def ended(self) -> bool:
        return self.status in ENDED

    @property
    def pending(self) -> bool:
        return self.status == "PENDING"

    @classmethod
    def from_api(cls, record: Mapping[str, Any]) -> JobRecord:
        return cls(
            status=record["status"],
            job_id=record.get("job_id") or "",
            driver_node_id=record.get("driver_node_id") or "",
            driver_node_ip=(record.get("driver_info") or {}).get("node_ip_address") or "",
            message=str(record.get("message") or ""),
            driver_exit_code=record.get("driver_exit_code"),
            submission_id=str(record.get("submission_id") or ""),
            started_at=(record.get("start_time") or 0) / 1000,
        )


def duplicate_names(nodes: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of nodes that died and came back before Ray noticed, so that it lists both as alive.

    Ray would start a job's processes on the dead ones, too.
    """
    alive = Counter(node["node_name"] for node in nodes if node["state"] == ALIVE)
    return {name for name, count in alive.items() if count > 1}


@dataclass(frozen=True)
class WorkerCapacity:
    """A worker's GPUs and CPUs in total, and those that are free."""

    name: str
    node_id: str
    gpus: float
    cpus: float
    free_gpus: float
    free_cpus: float


def free_workers(nodes: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> list[WorkerCapacity]:
    """The alive workers that get new work.

    nodes: as the state API lists them. usage: of the cluster's status, ``{node_id: {"CPU": [used, total]}}``.
    For a while, Ray lists a node and its replacement as alive: the one that started last counts.
    """
    workers = {}
    for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0)):
        total = node["resources_total"]
        if node["state"] == ALIVE and total.get("worker_node") and not node.get("draining"):
            used = usage.get(node["node_id"], {})
            gpus, cpus = total.get("GPU", 0), total.get("CPU", 0)
            workers[node["node_name"]] = WorkerCapacity(
                name=node["node_name"],
                node_id=node["node_id"],
                gpus=gpus,
                cpus=cpus,
                free_gpus=gpus - used.get("GPU", [0])[0],
                free_cpus=cpus - used.get("CPU", [0])[0],
            )
    return list(workers.values())
