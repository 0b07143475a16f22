from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from argus.ray import api
from argus.ray.api import RayApiError, RayHead
from argus.ray.records import WorkerCapacity, free_workers, names_of, with_names

TOKEN = "4be7"


class FakeHead(ThreadingHTTPServer):
    """Answers as a head with tokens does: real HTTP, canned JSON."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Any] = {}
        self.requests: list[str] = []
        # The number of requests that it is too slow for.
        self.silent = 0
        # The status and the place of an answer that leads elsewhere.
        self.redirect: tuple[int, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def set_nodes(self, *nodes: dict[str, Any]) -> None:
        self.answers["/api/v0/nodes"] = {"result": True, "msg": "", "data": {"result": {"result": list(nodes)}}}


class Handler(BaseHTTPRequestHandler):
    server: FakeHead

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.server.silent >= len(self.server.requests):
            time.sleep(0.6)
            return
        authorization = self.headers.get("Authorization")
        answer = self.server.answers.get(self.path.partition("?")[0])
        if self.server.redirect:
            status, body = self.server.redirect[0], b"[]"
        elif authorization != f"Bearer {TOKEN}":
            status, body = (403 if authorization else 401), b"Unauthorized"
        elif answer is None:
            status, body = 404, b"not found"
        else:
            status, body = 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        if self.server.redirect:
            self.send_header("Location", self.server.redirect[1])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_CONNECT = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[FakeHead]:
    with FakeHead() as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server
        server.shutdown()


@pytest.fixture
def server() -> Iterator[FakeHead]:
    with serving() as fake:
        yield fake


@pytest.fixture
def token_path(tmp_path: Path) -> str:
    path = tmp_path / "auth_token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


@pytest.fixture
def head(server: FakeHead, token_path: str) -> RayHead:
    return RayHead(f"{server.address}/", token_path)


def node(name: str, is_head: bool = False, **resources: float) -> dict[str, Any]:
    return {"node_name": name, "state": "ALIVE", "is_head_node": is_head, "resources_total": resources}


HEAD = node("ray-head", is_head=True)
WORKER = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)


def test_one_job(server: FakeHead, head: RayHead) -> None:
    server.answers["/api/jobs/grpo-1"] = {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-1") == {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-2") is None
    server.answers["/api/jobs/"] = [
        {"submission_id": "grpo-1", "status": "PENDING"},
        {"submission_id": None, "status": "RUNNING"},
    ]
    assert [job["submission_id"] for job in head.jobs()] == ["grpo-1"]


def test_without_the_right_token(server: FakeHead, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("other")
    for path, status in (("", 401), (str(tmp_path / "token"), 403)):
        with pytest.raises(RayApiError) as error:
            RayHead(server.address, path).jobs()
        assert error.value.status == status


def test_a_head_that_answers_slowly_is_asked_again(server: FakeHead, token_path: str) -> None:
    server.answers["/api/jobs/"], server.silent = [], 1
    head = RayHead(server.address, token_path, timeout=0.2, patience=30)
    assert (head.jobs(), len(server.requests)) == ([], 2)
    assert 0.2 <= head.slow_seconds < 30
    # The longest wait is kept.
    slow = head.slow_seconds
    assert (head.jobs(), head.slow_seconds, len(server.requests)) == ([], slow, 3)


@pytest.mark.parametrize(("patience", "count"), [(0.3, 2), (0.0, 1)])
def test_a_head_that_is_too_slow_is_not_down(server: FakeHead, token_path: str, patience: float, count: int) -> None:
    """The client repeats a request only if it has patience."""
    server.silent = 2
    head = RayHead(server.address, token_path, timeout=0.1, patience=patience)
    with pytest.raises(api.HeadTimeoutError, match=api.ANSWERS_SLOWLY if patience else "does not answer: timed out"):
        head.jobs()
    assert (len(server.requests), head.slow_seconds) == (count, 0)


@pytest.mark.parametrize("answer", [b"<html>another service</html>", b"[" * 100_000, b" " * api.MIB + b"[]"], ids=len)
def test_an_answer_that_is_not_json(
    server: FakeHead, head: RayHead, answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "MAX_ANSWER_BYTES", api.MIB)
    server.answers["/api/jobs/"] = answer
    with pytest.raises(RayApiError, match=r"/api/jobs/ (does not answer|answered with more than 1 MiB)"):
        head.jobs()


@pytest.mark.parametrize("answer", [{"data": None}, {"data": {"result": {}}}, "text", {**HEAD, "resources_total": []}])
def test_an_answer_without_nodes(server: FakeHead, head: RayHead, answer: Any) -> None:
    server.answers["/api/v0/nodes"] = answer
    if "node_name" in answer:
        server.set_nodes(HEAD, answer)
    with pytest.raises(RayApiError):
        head.nodes()


@pytest.mark.parametrize("status", [301, 307])
def test_neither_a_redirect_nor_a_proxy_is_used(
    server: FakeHead, head: RayHead, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either would receive the token."""
    with serving() as other:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, other.address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        server.set_nodes(HEAD)
        assert head.nodes() == [HEAD]
        server.redirect = (status, f"{other.address}/steal")
        with pytest.raises(RayApiError) as error:
            head.jobs()
        assert (error.value.status, len(server.requests), other.requests) == (status, 2, [])


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.1:8265",
        "https://head.example.org",
        "http://127.0.0.1.example.org:8265",
        "http://2130706433:8265",
        # These are no addresses of a head.
        *("", "auto", "file:///etc/passwd", "http://user:secret@127.0.0.1:8265"),
        *("http://evil.example.org#@127.0.0.1", "http://127.0.0.1:8265/\r\nX-Header: 1"),
    ],
)
def test_a_foreign_host_never_receives_the_token(
    address: str, token_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "create_connection", lambda *_args, **_more: pytest.fail("it was connected"))
    with pytest.raises(RayApiError):
        RayHead(address, token_path).jobs()
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(RayApiError):
        api.job_client(address)


