from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher import ray_api
from ansible_collections.argus.verl.plugins.module_utils.launcher.ray_api import (
    RayApiError,
    RayHead,
    WorkerCapacity,
    capacity_problem,
    free_workers,
)

TOKEN = "4be7"


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


@pytest.fixture
def server() -> Iterator[FakeHead]:
    with FakeHead() as fake:
        thread = threading.Thread(target=fake.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        fake.shutdown()
        thread.join()


@pytest.fixture
def token_path(tmp_path: Path) -> str:
    path = tmp_path / "auth_token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


@pytest.fixture
def head(server: FakeHead, token_path: str) -> RayHead:
    return RayHead(f"{server.address}/", token_path)


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def node(name: str, state: str = "ALIVE", is_head: bool = False, **resources: float) -> dict[str, Any]:
    total = {"memory": 1e9, "node:10.0.0.1": 1.0, **resources}
    return {"node_name": name, "state": state, "is_head_node": is_head, "resources_total": total}


HEAD = node("ray-head", is_head=True)
WORKER = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)


# --- HTTP -------------------------------------------------------------------------------------------------------------


def test_nodes(server: FakeHead, head: RayHead) -> None:
    server.set_nodes(HEAD, WORKER)
    assert head.nodes() == [HEAD, WORKER]
    assert server.asked == ["/api/v0/nodes?detail=1&limit=10000"]


def test_drivers_without_a_submission_are_dropped(server: FakeHead, head: RayHead) -> None:
    job = {"type": "SUBMISSION", "submission_id": "grpo-1", "status": "RUNNING"}
    server.answers["/api/jobs/"] = [
        {"type": "DRIVER", "submission_id": None, "status": "RUNNING"},
        job,
        {"type": "DRIVER", "status": "SUCCEEDED"},
    ]
    assert head.jobs() == [job]


def test_one_job(server: FakeHead, head: RayHead) -> None:
    server.answers["/api/jobs/grpo-1"] = {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-1") == {"submission_id": "grpo-1", "status": "PENDING"}
    assert head.job("grpo-2") is None


def test_another_error_of_one_job_is_an_error(server: FakeHead, tmp_path: Path) -> None:
    with pytest.raises(RayApiError) as error:
        RayHead(server.address).job("grpo-1")
    assert error.value.status == 401


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("other", 403)])
def test_without_the_right_token(server: FakeHead, tmp_path: Path, token: str | None, status: int) -> None:
    path = tmp_path / "token"
    if token:
        path.write_text(token)
    with pytest.raises(RayApiError) as error:
        RayHead(server.address, str(path) if token else "").jobs()
    assert str(error.value) == (
        f"{server.address}/api/jobs/ answered HTTP {status} (the token does not match this cluster)"
    )
    assert error.value.status == status
    assert TOKEN not in str(error.value)


def test_without_the_file_of_the_token(server: FakeHead, tmp_path: Path) -> None:
    with pytest.raises(RayApiError) as error:
        RayHead(server.address, str(tmp_path / "none")).nodes()
    assert str(error.value) == (
        f"the token file {tmp_path}/none cannot be read (No such file or directory); cluster_up.yml creates it"
    )
    assert server.asked == []


def test_a_closed_port(closed_port: int) -> None:
    with pytest.raises(RayApiError) as error:
        RayHead(f"http://127.0.0.1:{closed_port}").nodes()
    assert str(error.value).startswith(f"http://127.0.0.1:{closed_port}/api/v0/nodes?detail=1&limit=10000 does not")
    assert "Connection refused" in str(error.value)
    assert error.value.status is None


def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        started = time.monotonic()
        with pytest.raises(RayApiError, match="does not answer: timed out"):
            RayHead(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout=0.2).nodes()
        assert time.monotonic() - started < 2


def test_an_answer_that_is_not_json(server: FakeHead, head: RayHead) -> None:
    server.answers["/api/jobs/"] = b"<html>some other service</html>"
    with pytest.raises(RayApiError, match="/api/jobs/ does not answer: Expecting value"):
        head.jobs()


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"result": False, "msg": "GCS is starting", "data": None}, "GCS is starting"),
        ({"data": {"result": {}}}, "{'data': {'result': {}}}"),
        ([], "[]"),
    ],
)
def test_an_answer_without_nodes(server: FakeHead, head: RayHead, answer: Any, shown: str) -> None:
    server.answers["/api/v0/nodes"] = answer
    with pytest.raises(RayApiError) as error:
        head.nodes()
    assert str(error.value).endswith(f"answered without nodes: {shown}")


