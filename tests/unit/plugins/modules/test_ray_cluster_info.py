"""The module for real, against a head that answers over HTTP."""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registered, Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules import ray_cluster_info

NODE = {"node_name": "ray-head", "state": "ALIVE", "is_head_node": True, "resources_total": {"memory": 1.0}}
ANSWERS: dict[str, Any] = {
    "/api/v0/nodes": {"data": {"result": {"result": [NODE]}}},
    "/api/jobs/": [
        {"submission_id": "running-1", "status": "RUNNING", "entrypoint": "x"},
        {"submission_id": "pending-1", "status": "PENDING"},
        *({"submission_id": "ended", "status": status} for status in ("SUCCEEDED", "FAILED", "STOPPED")),
    ],
}


class Handler(BaseHTTPRequestHandler):
    # What a request without a token gets.
    stranger = 401

    def do_GET(self) -> None:
        body = json.dumps(ANSWERS[self.path.partition("?")[0]]).encode()
        self.send_response(200 if "Authorization" in self.headers else self.stranger)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Open(Handler):
    stranger = 200


class Broken(Handler):
    stranger = 500


class Busy(Handler):
    """Needs long for the first answer about jobs."""

    asked = 0

    def do_GET(self) -> None:
        if self.path == "/api/jobs/":
            Busy.asked += 1
            time.sleep(1.0 if Busy.asked == 1 else 0)
        super().do_GET()


@pytest.fixture(params=[Handler])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("secret")
    return str(path)


def result(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        ray_cluster_info.main()
    return dict(json.loads(capsys.readouterr().out))


def test_ready_cluster_and_its_active_jobs(address: str, token: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(capsys, address=address, token_path=token, expected=[{"name": "ray-head", "head": True, "cpus": 0}])
    assert answer["complete"] is True
    assert (answer["missing"], answer["problem"], answer["changed"]) == ([], "", False)
    assert answer["rows"] == [["ray-head", "CPU 0, GPU 0", "CPU 0, GPU 0", "alive"]]
    assert answer["nodes"] == [NODE]
    assert answer["awaited"] == []
    assert answer["jobs"] == [
        {"submission_id": "running-1", "status": "RUNNING"},
        {"submission_id": "pending-1", "status": "PENDING"},
    ]
    assert answer["unattended"] == []


@pytest.mark.parametrize("address", [Open, Broken], indirect=True)
def test_head_that_does_not_refuse_strangers_is_not_ready(
    address: str, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    head = {"name": "ray-head", "head": True, "cpus": 0}
    answer = result(capsys, address=address, token_path=token, expected=[head])
    assert (answer["complete"], answer["missing"]) == (False, [])
    assert answer["problem"].startswith(f"{address} does not refuse requests without the cluster's token")
    # It can be removed all the same: who asks for jobs only, is not kept from going on.
    assert result(capsys, address=address, token_path=token)["problem"] == ""


@pytest.mark.parametrize("address", [Busy], indirect=True)
def test_ready_head_may_need_long_for_its_jobs(
    address: str, token: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster_info, "RayHead", functools.partial(ray_cluster_info.RayHead, timeout=0.3))
    head = {"name": "ray-head", "head": True, "cpus": 0}
    answer = result(capsys, address=address, token_path=token, expected=[head], wait_timeout=10)
    assert (answer["complete"], answer["problem"]) == (True, "")
    assert len(answer["jobs"]) == 2


def test_missing_node_does_not_fail(address: str, token: str, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [{"name": "worker-0", "gpus": 4, "resources": {"worker_node": 100}, "since": 5}]
    answer = result(capsys, address=address, token_path=token, expected=expected)
    assert (answer["complete"], answer["missing"]) == (False, ["worker-0"])
    assert answer["rows"] == [["worker-0", "GPU 4, worker_node 100", "never joined", "missing"]]


def test_what_is_waited_for_in_several_calls_is_counted_in_all(
    address: str, token: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"address": address, "token_path": token, "expected": [{"name": "worker-0"}], "wait_timeout": 0.3}
    start = time.time()
    first = result(capsys, **arguments)
    assert start <= first["began"] <= time.time()
    assert first["waited"] < 3
    second = result(capsys, **arguments, began=start - 60)
    assert second["began"] == start - 60
    assert 60 < second["waited"] < 65


def test_head_that_does_not_answer_is_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    answer = result(capsys, address="http://127.0.0.1:1")
    assert (answer["complete"], answer["nodes"], answer["jobs"]) == (False, [], [])
    assert "127.0.0.1:1" in answer["problem"]


def test_registered_jobs_without_a_heartbeat_are_unattended(
    tmp_path: Path, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time()
    registry = Registry(tmp_path / "registry")
    registry.path.mkdir()
    for name, age, host in (
        ("fresh", 1, "ray-head"),
        ("old", 1000, "ray-head"),
        ("planted", 1000, "ray-head"),
        ("elsewhere", 1000, "other-head"),
        ("other-cluster", 1000, "ray-head"),
        ("closed", 1000, "ray-head"),
    ):
        archive = Archive(tmp_path / "jobs" / name)
        archive.reserve()
        archive.set_status("RUNNING")
        # Two clusters may have heads of the same name. A steward of an older release has no cluster.
        cluster = {"planted": {}, "other-cluster": {"cluster": "lab"}}.get(name, {"cluster": "mvp"})
        heartbeat = {"time": now - age, "host": host, "pid": 1, **cluster}
        (archive.path / "keeper.json").write_text(json.dumps(heartbeat))
        if name not in ("planted", "elsewhere", "other-cluster"):
            registry.write(Registered(name, 1.0, {}, str(tmp_path)))
    archive.close()

    def unattended(*expected: dict[str, Any]) -> tuple[list[str], list[str]]:
        paths = {"shared_root": str(tmp_path), "registry": str(registry.path), "cluster": "mvp"}
        answer = result(capsys, address=address, expected=list(expected), **paths)
        return answer["unattended"], answer["unknown"]

    head = {"name": "ray-head", "head": True}
    assert unattended(head) == (["old"], ["planted"])
    # All stewards have ended with the container of an earlier head.
    assert unattended({**head, "since": now}, {"name": "worker-0", "since": 0}) == (["fresh", "old"], ["planted"])
    # The start of a worker does not matter.
    assert unattended({"name": "worker-0", "since": now}) == (["old"], [])
