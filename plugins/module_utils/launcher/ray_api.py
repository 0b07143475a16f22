# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side of a Ray head: nodes and jobs, with the standard library only.

The SDK needs Ray to be installed and takes 0.7 s to import; asking which nodes are alive, ten times a
second while a cluster comes up, has to work on a machine that has neither.
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
from typing import Any

ALIVE = "ALIVE"
USAGE_ATTEMPTS, USAGE_SECONDS = 80, 0.2
# Without the proxy that the environment may name: it would get the token, and cannot reach our loopback.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class RayApiError(Exception):
    """The head does not answer as it should; `status` is the HTTP status, or None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class RayHead:
    """The API of a head, at an address such as ``http://127.0.0.1:8265``."""

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
                    f"the token file {self.token_path} cannot be read ({error.strerror}); cluster_up.yml makes it"
                ) from error
        try:
            with OPENER.open(request, timeout=self.timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            hint = " (the token does not fit this cluster)" if error.code in (401, 403) else ""
            raise RayApiError(f"{self.address}{path} answered HTTP {error.code}{hint}", error.code) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RayApiError(f"{self.address}{path} does not answer: {error}") from error

    def nodes(self) -> list[dict[str, Any]]:
        """Every node that the head knows, dead ones included."""
        # /nodes?view=summary lags this one by up to 2 s.
        path = "/api/v0/nodes?detail=1&limit=10000"
        answer = self.get(path)
        try:
            return list(answer["data"]["result"]["result"])
        except (KeyError, TypeError) as error:
            said = answer.get("msg") if isinstance(answer, dict) else None
            raise RayApiError(f"{self.address}{path} answered without nodes: {said or answer}") from error

    def free(self, since: float | None = None) -> list[Node]:
        """The workers that are alive, and what of each was not in use at a moment since then; by default, now."""
        since = since or time.time()
        for _attempt in range(USAGE_ATTEMPTS):
            answer = self.get("/api/cluster_status")
            # The monitor counts every few seconds: what it found before may have been taken since. A head that was
            # just started has not counted at all.
            with contextlib.suppress(KeyError, TypeError):
                status = answer["data"]["clusterStatus"]
                if status["time"] >= since:
                    return free_workers(self.nodes(), status["loadMetricsReport"]["usageByNode"])
            time.sleep(USAGE_SECONDS)
        raise RayApiError(f"{self.address}/api/cluster_status does not tell what is in use: {answer}")

    def jobs(self) -> list[dict[str, Any]]:
        """The submitted jobs; Ray also lists bare drivers, which have no submission id."""
        return [job for job in self.get("/api/jobs/") if job.get("submission_id")]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """One job, or None when the head does not know it (any more)."""
        try:
            return dict(self.get(f"/api/jobs/{submission_id}"))
        except RayApiError as error:
            if error.status == 404:
                return None
            raise


@dataclass(frozen=True)
class Node:
    """A worker: what it has, and what of that is free now."""

    name: str
    node_id: str
    gpus: float
    cpus: float
    free_gpus: float
    free_cpus: float


def free_workers(nodes: Sequence[Mapping[str, Any]], usage: Mapping[str, Any]) -> list[Node]:
    """From the nodes of the state API, and the usage by node of the cluster's status: ``{id: {"CPU": [used, total]}}``.

    Of a node that was replaced, Ray holds both for alive for a while: the one that started last counts.
    """
    found = {}
    for node in sorted(nodes, key=lambda node: node.get("start_time_ms", 0)):
        total = node["resources_total"]
        if node["state"] == ALIVE and total.get("worker_node"):
            used = usage.get(node["node_id"], {})
            gpus, cpus = total.get("GPU", 0), total.get("CPU", 0)
            found[node["node_name"]] = Node(
                name=node["node_name"],
                node_id=node["node_id"],
                gpus=gpus,
                cpus=cpus,
                free_gpus=gpus - used.get("GPU", [0])[0],
                free_cpus=cpus - used.get("CPU", [0])[0],
            )
    return list(found.values())


def does_not_fit(workers: Sequence[Node], nnodes: int, gpus: float, cpus: float, driver_cpus: float) -> str:
    """Why a job has no place now, or nothing: `gpus` and `cpus` on each of `nnodes` workers, and its driver on any."""
    places = [worker for worker in workers if worker.free_gpus >= gpus and worker.free_cpus >= cpus]
    if len(places) < nnodes:
        free = ", ".join(f"{worker.name}: {worker.free_gpus:g} GPU, {worker.free_cpus:g} CPU" for worker in workers)
        return (
            f"{nnodes} workers with {gpus:g} GPUs and {cpus:g} CPUs free are asked for, "
            f"there {'is' if len(places) == 1 else 'are'} {len(places)} ({free or 'no worker is alive'})"
        )
    # The driver goes to any worker with room for it: where the job needs them all, it must fit beside the job.
    if len(places) == nnodes and any(worker.free_cpus - cpus < driver_cpus for worker in places):
        others = [worker for worker in workers if worker not in places and worker.free_cpus >= driver_cpus]
        if not others:
            return f"the driver's {driver_cpus:g} CPUs are not free beside the job on every worker that it would take"
    return ""
