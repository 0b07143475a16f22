# SPDX-License-Identifier: Apache-2.0
"""A client of a Ray head's HTTP API for nodes and jobs, with the standard library only, and the check of its address.

Ray's SDK takes 0.7 s to import and needs Ray to be installed. Asking which nodes are alive, ten times a second while
a cluster starts, has to work without both.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..archive.status import ENDED
from ..io.control_group import failed_forks
from .admission import registry_path
from .departures import draining_nodes

ALIVE = "ALIVE"
# The timeout of the second attempt to reach a head under load.
SECOND_ATTEMPT_TIMEOUT_SECONDS = 20.0
ANSWERS_SLOWLY = "answers slowly"
MAX_USAGE_ATTEMPTS, USAGE_RETRY_INTERVAL_SECONDS = 80, 0.2
MIB = 1 << 20
MAX_ANSWER_BYTES = 64 * MIB
# Nothing but scheme, host and port: programs read anything else in different ways.
ADDRESS = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
PORTS = {"http": 80, "https": 443}
# The host of a head that is not a loopback: the address in the inventory, never that of a file which jobs can write.
ALLOWED_HOST = "ARGUS_VERL_HEAD_HOST"
TOKEN = re.compile(r"[\x21-\x7e]+")
# Ray names a node by its id or its address.
NODE_ID = re.compile(r"\b(?:[0-9a-f]{56}|[0-9]{1,3}(?:\.[0-9]{1,3}){3})\b")


class RayApiError(Exception):
    """The head did not answer, or not as expected; `status` is the HTTP status, or None without one."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class HeadTimeoutError(RayApiError):
    """The head accepted the connection and did not answer in time: it is slow, or stopped."""


def slowness(seconds: float) -> list[str]:
    """A line about a head that needed a second attempt, if it did."""
    return [f"The head {ANSWERS_SLOWLY}: {seconds:.0f} s. Is its machine overloaded?"] if seconds else []


def parse_address(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of the address of a head; None if it is none, or has more."""
    if not (match := ADDRESS.fullmatch(text)):
        return None
    scheme, host, port = match.groups()
    number = int(port) if port else PORTS[scheme]
    return (scheme, host.strip("[]").lower(), number) if 0 < number < 65536 else None


def check_address(address: str, allowed: Collection[str] = ()) -> None:
    """Raise RayApiError unless an address may receive the cluster's token: a loopback, or one of the allowed hosts.

    The address of a job comes from files that jobs can write. Check it before any client with the token gets it.
    """
    if not (parsed := parse_address(address)):
        raise RayApiError(f"{address!r} is not the address of a head, such as http://127.0.0.1:8265")
    if not is_loopback(parsed[1]) and parsed[1] not in allowed:
        raise RayApiError(
            f"{address} would receive the cluster's token, and is neither a loopback address nor the head's address in "
            "the inventory; set ray.address to http://127.0.0.1:<port>, as the head itself sees it"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def remove_proxies(environ: MutableMapping[str, str]) -> None:
    """Remove the proxies from an environment, for a client that uses them also for a loopback, as that of Ray does.

    A proxy would receive the cluster's token, and cannot reach the loopback of this machine.
    """
    for name in [name for name in environ if name.lower().endswith("_proxy")]:
        del environ[name]


def allow_host(address: str) -> None:
    """Let this process, and those that it starts, send the token to an address of the inventory, besides loopback."""
    parsed = parse_address(address)
    os.environ[ALLOWED_HOST] = parsed[1] if parsed else ""


def job_client(address: str) -> Any:
    """Ray's own client of the Jobs API, with the token, for an address that may have it."""
    check_address(address, [os.environ.get(ALLOWED_HOST, "")])
    remove_proxies(os.environ)
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(address)


def local_head(address: str, patience: float = SECOND_ATTEMPT_TIMEOUT_SECONDS) -> RayHead:
    """A head with the token of this node."""
    return RayHead(address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""), patience=patience)


