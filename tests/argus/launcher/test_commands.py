"""The commands of the launcher in an archive."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay

from argus.archive.archive import Archive
from argus.evidence import evidence
from argus.launcher import commands


@pytest.fixture(autouse=True)
def mask() -> Iterator[None]:
    """The launcher sets the mask of its process, which is that of the tests here."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.write_json("config/plan.json", {"address": "http://127.0.0.1:1", "entrypoint": "python3 x"})
    made.write_json("config/runtime_env.json", {"env_vars": {}})
    return made


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A stand-in for ray.job_submission.JobSubmissionClient."""
    ray, module = FakeRay(), types.ModuleType("ray.job_submission")
    module.JobSubmissionClient = lambda address: ray.calls.append(("connect", address)) or ray  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    return ray


def test_the_end_of_an_attempt_collects_and_sweeps(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.set_status("RUNNING", attempt=2)
    nodes = {"worker-0": {"killed": {"7": "x"}, "left": [7]}, "worker-2": {"killed": {"8": "x", "9": "y"}, "left": []}}
    result: dict[str, Any] = {"nodes": nodes, "problems": {"worker-1": "no answer within 45 s"}}
    order: list[Any] = []
    monkeypatch.setattr(commands, "Connection", lambda: "Ray")
    monkeypatch.setattr(evidence, "collect", lambda _archive, moment, ray: order.append(("collect", moment, ray)))
    monkeypatch.setattr(evidence, "sweep_job", lambda _archive, ray: order.append(("sweep", ray)) or result)
    assert commands.main(["end", str(archive.path)]) == 0
    # Evidence is collected before the sweep.
    assert order == [("collect", "end", "Ray"), ("sweep", "Ray")]
    assert archive.read_mapping("debug/sweep-2.json") == result
    event = json.loads((archive.path / "events.jsonl").read_text().splitlines()[-1])
    event.pop("time")
    assert event == {"event": "SWEPT", "attempt": 2, "killed": 3, "left": 1, "problems": result["problems"]}


def test_the_next_attempt_is_submitted(archive: Archive, client: FakeRay) -> None:
    assert commands.main(["submit", str(archive.path), "2"]) == 0
    assert client.calls == [("connect", "http://127.0.0.1:1"), ("submit_job", "sft-1~2")]
    assert client.submitted[0]["entrypoint"] == "python3 x 2"
    status = archive.status_json()
    assert (status["state"], status["attempt"]) == ("SUBMITTED", 2)
    assert commands.main(["stop", str(archive.path), "2"]) == 0
    assert client.calls[-1] == ("stop_job", "sft-1~2")


def test_an_attempt_that_cannot_be_submitted_fails_with_the_reason(archive: Archive, client: FakeRay) -> None:
    def busy() -> None:
        raise ConnectionError("the head does not answer")

    client.on_submit = busy
    pauses: list[float] = []
    with pytest.raises(ConnectionError):
        commands.submit(archive, "1", pauses.append)
    assert pauses == [2.0, 10.0, 30.0]
    status = archive.read_status()
    assert status.failure and (status.state, status.failure.kind) == ("FAILED", "unknown")
    assert status.reason.endswith("the head does not answer")
