"""Telling people: which events there are, each once, by a real command and a real server, in nobody's way."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from archive_files import lines_of
from steward_scene import Scene

from argus.archive import failures
from argus.archive.archive import Heartbeat
from argus.archive.plan import Plan
from argus.archive.status import Status
from argus.io.schema import parse
from argus.steward import notify
from argus.steward.decisions import HeadReport, Observations
from argus.steward.notify import Notification, Notifier, notifications

NOW = 10_000.0
ENDED = Notification(
    "ended", "ended", "one", "mvp", "FAILED", 2, "gpu_oom", "one on mvp: FAILED (gpu_oom): $(touch /tmp/x)"
)


class Server(http.server.BaseHTTPRequestHandler):
    """Keeps what it gets; answers by the path: /500 fails, /hang hangs."""

    got: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.path == "/hang":
            time.sleep(5)
        self.send_response(500 if self.path == "/500" else 200)
        self.end_headers()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def notifier(scene: Scene, target: str) -> Notifier:
    return Notifier(target, scene.archive, scene.queue.directory)


def not_told(scene: Scene) -> list[str]:
    return [line["reason"] for line in lines_of(scene.archive, "events.jsonl") if line["event"] == "NOT_TOLD"]


def test_an_address_gets_each_event_once(scene: Scene, address: str) -> None:
    Server.got.clear()
    first = notifier(scene, address)
    first.notify(ENDED)
    for thread in first.threads:
        thread.join()
    # A steward that was started again knows the events that were sent.
    second = notifier(scene, address)
    second.notify(ENDED)
    second.finish()
    assert [(one["event"], one["state"], one["text"]) for one in Server.got] == [("ended", "FAILED", ENDED.text)]
    assert not_told(scene) == []
    assert [*scene.queue.directory.glob(f"{notify.SENT_FILE_PREFIX}*")] == []


def test_a_command_gets_the_event_and_runs_none_of_it(scene: Scene, tmp_path: Path) -> None:
    sender = notifier(scene, f'cat > {tmp_path}/event; printf %s "$ARGUS_TEXT" > {tmp_path}/text')
    sender.notify(ENDED)
    sender.finish()
    assert json.loads((tmp_path / "event").read_text())["kind"] == "gpu_oom"
    assert (tmp_path / "text").read_text() == ENDED.text


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("{address}/500", "500"),
        ("http://127.0.0.1:1/secret", "refused"),
        ("{address}/hang", "TimeoutError"),
        ("exit 3", "ended with 3"),
        ("sleep 60 & wait", "did not end"),
    ],
)
def test_what_fails_is_an_event_and_delays_nothing(
    scene: Scene, address: str, target: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SEND_TIMEOUT_SECONDS", 0.5)
    sender = notifier(scene, target.format(address=address))
    began = time.monotonic()
    sender.notify(ENDED)
    assert time.monotonic() - began < 0.4
    for thread in sender.threads:
        thread.join()
    assert len(not_told(scene)) == 1 and reason in not_told(scene)[0] and "secret" not in not_told(scene)[0]


@pytest.mark.parametrize(
    ("status", "stalled", "away_for", "expected"),
    [
        *(({"state": state}, "", None, ["ended"]) for state in ("SUCCEEDED", "FAILED", "STOPPED")),
        ({"state": "RETRYING", "reason": "node w1 was lost"}, "", None, ["retried"]),
        ({"state": "RUNNING"}, "", None, []),
        ({"state": "RUNNING"}, "no step for 1800 s", None, ["stalled"]),
        ({"state": "RUNNING"}, "", 40.0, ["head_returned"]),
        ({"state": "QUEUED", "queued_at": NOW - 60}, "", None, []),
        ({"state": "QUEUED", "queued_at": NOW - 61}, "", None, ["waits"]),
    ],
)
def test_the_events(status: dict[str, Any], stalled: str, away_for: float | None, expected: list[str]) -> None:
    answer = HeadReport(capacity_problem="no GPU is free")
    seen = Observations(NOW, parse(Status, {"attempt": 1, **status}), Plan(queue_patience=60.0), answer)
    assert [one.event for one in notifications("one", seen, Heartbeat(stalled=stalled), away_for)] == expected


def test_the_steward_tells(scene: Scene, tmp_path: Path) -> None:
    scene.start(notify=f'echo "$ARGUS_EVENT $ARGUS_ATTEMPT" >> {tmp_path}/told')
    scene.running()
    scene.step()
    scene.state("RETRYING", attempt=1, failure=failures.failure("node_lost", "node w1 was lost"))
    scene.step()
    scene.state("SUCCEEDED", attempt=2)
    assert scene.step()
    assert sorted((tmp_path / "told").read_text().splitlines()) == ["ended 2", "retried 1"]
    assert not (scene.queue.directory / f"{notify.SENT_FILE_PREFIX}one").exists()
