from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from argus.ray import api
from argus.ray.api import (
    RayApiError,
    RayHead,
    WorkerCapacity,
    free_workers,
    names_of,
    with_names,
)

TOKEN = "4be7"
SERVER = TypeVar("SERVER", bound=ThreadingHTTPServer)


class FakeHead(ThreadingHTTPServer):
    """Answers as a head with tokens does: real HTTP, canned JSON."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def set_nodes(self, *nodes: dict[str, Any]) -> None:
        self.answers["/api/v0/nodes"] = {"result": True, "msg": "", "data": {"result": {"result": list(nodes)}}}


class Handler(BaseHTTPRequestHandler):
    server: FakeHead

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        given = self.headers.get("Authorization")
        answer = self.server.answers.get(self.path.partition("?")[0])
        if given != f"Bearer {TOKEN}":
            status, body = (403 if given else 401), b"Unauthorized"
        elif answer is None:
            status, body = 404, b"not found"
        else:
            status, body = 200, answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def serving(server: SERVER) -> Iterator[SERVER]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def server() -> Iterator[FakeHead]:
    with serving(FakeHead()) as fake:
        yield fake


@pytest.fixture
def token_path(tmp_path: Path) -> str:
    path = tmp_path / "auth_token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


@pytest.fixture
def head(server: FakeHead, token_path: str) -> RayHead:
    return RayHead(f"{server.address}/", token_path)


def node(name: str, state: str = "ALIVE", is_head: bool = False, **resources: float) -> dict[str, Any]:
    total = {"memory": 1e9, "node:10.0.0.1": 1.0, **resources}
    return {"node_name": name, "state": state, "is_head_node": is_head, "resources_total": total}


HEAD = node("ray-head", is_head=True)
WORKER = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_one_job(server: FakeHead, head: RayHead) -> None:
    server.answers["/api/jobs/grpo-1"] = {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-1") == {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-2") is None


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("other", 403)])
def test_without_the_right_token(server: FakeHead, tmp_path: Path, token: str | None, status: int) -> None:
    path = tmp_path / "token"
    if token:
        path.write_text(token)
    with pytest.raises(RayApiError) as error:
        RayHead(server.address, str(path) if token else "").jobs()
    assert error.value.status == status
    assert TOKEN not in str(error.value)


def test_without_the_file_of_the_token(server: FakeHead, tmp_path: Path) -> None:
    with pytest.raises(RayApiError):
        RayHead(server.address, str(tmp_path / "none")).nodes()
    assert server.asked == []


class SlowHead:
    """Accepts connections, and answers them from the given one on."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.asked = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.open: list[socket.socket] = []
        threading.Thread(target=self.serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _address = self.listener.accept()
                self.open.append(connection)
                self.asked += 1
                if self.asked > self.silent:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")

    def close(self) -> None:
        for connection in [self.listener, *self.open]:
            connection.close()


@pytest.fixture
def slow_head() -> Iterator[SlowHead]:
    slow = SlowHead(silent=1)
    yield slow
    slow.close()


def test_a_head_that_answers_slowly_is_asked_again(slow_head: SlowHead) -> None:
    head = RayHead(slow_head.address, timeout=0.2, patience=30)
    assert (head.jobs(), slow_head.asked) == ([], 2)
    assert 0.2 <= head.slow < 30
    # The longest wait is kept.
    slow, slow_head.silent = head.slow, 0
    assert (head.jobs(), head.slow, slow_head.asked) == ([], slow, 3)


def test_a_head_is_asked_again_only_on_request(slow_head: SlowHead) -> None:
    head = RayHead(slow_head.address, timeout=0.2)
    with pytest.raises(api.HeadTimeoutError, match="does not answer: timed out"):
        head.jobs()
    assert (slow_head.asked, head.slow) == (1, 0)


def test_a_head_that_is_too_slow_is_not_down(slow_head: SlowHead) -> None:
    slow_head.silent = 2
    head = RayHead(slow_head.address, timeout=0.1, patience=0.3)
    with pytest.raises(api.HeadTimeoutError, match=api.ANSWERS_SLOWLY):
        head.jobs()
    assert (slow_head.asked, head.slow) == (2, 0)


@pytest.mark.parametrize("answer", [b"<html>some other service</html>", b"[" * 100_000], ids=["HTML", "deep"])
def test_an_answer_that_is_not_json(server: FakeHead, head: RayHead, answer: bytes) -> None:
    server.answers["/api/jobs/"] = answer
    with pytest.raises(RayApiError, match="/api/jobs/ does not answer"):
        head.jobs()


@pytest.mark.parametrize(
    "answer", [{"result": False, "msg": "GCS is starting", "data": None}, {"data": {"result": {}}}, "text", []]
)
def test_an_answer_without_nodes(server: FakeHead, head: RayHead, answer: Any) -> None:
    server.answers["/api/v0/nodes"] = answer
    with pytest.raises(RayApiError):
        head.nodes()


@pytest.mark.parametrize("node", [None, "x", {"node_name": 1}, {**HEAD, "resources_total": []}], ids=str)
def test_a_node_that_is_malformed(server: FakeHead, head: RayHead, node: Any) -> None:
    server.set_nodes(HEAD, node)
    with pytest.raises(RayApiError, match="answered without node_name, state, resources_total: "):
        head.nodes()


def test_an_answer_without_end(server: FakeHead, head: RayHead, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_BYTES", api.MIB)
    server.answers["/api/jobs/"] = b" " * api.MIB + b"[]"
    with pytest.raises(RayApiError, match="/api/jobs/ answered with more than 1 MiB"):
        head.jobs()


class Witness(ThreadingHTTPServer):
    """Records everything that it is sent; answers with a redirect if it has somewhere to lead to."""

    def __init__(self, leads_to: str = "", status: int = 302) -> None:
        super().__init__(("127.0.0.1", 0), Recorder)
        self.leads_to, self.status = leads_to, status
        self.seen: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Recorder(BaseHTTPRequestHandler):
    server: Witness

    def answer(self) -> None:
        self.server.seen.append(f"{self.requestline}\n{self.headers}")
        self.send_response(self.server.status if self.server.leads_to else 200)
        if self.server.leads_to:
            self.send_header("Location", self.server.leads_to)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"[]")

    do_GET = do_CONNECT = answer  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(token_path: str, status: int) -> None:
    with serving(Witness()) as other, serving(Witness(f"{other.address}/steal", status)) as server:
        with pytest.raises(RayApiError) as error:
            RayHead(server.address, token_path).jobs()
        assert error.value.status == status
        assert len(server.seen) == 1
        assert other.seen == []


PROXIES = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Witness]:
    """A proxy that every variable of the environment names."""
    with serving(Witness()) as witness:
        for name in PROXIES:
            monkeypatch.setenv(name, witness.address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield witness


def test_a_proxy_of_the_environment_is_not_used(server: FakeHead, head: RayHead, proxy: Witness) -> None:
    """A proxy cannot reach the head's loopback interface, and would receive the token."""
    server.set_nodes(HEAD)
    assert head.nodes() == [HEAD]
    assert proxy.seen == []


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.1:8265",
        "https://head.example.org",
        "http://127.0.0.1.example.org:8265",
        "http://2130706433:8265",
        "http://169.254.169.254",
        # What is no address of a head.
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


def test_a_token_of_a_head_without_tls_is_not_sent_over_tls(server: FakeHead, token_path: str) -> None:
    address = server.address.replace("http", "https")
    with pytest.raises(RayApiError, match="does not answer: "):
        RayHead(address, token_path, timeout=2).jobs()
    assert server.asked == []


@pytest.mark.parametrize("content", [b"", b"\n", b"two tokens", b"line\nline", b"\xff\xfe", b"4be7\r\nX-Header: 1"])
def test_a_token_that_is_none_is_neither_sent_nor_shown(server: FakeHead, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(RayApiError):
        RayHead(server.address, str(tmp_path / "token")).jobs()
    assert server.asked == []


# --- Room for a job ---------------------------------------------------------------------------------------------------


def started(name: str, node_id: str, start_time_ms: int = 0, **resources: float) -> dict[str, Any]:
    return {**node(name, **resources), "node_id": node_id, "start_time_ms": start_time_ms}


def test_free_resources_of_workers() -> None:
    nodes = [
        {**HEAD, "node_id": "h"},
        started("worker-0", "a", CPU=48.0, GPU=4.0, worker_node=100.0),
        # Nothing is in use there: Ray does not list it then.
        started("worker-1", "b", CPU=24.0, worker_node=100.0),
        {**started("worker-2", "c", CPU=1.0, worker_node=100.0), "state": "DEAD"},
    ]
    usage = {"a": {"CPU": [13.5, 48.0], "GPU": [1.0, 4.0]}, "h": {}}
    assert free_workers(nodes, usage) == [
        WorkerCapacity("worker-0", "a", gpus=4.0, cpus=48.0, free_gpus=3.0, free_cpus=34.5),
        WorkerCapacity("worker-1", "b", gpus=0, cpus=24.0, free_gpus=0, free_cpus=24.0),
    ]


@pytest.mark.parametrize("status", [None, {"time": 100.0, "loadMetricsReport": {"usageByNode": {}}}])
def test_a_head_that_has_not_counted_since(
    status: dict[str, Any] | None, server: FakeHead, head: RayHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "USAGE_SECONDS", 0.0)
    server.set_nodes({**HEAD, "node_id": "h"}, {**WORKER, "node_id": "a"})
    server.answers["/api/cluster_status"] = {"data": {"clusterStatus": status}}
    with pytest.raises(RayApiError, match="does not report what is in use"):
        head.capacity(since=101.0)


@pytest.mark.parametrize("address", ["http://evil.example:8265", "http://user@127.0.0.1:8265", "ray://127.0.0.1"])
def test_rays_own_client_gets_no_foreign_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(RayApiError):
        api.job_client(address)


def test_rays_own_client_gets_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("ray.job_submission")
    module.JobSubmissionClient = lambda address: (address, os.environ.get("HTTP_PROXY"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    assert api.job_client("http://127.0.0.1:8265") == ("http://127.0.0.1:8265", None)


def test_names_of_nodes_by_their_ids_and_addresses() -> None:
    ids = ["a" * 56, "b" * 56, "c" * 56]
    places = [("head", "10.0.0.1"), ("worker-0", "10.0.0.2"), ("worker-1", "10.0.0.1")]
    nodes = [
        {"node_name": name, "node_id": node_id, "node_ip": address}
        for node_id, (name, address) in zip(ids, places, strict=True)
    ]
    names = names_of(nodes)
    assert with_names(f"{ids[1]} and 10.0.0.2 were lost", names) == "worker-0 and worker-0 were lost"
    # An address that two nodes have names none of them.
    assert with_names("node 10.0.0.1 of 10.0.0.22", names) == "node 10.0.0.1 of 10.0.0.22"
    # A node that came back has another id at the same address.
    again = [*nodes[1:2], {**nodes[1], "node_id": ids[2]}]
    assert with_names(f"10.0.0.2 {ids[2]} {ids[1]}", names_of(again)) == "worker-0 worker-0 worker-0"
