"""argus nodes, against a head that answers over HTTP."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from argus import cli
from argus.ray.admission import NO_STEWARD, steward_lock, steward_runs
from argus.verbs import nodes as verb_nodes

NODE = {"node_name": "ray-head", "node_id": "h", "state": "ALIVE", "is_head_node": True}
NODE |= {"resources_total": {"memory": 1.0}}
# For 4 of its 8 GPUs, running-1 has a placement group.
WORKER = {"node_name": "worker-0", "node_id": "w", "state": "ALIVE", "is_head_node": False}
WORKER |= {"resources_total": {"CPU": 16.0, "GPU": 8.0, "worker_node": 100.0}}
GROUP = {"state": "CREATED", "creator_job_id": "02000000", "bundles": [{"node_id": "w"}]}
USAGE = {"w": {"CPU": [1.0, 16.0], "GPU": [4.0, 8.0]}}


def listed(*entries: Any) -> dict[str, Any]:
    return {"data": {"result": {"result": entries}}}


ANSWERS: dict[str, Any] = {
    "/api/v0/nodes": listed(NODE),
    "/api/v0/actors": listed(),
    "/api/v0/placement_groups": listed(GROUP),
    "/api/cluster_status": {"data": {"clusterStatus": {"time": 9.0, "loadMetricsReport": {"usageByNode": USAGE}}}},
    "/api/jobs/": [
        {"submission_id": "running-1", "status": "RUNNING", "entrypoint": "x", "job_id": "02000000"},
        {"submission_id": "pending-1", "status": "PENDING"},
        *({"submission_id": "ended", "status": status} for status in ("SUCCEEDED", "FAILED", "STOPPED")),
    ],
}


class Handler(BaseHTTPRequestHandler):
    stranger = 401

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path.partition("?")[0]]).encode()
        self.send_response(200 if "Authorization" in self.headers else self.stranger)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """A head; its parameter is what a request without a token gets."""
    handler = type("Head", (Handler,), {"stranger": getattr(request, "param", 401)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


Run = Callable[..., dict[str, Any]]
HEAD = {"name": "ray-head", "head": True, "cpus": 0}


@pytest.fixture
def steward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[contextlib.ExitStack]:
    """Has the lock of the steward until it is closed."""
    monkeypatch.setattr(verb_nodes, "steward_runs", functools.partial(steward_runs, seconds=0))
    (tmp_path / "registry").mkdir()
    with contextlib.ExitStack() as stack:
        stack.enter_context(steward_lock(tmp_path / "registry"))
        yield stack


@pytest.fixture
def run(tmp_path: Path, ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, steward: contextlib.ExitStack) -> Run:
    """Runs the verb on the head, and returns its result."""
    (tmp_path / "token").write_text("secret")
    for name, value in {
        "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"),
        "ARGUS_VERL_REGISTRY": str(tmp_path / "registry"),
        "ARGUS_VERL_NODE": "ray-head",
        "ARGUS_VERL_CLUSTER": "mvp",
    }.items():
        monkeypatch.setenv(name, value)

    def run(address: str, *expected: dict[str, Any], **request: Any) -> dict[str, Any]:
        code, answer = ask("nodes", shared_root=str(tmp_path), address=address, expected=expected, **request)
        assert (code, answer["changed"], answer["findings"]) == (0, False, [])
        return dict(answer["result"])

    return run


def test_ready_cluster_and_its_active_jobs(address: str, run: Run) -> None:
    answer = run(address, HEAD)
    assert (answer["complete"], answer["missing"], answer["awaited"], answer["problem"]) == (True, [], [], "")
    assert answer["nodes"] == [{**NODE, "free": "", "jobs": []}]
    assert answer["jobs"] == [
        {"submission_id": "running-1", "status": "RUNNING"},
        {"submission_id": "pending-1", "status": "PENDING"},
    ]


@pytest.mark.parametrize("address", [200, 500], indirect=True)
def test_head_that_does_not_refuse_strangers_is_not_ready(address: str, run: Run) -> None:
    answer = run(address, HEAD)
    assert (answer["complete"], answer["missing"]) == (False, [])
    assert answer["problem"].startswith(f"{address} does not refuse requests without the cluster's token")
    # It can be removed all the same: who asks for jobs only, is not kept from going on.
    assert run(address)["problem"] == ""


def test_people_see_a_table(address: str, run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nodes", "--address", address]) == 0
    assert [line.split() for line in capfd.readouterr().out.splitlines()] == [
        ["NODE", "STATE", "RESOURCES", "FREE", "JOBS", "ADDRESS"],
        ["ray-head", "alive", "CPU", "0,", "GPU", "0", "-", "-", "-"],
    ]
    assert cli.main(["nodes", "--address", "http://127.0.0.1:1"]) == 1
    # Of a worker, which has no address of the head.
    assert cli.main(["nodes"]) == 1


def test_what_is_free_and_the_jobs_of_each_node(address: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "/api/v0/nodes", listed(NODE, WORKER))
    assert [(node["free"], node["jobs"]) for node in run(address)["nodes"]] == [
        ("", []),
        ("CPU 15, GPU 4", ["running-1"]),
    ]
    # While nodes are awaited, nobody asks.
    assert run(address, HEAD, wait_timeout=1)["nodes"] == [NODE, WORKER]


def test_a_head_without_a_steward_is_not_ready(address: str, run: Run, steward: contextlib.ExitStack) -> None:
    steward.close()
    answer = run(address, HEAD)
    assert (answer["complete"], answer["missing"], answer["problem"]) == (False, [], NO_STEWARD)
    assert run(address)["problem"] == ""
