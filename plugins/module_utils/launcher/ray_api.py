# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client of a Ray head's HTTP API for nodes and jobs, with the standard library only.

Ray's SDK takes 0.7 s to import and needs Ray to be installed. Asking which nodes are alive, ten times a second while
a cluster starts, has to work without both.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from .status import ENDED

ALIVE = "ALIVE"
USAGE_ATTEMPTS, USAGE_SECONDS = 80, 0.2
# No proxy from the environment: it would receive the token, and it cannot reach the loopback interface.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RayApiError(Exception):
    """The head did not answer, or not as expected; `status` is the HTTP status, or None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Head(Protocol):
    """What the steward and evidence ask a head."""

    def get(self, path: str) -> Any: ...

    def nodes(self) -> list[dict[str, Any]]: ...

    def capacity(self) -> list[WorkerCapacity]: ...

    def jobs(self) -> list[dict[str, Any]]: ...

    def job(self, submission_id: str) -> dict[str, Any] | None: ...


class RayHead:
    """The API of a head at an address such as ``http://127.0.0.1:8265``."""

    def __init__(self, address: str, token_path: str = "", timeout: float = 5.0) -> None:
        self.address = address.rstrip("/")
        self.token_path = token_path
        self.timeout = timeout

    def get(self, path: str) -> Any:
        """GET and decode JSON."""
        request = urllib.request.Request(self.address + path)  # noqa: S310 - the address is the operator's own
        if self.token_path:
            try:
                request.add_header(
                    "Authorization", f"Bearer {Path(self.token_path).read_text(encoding='utf-8').strip()}"
                )
            except OSError as error:
                raise RayApiError(
                    f"the token file {self.token_path} cannot be read ({error.strerror}); cluster_up.yml creates it"
                ) from error
        try:
            with OPENER.open(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            hint = " (the token does not match this cluster)" if error.code in (401, 403) else ""
            raise RayApiError(f"{self.address}{path} answered HTTP {error.code}{hint}", error.code) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RayApiError(f"{self.address}{path} does not answer: {error}") from error

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that the head knows, including dead ones."""
        # /nodes?view=summary lags this one by up to 2 s.
        path = "/api/v0/nodes?detail=1&limit=10000"
        answer = self.get(path)
        try:
            return list(answer["data"]["result"]["result"])
        except (KeyError, TypeError) as error:
            message = answer.get("msg") if isinstance(answer, dict) else None
            raise RayApiError(f"{self.address}{path} answered without nodes: {message or answer}") from error

    def capacity(self, since: float | None = None) -> list[WorkerCapacity]:
        """The alive workers and their free resources, as counted at or after `since`; by default, now."""
        since = since or time.time()
        for _attempt in range(USAGE_ATTEMPTS):
            answer = self.get("/api/cluster_status")
            # The monitor counts every few seconds: resources that were free before may be in use since. A head that has
            # just started has not counted at all.
            with contextlib.suppress(KeyError, TypeError):
                status = answer["data"]["clusterStatus"]
                if status["time"] >= since:
                    return free_workers(self.nodes(), status["loadMetricsReport"]["usageByNode"])
            time.sleep(USAGE_SECONDS)
        raise RayApiError(f"{self.address}/api/cluster_status does not report what is in use: {answer}")

    def jobs(self) -> list[dict[str, Any]]:
        """The submitted jobs; Ray also lists bare drivers, which have no submission id."""
        return [job for job in self.get("/api/jobs/") if job.get("submission_id")]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """One job, or None if the head does not know it, or no longer."""
        try:
            return dict(self.get(f"/api/jobs/{submission_id}"))
        except RayApiError as error:
            if error.status == 404:
                return None
            raise


@dataclass(frozen=True)
class JobRecord:
    """Ray's record of a job, which is one attempt of a job of this collection."""

    status: str
    # Ray's own id of the driver; "" until it has started.
    job_id: str = ""
    driver_node_id: str = ""
    message: str = ""
    driver_exit_code: int | None = None

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
            message=str(record.get("message") or ""),
            driver_exit_code=record.get("driver_exit_code"),
        )


@dataclass(frozen=True)
class WorkerCapacity:
    """A worker's resources in total, and those that are free now."""

    name: str
    node_id: str
    gpus: float
    cpus: float
    free_gpus: float
    free_cpus: float


def free_workers(nodes: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> list[WorkerCapacity]:
    """The alive workers, from the nodes of the state API and the cluster's status: ``{id: {"CPU": [used, total]}}``.

    For a while Ray reports a node and its replacement as alive: the one that started last counts.
    """
    found = {}
    for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0)):
        total = node["resources_total"]
        if node["state"] == ALIVE and total.get("worker_node"):
            used = usage.get(node["node_id"], {})
            gpus, cpus = total.get("GPU", 0), total.get("CPU", 0)
            found[node["node_name"]] = WorkerCapacity(
                name=node["node_name"],
                node_id=node["node_id"],
                gpus=gpus,
                cpus=cpus,
                free_gpus=gpus - used.get("GPU", [0])[0],
                free_cpus=cpus - used.get("CPU", [0])[0],
            )
    return list(found.values())


def capacity_problem(
    workers: Sequence[WorkerCapacity], nnodes: int, gpus: float, cpus: float, driver_cpus: float
) -> str:
    """Why a job cannot start now, or "": it needs `gpus` and `cpus` on each of `nnodes` workers, its driver on any."""
    fitting = [worker for worker in workers if worker.free_gpus >= gpus and worker.free_cpus >= cpus]
    if len(fitting) < nnodes:
        free = ", ".join(f"{worker.name}: {worker.free_gpus:g} GPU, {worker.free_cpus:g} CPU" for worker in workers)
        return (
            f"the job needs {nnodes} {'worker' if nnodes == 1 else 'workers'} with {gpus:g} GPUs and {cpus:g} CPUs "
            f"free; available: {len(fitting)} ({free or 'no worker is alive'})"
        )
    # Ray may place the driver on any worker with free CPUs: if the job needs all workers, it must fit beside the job.
    if len(fitting) == nnodes and any(worker.free_cpus - cpus < driver_cpus for worker in fitting):
        others = [worker for worker in workers if worker not in fitting and worker.free_cpus >= driver_cpus]
        if not others:
            return f"the driver's {driver_cpus:g} CPUs are not free beside the job on each worker that the job needs"
    return ""
