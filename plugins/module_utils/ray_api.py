# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The HTTP side of a Ray head: nodes and jobs, with the standard library only.

The SDK needs Ray to be installed and takes 0.7 s to import; asking which nodes are alive, ten times a
second while a cluster comes up, has to work on a machine that has neither.
"""

from __future__ import annotations

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
# States of a Ray job after which nothing changes any more.
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
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
class Membership:
    """The nodes that are expected against those that are seen."""

    rows: tuple[tuple[str, str, str, str], ...]  # node, expected, seen, verdict
    missing: tuple[str, ...]

    @property
    def complete(self) -> bool:
        return not self.missing


def describe_resources(cpus: Any, gpus: Any, resources: Mapping[str, Any]) -> str:
    parts = [] if cpus is None else [f"CPU {cpus:g}"]
    parts.append(f"GPU {gpus:g}")
    parts += [f"{name} {amount:g}" for name, amount in sorted(resources.items())]
    return ", ".join(parts)


def membership(expected: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> Membership:
    """Hold the nodes as the head sees them against the inventory.

    expected: dicts of `name`, `head`, `cpus` (None: any), `gpus`, `resources`, `since` (seconds since the epoch).
    nodes: as RayHead.nodes() returns them. A node that died and came back is there twice, and for half a minute
    Ray holds the dead one for alive: only one that started after `since` counts.
    """
    rows, missing = [], []
    since = {want["name"]: (want.get("since") or 0) * 1000 for want in expected}
    alive = {
        node["node_name"]: node
        for node in nodes
        if node["state"] == ALIVE and node.get("start_time_ms", 0) >= since.get(node["node_name"], 0)
    }
    known = {node["node_name"] for node in nodes}
    for want in expected:
        name = want["name"]
        wanted = describe_resources(want["cpus"], want["gpus"], want["resources"])
        node = alive.get(name)
        if node is None:
            seen = "dead" if name in known else "never joined"
            verdict = "missing"
        else:
            total = node["resources_total"]
            cpus = None if want["cpus"] is None else total.get("CPU", 0)
            custom = {key: total.get(key, 0) for key in want["resources"]}
            seen = describe_resources(cpus, total.get("GPU", 0), custom)
            fits = seen == wanted and bool(node["is_head_node"]) == bool(want["head"])
            verdict = "alive" if fits else "differs"
        rows.append((name, wanted, seen, verdict))
        if verdict != "alive":
            missing.append(name)
    return Membership(tuple(rows), tuple(missing))


def wait_for_membership(
    head: RayHead, expected: Sequence[Mapping[str, Any]], timeout: float, interval: float = 0.2
) -> tuple[Membership, float, str]:
    """Ask until every expected node is alive, or for `timeout` seconds.

    Returns the membership, the seconds it took, and the last error of the head, if it did not answer.
    """
    start = time.monotonic()
    while True:
        problem = ""
        try:
            seen = membership(expected, head.nodes())
        except RayApiError as error:
            seen, problem = membership(expected, []), str(error)
        waited = time.monotonic() - start
        if seen.complete or waited >= timeout:
            return seen, waited, problem
        time.sleep(interval)
