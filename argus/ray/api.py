# SPDX-License-Identifier: Apache-2.0
"""A client of a Ray head's HTTP API for nodes and jobs, with the standard library only.

Ray's SDK takes 0.7 s to import, and needs Ray to be installed. This client is quick enough to ask which nodes are
alive ten times a second while a cluster starts, and it sends the cluster's token to allowed addresses only.
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
from collections.abc import Collection, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from ..io.control_group import failed_forks
from .admission import registry_path
from .departures import draining_nodes
from .records import WorkerCapacity, duplicate_names, free_workers

# The timeout of a second attempt to reach a head that accepted the connection and did not answer.
SECOND_ATTEMPT_TIMEOUT_SECONDS = 20.0
ANSWERS_SLOWLY = "answers slowly"
# The attempts to get a count of the resources in use that is recent enough, and the pause between them.
MAX_USAGE_ATTEMPTS, USAGE_RETRY_INTERVAL_SECONDS = 80, 0.2
MIB = 1 << 20
MAX_ANSWER_BYTES = 64 * MIB
# An address has scheme, host and port and nothing else, which programs would read in different ways.
ADDRESS = re.compile(r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?/?")
DEFAULT_PORTS = {"http": 80, "https": 443}
# The variable with a host that may receive the token besides loopback. It comes from the inventory, never from a file
# that jobs can write.
ALLOWED_HOST_VARIABLE = "ARGUS_VERL_HEAD_HOST"
# What the token file may have: anything else would be shown by the message of a malformed header.
TOKEN = re.compile(r"[\x21-\x7e]+")


class RayApiError(Exception):
    """The head did not answer, or not as expected. status: the HTTP status, None without an answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class HeadTimeoutError(RayApiError):
    """The head accepted the connection and did not answer in time: it is slow, or stopped."""


def slowness_lines(seconds: float) -> list[str]:
    """A line for people about a head that needed a second attempt; none if it did not. seconds: as `slow_seconds`."""
    return [f"The head {ANSWERS_SLOWLY}: {seconds:.0f} s. Is its machine overloaded?"] if seconds else []


def parse_address(text: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of the address of a head; None if the text is not such an address, or has more parts."""
    if not (match := ADDRESS.fullmatch(text)):
        return None
    scheme, host, port = match.groups()
    number = int(port) if port else DEFAULT_PORTS[scheme]
    return (scheme, host.strip("[]").lower(), number) if 0 < number < 65536 else None


def check_address(address: str, allowed: Collection[str] = ()) -> None:
    """Raise RayApiError unless an address may receive the cluster's token: a loopback, or one of the allowed hosts.

    The address of a job comes from files that jobs can write: check it before a client with the token gets it.
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
    """Remove the proxies from an environment: Ray's client would use them even for a loopback address.

    A proxy would receive the cluster's token, and cannot reach the loopback of this machine.
    """
    for name in [name for name in environ if name.lower().endswith("_proxy")]:
        del environ[name]


def allow_host(address: str) -> None:
    """Let this process and its children send the token to an address of the inventory, besides loopback."""
    parsed = parse_address(address)
    os.environ[ALLOWED_HOST_VARIABLE] = parsed[1] if parsed else ""


def job_client(address: str) -> Any:
    """Ray's own client of the Jobs API, with the token, for an address that may have it."""
    check_address(address, [os.environ.get(ALLOWED_HOST_VARIABLE, "")])
    remove_proxies(os.environ)
    from ray.job_submission import JobSubmissionClient

    return JobSubmissionClient(address)


def local_head(address: str, patience: float = SECOND_ATTEMPT_TIMEOUT_SECONDS) -> RayHead:
    """A head with the token of this node."""
    return RayHead(address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""), patience=patience)


def process_limit_text() -> str:
    """A text if this node reached its limit of processes, which may be why its head does not answer, or ""."""
    times = failed_forks()
    return f"; this node reached its limit of processes {times} times" if times else ""


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because another address would receive the cluster's token."""

    def redirect_request(self, *_request: Any) -> None:
        return None