@pytest.mark.parametrize("content", [None, b"\n", b"two tokens", b"\xff\xfe", b"4be7\r\nX-Header: 1"])
def test_a_token_that_is_none_is_neither_sent_nor_shown(
    server: FakeHead, tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(RayApiError):
        RayHead(server.address, str(tmp_path / "token")).jobs()
    assert server.requests == []


def test_free_resources_of_workers() -> None:
    nodes = [
        {**HEAD, "node_id": "h"},
        {**WORKER, "node_id": "a"},
        # Nothing is in use there: Ray does not list it then.
        {**node("worker-1", CPU=24.0, worker_node=100.0), "node_id": "b"},
        {**WORKER, "node_id": "c", "state": "DEAD"},
        # One without new work has no room.
        {**WORKER, "node_id": "d", "draining": True},
    ]
    assert free_workers(nodes, {"a": {"CPU": [13.5, 48.0], "GPU": [1.0, 4.0]}, "h": {}}) == [
        WorkerCapacity("worker-0", "a", gpus=4.0, cpus=48.0, free_gpus=3.0, free_cpus=34.5),
        WorkerCapacity("worker-1", "b", gpus=0, cpus=24.0, free_gpus=0, free_cpus=24.0),
    ]


@pytest.mark.parametrize("status", [None, {"time": 100.0, "loadMetricsReport": {"usageByNode": {}}}])
def test_a_head_that_has_not_counted_since(
    status: dict[str, Any] | None, server: FakeHead, head: RayHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "USAGE_RETRY_INTERVAL_SECONDS", 0.0)
    server.set_nodes({**HEAD, "node_id": "h"}, {**WORKER, "node_id": "a"})
    server.answers["/api/cluster_status"] = {"data": {"clusterStatus": status}}
    with pytest.raises(RayApiError, match="does not report what is in use"):
        head.capacity(since=101.0)


def test_rays_own_client_gets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("ray.job_submission")
    module.JobSubmissionClient = lambda address: (address, os.environ.get("HTTP_PROXY"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    assert api.job_client("http://127.0.0.1:8265") == ("http://127.0.0.1:8265", None)


def test_names_of_nodes_by_their_ids_and_addresses() -> None:
    ids = ["a" * 56, "b" * 56, "c" * 56]
    places = zip(ids, ("head", "worker-0", "worker-1"), ("10.0.0.1", "10.0.0.2", "10.0.0.1"), strict=True)
    nodes = [{"node_id": node_id, "node_name": name, "node_ip": address} for node_id, name, address in places]
    names = names_of(nodes)
    assert with_names(f"{ids[1]} and 10.0.0.2 were lost", names) == "worker-0 and worker-0 were lost"
    # An address that two nodes have names none of them.
    assert with_names("node 10.0.0.1 of 10.0.0.22", names) == "node 10.0.0.1 of 10.0.0.22"
    # A node that came back has another id at the same address.
    again = [*nodes[1:2], {**nodes[1], "node_id": ids[2]}]
    assert with_names(f"10.0.0.2 {ids[2]} {ids[1]}", names_of(again)) == "worker-0 worker-0 worker-0"