def test_a_proxy_of_the_environment_is_not_used(
    server: FakeHead, head: RayHead, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy cannot reach the head's loopback interface, and would receive the token."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port}")
    monkeypatch.delenv("no_proxy", raising=False)
    server.set_nodes(HEAD)
    assert head.nodes() == [HEAD]


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


@pytest.mark.parametrize("order", [1, -1])
def test_a_worker_that_was_replaced_is_the_one_that_started_last(order: int) -> None:
    both = [
        started("worker-0", "old", 1000, CPU=4.0, worker_node=1.0),
        started("worker-0", "new", 2000, CPU=4.0, worker_node=1.0),
    ]
    (found,) = free_workers(both[::order], {"old": {"CPU": [4.0, 4.0]}})
    assert (found.node_id, found.free_cpus) == ("new", 4.0)


def test_the_free_workers_of_a_head(server: FakeHead, head: RayHead) -> None:
    server.set_nodes({**HEAD, "node_id": "h"}, {**WORKER, "node_id": "a"})
    report = {"usageByNode": {"a": {"CPU": [8.0, 48.0]}}}
    server.answers["/api/cluster_status"] = {"data": {"clusterStatus": {"time": 100.0, "loadMetricsReport": report}}}
    assert [(worker.name, worker.free_cpus) for worker in head.capacity(since=99.0)] == [("worker-0", 40.0)]


@pytest.mark.parametrize("status", [None, {"time": 100.0, "loadMetricsReport": {"usageByNode": {}}}])
def test_a_head_that_has_not_counted_since(
    status: dict[str, Any] | None, server: FakeHead, head: RayHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_api, "USAGE_SECONDS", 0.0)
    server.set_nodes({**HEAD, "node_id": "h"}, {**WORKER, "node_id": "a"})
    server.answers["/api/cluster_status"] = {"data": {"clusterStatus": status}}
    with pytest.raises(RayApiError, match="does not report what is in use"):
        head.capacity(since=101.0)


def free(*workers: tuple[float, float]) -> list[WorkerCapacity]:
    """By the GPUs and CPUs that are free on each."""
    return [WorkerCapacity(f"worker-{n}", f"n{n}", 8, 48, gpus, cpus) for n, (gpus, cpus) in enumerate(workers)]


DRIVER = "the driver's 1 CPUs are not free beside the job on each worker that the job needs"


@pytest.mark.parametrize(
    ("workers", "asked", "answer"),
    [
        # (nnodes, GPUs and CPUs on each, CPUs of the driver)
        ([(4, 13)], (1, 4, 12, 1), ""),
        ([(4, 13), (4, 13)], (2, 4, 12, 1), ""),
        ([(4, 12), (3, 48)], (1, 4, 12, 1), ""),
        # The driver needs no GPU, only CPUs that the job does not.
        ([(4, 12), (0, 0.5)], (1, 4, 12, 1), DRIVER),
        ([(4, 12), (0, 1)], (1, 4, 12, 1), ""),
        ([(4, 12), (0, 0)], (1, 4, 12, 0), ""),
        ([(4, 12)], (1, 4, 12, 1), DRIVER),
        ([(4, 12.5)], (1, 4, 12, 0.5), ""),
        ([(4, 12), (4, 12)], (2, 4, 12, 1), DRIVER),
        # Ray may put the driver on either of them.
        ([(4, 12), (4, 13)], (2, 4, 12, 1), DRIVER),
        # A worker that could take the job, and that it does not need.
        ([(4, 12), (4, 12)], (1, 4, 12, 1), ""),
        (
            [(4, 12), (3, 48)],
            (2, 4, 12, 1),
            "the job needs 2 workers with 4 GPUs and 12 CPUs free; available: 1 "
            "(worker-0: 4 GPU, 12 CPU, worker-1: 3 GPU, 48 CPU)",
        ),
        (
            [(4, 11.5)],
            (1, 4, 12, 1),
            "the job needs 1 worker with 4 GPUs and 12 CPUs free; available: 0 (worker-0: 4 GPU, 11.5 CPU)",
        ),
        (
            [],
            (1, 4, 12, 1),
            "the job needs 1 worker with 4 GPUs and 12 CPUs free; available: 0 (no worker is alive)",
        ),
    ],
)
def test_whether_a_job_has_capacity(
    workers: list[tuple[float, float]], asked: tuple[int, float, float, float], answer: str
) -> None:
    assert capacity_problem(free(*workers), *asked) == answer