class RayHead:
    """The API of a head at an address such as ``http://127.0.0.1:8265``.

    The token goes to this address only, which has to be a loopback or an allowed host: no redirect is followed, and no
    proxy is used. All methods raise RayApiError.

    timeout: for the connection, and for each part of the answer, in seconds.
    patience: the timeout of a second attempt, if the head accepted the connection: it may be under load; 0 for none.
    """

    def __init__(self, address: str, token_path: str = "", timeout: float = 5.0, patience: float = 0.0) -> None:
        self.address = address.rstrip("/")
        self.token_path = token_path
        self.timeout = timeout
        self.patience = patience
        # The longest wait for the answer of a second attempt, in seconds; 0 without one.
        self.slow_seconds = 0.0
        self.allowed = tuple(filter(None, [os.environ.get(ALLOWED_HOST_VARIABLE)]))

    def get(self, path: str) -> Any:
        """The JSON that the head answers, after a second attempt if need be."""
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
        self.slow_seconds = max(self.slow_seconds, time.monotonic() - began)
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
            raise RayApiError(f"{url} answered HTTP {error.code}{http_status_hint(error.code)}", error.code) from error
        except urllib.error.URLError as error:
            raise RayApiError(f"{url} does not answer: {error.reason}{process_limit_text()}") from error
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
            raise RayApiError(f"the token file {self.token_path} has no token; run cluster_up.yml -e rotate_token=true")
        return {"Authorization": f"Bearer {token}"}

    def nodes(self) -> list[dict[str, Any]]:
        """All nodes that the head lists, including dead ones. Those that get no new work have `draining`."""
        # The state API is up to 2 s more recent than /nodes?view=summary.
        path = "/api/v0/nodes?detail=1&limit=10000"
        answer = self.get(path)
        try:
            nodes = answer["data"]["result"]["result"]
        except (KeyError, TypeError) as error:
            message = answer.get("msg") if isinstance(answer, dict) else None
            raise RayApiError(f"{self.address}{path} answered without nodes: {message or answer}") from error
        schema = {"node_name": str, "state": str, "resources_total": dict}
        without_work = draining_nodes(registry_path())
        records = _checked_records(f"{self.address}{path}", nodes, schema)
        return [{**node, "draining": True} if node.get("node_id") in without_work else node for node in records]

    def capacity(self, since: float | None = None) -> list[WorkerCapacity]:
        """The alive workers and their free resources, as counted at or after `since`; by default, now."""
        since = since or time.time()
        for attempt in range(MAX_USAGE_ATTEMPTS):
            answer = self.get("/api/cluster_status")
            # Ray's monitor counts every few seconds: what was free at an earlier count may be in use since. A head that
            # has just started has not counted at all.
            with contextlib.suppress(KeyError, TypeError, AttributeError, IndexError):
                status = answer["data"]["clusterStatus"]
                nodes = self.nodes() if status["time"] >= since else []
                # While a node and its replacement both count as alive, wait until Ray notices that one has died.
                if nodes and (attempt == MAX_USAGE_ATTEMPTS - 1 or not duplicate_names(nodes)):
                    return free_workers(nodes, status["loadMetricsReport"]["usageByNode"])
            time.sleep(USAGE_RETRY_INTERVAL_SECONDS)
        raise RayApiError(f"{self.address}/api/cluster_status does not report what is in use: {answer}")

    def jobs(self) -> list[dict[str, Any]]:
        """Ray's records of submitted jobs, without bare drivers, which have no submission id."""
        path = "/api/jobs/"
        jobs = _checked_records(f"{self.address}{path}", self.get(path), {"status": str})
        return [job for job in jobs if isinstance(job.get("submission_id"), str)]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        """Ray's record of a job; None if the head does not know it, or no longer."""
        path = f"/api/jobs/{submission_id}"
        try:
            answer = self.get(path)
        except RayApiError as error:
            if error.status == 404:
                return None
            raise
        return _checked_records(f"{self.address}{path}", [answer], {"status": str})[0]


def http_status_hint(status: int) -> str:
    """What people have to know about an HTTP status, or ""."""
    if status in (401, 403):
        return (
            " (the token does not match this cluster; after an interrupted rotation, run cluster_up.yml "
            "-e rotate_token=true -e allow_disruption=true)"
        )
    is_redirect = 300 <= status < 400
    return (
        " (a redirect, which is not followed: another address would receive the cluster's token)" if is_redirect else ""
    )


def _checked_records(url: str, answer: Any, schema: Mapping[str, type]) -> list[dict[str, Any]]:
    """The records of an answer. Raises RayApiError unless each has the fields of the schema."""
    records = answer if isinstance(answer, list) else [answer]
    for record in records:
        if not isinstance(record, dict) or not all(isinstance(record.get(name), kind) for name, kind in schema.items()):
            shown = json.dumps(record)[:200]
            raise RayApiError(f"{url} answered without {', '.join(schema)}: {shown}")
    return records