def limit_reached() -> str:
    """A limit of this node that the kernel has enforced, so that its head may not answer, or ""."""
    times = failed_forks()
    return f"; this node reached its limit of processes {times} times" if times else ""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because another address would receive the cluster's token."""

    def redirect_request(self, *_request: Any) -> None:
        return None


class RayHead:
    """The API of a head at an address such as ``http://127.0.0.1:8265``.

    The token goes to this address only, which has to be a loopback or one of the allowed hosts: no redirect is
    followed, and no proxy is used.

    timeout: for the connection, and for each part of the answer, in seconds.
    patience: the timeout of a second attempt, if the head accepted the connection. A head under load is not down.
    """

    def __init__(self, address: str, token_path: str = "", timeout: float = 5.0, patience: float = 0.0) -> None:
        self.address = address.rstrip("/")
        self.token_path = token_path
        self.timeout = timeout
        self.patience = patience
        # The longest wait for the answer of a second attempt, in seconds; 0 without one.
        self.slow = 0.0
        self.allowed = tuple(filter(None, [os.environ.get(ALLOWED_HOST)]))

    def get(self, path: str) -> Any:
        began = time.monotonic()
        try:
            return self._get(path, self.timeout)
        except HeadTimeoutError:
            if not self.patience:
                raise
        try:
            answer = self._get(path, self.patience)
        except HeadTimeoutError as error:
            problem = f"no answer within {self.patience:g} s, although it accepts connections"
            raise HeadTimeoutError(f"{self.address}{path} {ANSWERS_SLOWLY}: {problem}") from error
        self.slow = max(self.slow, time.monotonic() - began)
        return answer

    def _get(self, path: str, timeout: float) -> Any:
        url = f"{self.address}{path}"
        check_address(self.address, self.allowed)
        request = urllib.request.Request(url, headers=self._headers())  # noqa: S310 - it is an address of HTTP
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), NoRedirects)
        try:
            with opener.open(request, timeout=timeout) as answer:
                content = answer.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise RayApiError(f"{url} answered with more than {MAX_ANSWER_BYTES // MIB} MiB")
            return json.loads(content)
        except urllib.error.HTTPError as error:
            error.close()
            raise RayApiError(f"{url} answered HTTP {error.code}{hint(error.code)}", error.code) from error
        except urllib.error.URLError as error:
            raise RayApiError(f"{url} does not answer: {error.reason}{limit_reached()}") from error
        except TimeoutError as error:
            raise HeadTimeoutError(f"{url} does not answer: {error}") from error
        except RecursionError as error:
            raise RayApiError(f"{url} does not answer: its JSON is nested too deeply") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise RayApiError(f"{url} does not answer: {error}") from error

    def _headers(self) -> dict[str, str]:
        if not self.token_path:
            return {}
        try:
            token = Path(self.token_path).read_bytes().decode("ascii", "replace").strip()
        except OSError as error:
            raise RayApiError(
                f"the token file {self.token_path} cannot be read ({error.strerror}); cluster_up.yml creates it"
            ) from error
        if not TOKEN.fullmatch(token):
            # Not sent: the message of a malformed header would show it.
            raise RayApiError(f"the token file {self.token_path} has no token; run cluster_up.yml -e rotate_token=true")
        return {"Authorization": f"Bearer {token}"}

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that the head knows, including dead ones; `draining` is in those that get no new work."""
        # This path is up to 2 s more recent than /nodes?view=summary.
        path = "/api/v0/nodes?detail=1&limit=10000"
        answer = self.get(path)
        try:
            nodes = answer["data"]["result"]["result"]
        except (KeyError, TypeError) as error:
            message = answer.get("msg") if isinstance(answer, dict) else None
            raise RayApiError(f"{self.address}{path} answered without nodes: {message or answer}") from error
        schema = {"node_name": str, "state": str, "resources_total": dict}
        without_work = draining_nodes(registry_path())
        records = _records(f"{self.address}{path}", nodes, schema)
        return [{**node, "draining": True} if node.get("node_id") in without_work else node for node in records]

    def capacity(self, since: float | None = None) -> list[WorkerCapacity]:
        """The alive workers and their free resources, as counted at or after `since`; by default, now."""
        since = since or time.time()
        for attempt in range(MAX_USAGE_ATTEMPTS):
            answer = self.get("/api/cluster_status")
            # The monitor counts every few seconds: resources that were free before may be in use since. A head that has
            # just started has not counted at all.
            with contextlib.suppress(KeyError, TypeError, AttributeError, IndexError):
                status = answer["data"]["clusterStatus"]
                nodes = self.nodes() if status["time"] >= since else []
                # Ray notices within this time that a node has died.
                if nodes and (attempt == MAX_USAGE_ATTEMPTS - 1 or not duplicate_names(nodes)):
                    return free_workers(nodes, status["loadMetricsReport"]["usageByNode"])
            time.sleep(USAGE_RETRY_INTERVAL_SECONDS)
        raise RayApiError(f"{self.address}/api/cluster_status does not report what is in use: {answer}")

    def jobs(self) -> list[dict[str, Any]]:
        """The submitted jobs; Ray also lists bare drivers, which have no submission id."""
        path = "/api/jobs/"
        jobs = _records(f"{self.address}{path}", self.get(path), {"status": str})
        return [job for job in jobs if isinstance(job.get("submission_id"), str)]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """One job, or None if the head does not know it, or no longer."""
        path = f"/api/jobs/{submission_id}"
        try:
            answer = self.get(path)
        except RayApiError as error:
            if error.status == 404:
                return None
            raise
        return _records(f"{self.address}{path}", [answer], {"status": str})[0]


def hint(status: int) -> str:
    """The meaning of an HTTP status, where people would not guess it."""
    if status in (401, 403):
        return (
            " (the token does not match this cluster; after an interrupted rotation, run cluster_up.yml "
            "-e rotate_token=true -e allow_disruption=true)"
        )
    is_redirect = 300 <= status < 400
    return (
        " (a redirect, which is not followed: another address would receive the cluster's token)" if is_redirect else ""
    )


def _records(url: str, answer: Any, schema: Mapping[str, type]) -> list[dict[str, Any]]:
    """The records of an answer; raises RayApiError unless each has the fields of the schema."""
    records = answer if isinstance(answer, list) else [answer]
    for record in records:
        if not isinstance(record, dict) or not all(isinstance(record.get(name), kind) for name, kind in schema.items()):
            shown = json.dumps(record)[:200]
            raise RayApiError(f"{url} answered without {', '.join(schema)}: {shown}")
    return records


def names_of(nodes: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The names of nodes by their ids, and by their addresses, except for an address that several of them have."""
    by_address: dict[str, set[str]] = {}
    for node in nodes:
        by_address.setdefault(str(node.get("node_ip") or ""), set()).add(node["node_name"])
    unique = {address: names.copy().pop() for address, names in by_address.items() if address and len(names) == 1}
    return unique | {node["node_id"]: node["node_name"] for node in nodes}


def with_names(text: str, nodes: Mapping[str, str]) -> str:
    """A message of Ray's with the names of nodes; `nodes` are the names by what Ray calls them, as of names_of."""
    return NODE_ID.sub(lambda match: nodes.get(match[0], match[0]), text)


@dataclass(frozen=True)
class JobRecord:
    """Ray's record of a job, which is one attempt of a job of this collection."""

    status: str
    # Ray's own id of the driver; "" until it has started.
    job_id: str = ""
    driver_node_id: str = ""
    # Set once the driver has connected to Ray.
    driver_node_ip: str = ""
    message: str = ""
    driver_exit_code: int | None = None
    submission_id: str = ""
    # In seconds since the epoch.
    started_at: float = 0.0

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
    """The names of nodes that came back after they had died, which Ray has not noticed: it lists both as alive.

    Ray would start a job's processes on the dead one, too.
    """
    alive = Counter(node["node_name"] for node in nodes if node["state"] == ALIVE)
    return {name for name, count in alive.items() if count > 1}


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

    Those without new work do not count. For a while Ray reports a node and its replacement as alive: the one that
    started last counts.
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
