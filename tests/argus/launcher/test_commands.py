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

from argus.archive.archive import Archive
from argus.evidence import evidence
from argus.launcher import commands

PLAN = {
    "address": "http://127.0.0.1:1",
    "workload": "sft",
    "overrides": [],
    "entrypoint": "python3 x",
    "entrypoint_num_cpus": 1,
    "entrypoint_resources": {},
}


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
    made.write_json("config/plan.json", PLAN)
    made.write_json("config/runtime_env.json", {"env_vars": {}})
    return made


class Client:
    """A fake of ray.job_submission.JobSubmissionClient."""

    calls: list[tuple[Any, ...]]
    problem: Exception | None

    def __init__(self, address: str) -> None:
        self.calls.append(("connect", address))

    def submit_job(self, **arguments: Any) -> None:
        if self.problem:
            raise self.problem
        self.calls.append(("submit", arguments["submission_id"], arguments["entrypoint"]))

    def get_job_status(self, job_id: str) -> str:
        raise RuntimeError("404")

    def stop_job(self, job_id: str) -> None:
        self.calls.append(("stop", job_id))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    Client.calls, Client.problem = [], None
    module = types.ModuleType("ray.job_submission")
    module.JobSubmissionClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.job_submission", module)
    return Client


@pytest.mark.parametrize("problems", [{}, {"worker-1": "no answer within 45 s"}])
def test_the_end_of_an_attempt_collects_and_sweeps(
    archive: Archive, problems: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.set_status("RUNNING", attempt=2)
    left = {"killed": {"7": "python3"}, "left": [{"pid": 7}]}
    found = {
        "nodes": {"worker-0": left, "worker-2": {"killed": {"8": "x", "9": "y"}, "left": []}},
        "problems": problems,
    }
    order: list[Any] = []
    monkeypatch.setattr(commands, "Connection", lambda: "Ray")
    monkeypatch.setattr(evidence, "collect", lambda _archive, moment, ray: order.append(("collect", moment, ray)))

    def sweep(_archive: Archive, ray: object) -> dict[str, Any]:
        order.append(("sweep", ray))
        return found

    monkeypatch.setattr(evidence, "sweep", sweep)
    assert commands.main(["end", str(archive.path)]) == 0
    # Evidence is collected before the sweep.
    assert order == [("collect", "end", "Ray"), ("sweep", "Ray")]
    assert archive.read_mapping("debug/sweep-2.json") == found
    event = json.loads((archive.path / "events.jsonl").read_text().splitlines()[-1])
    event.pop("time")
    shown = {"problems": problems} if problems else {}
    assert event == {"event": "SWEPT", "attempt": 2, "killed": 3, "left": 1, **shown}


def test_the_next_attempt_is_submitted(archive: Archive, client: type[Client]) -> None:
    assert commands.main(["submit", str(archive.path), "2"]) == 0
    assert client.calls == [("connect", "http://127.0.0.1:1"), ("submit", "sft-1~2", "python3 x 2")]
    status = archive.status_json()
    assert (status["state"], status["attempt"]) == ("SUBMITTED", 2)


def test_an_attempt_that_cannot_be_submitted_fails_with_the_reason(archive: Archive, client: type[Client]) -> None:
    client.problem = ConnectionError("the head does not answer")
    pauses: list[float] = []
    with pytest.raises(ConnectionError):
        commands.submit(archive, "1", pauses.append)
    assert pauses == [2.0, 10.0, 30.0]
    assert [call[0] for call in client.calls] == ["connect"] * 4
    status = archive.status_json()
    assert (status["state"], status["reason"]) == ("FAILED", "it could not be submitted: the head does not answer")
    assert status["failure"]["kind"] == "unknown"


def test_a_head_that_was_busy_for_a_moment_gets_the_attempt(archive: Archive, client: type[Client]) -> None:
    client.problem = ConnectionError("the head does not answer")
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        client.problem = None

    assert commands.submit(archive, "1", sleep) == 0
    assert pauses == [2.0]
    assert client.calls[-1] == ("submit", "sft-1", "python3 x 1")
    assert archive.status_json()["state"] == "SUBMITTED"


def test_an_attempt_is_stopped_under_its_own_id(archive: Archive, client: type[Client]) -> None:
    assert commands.main(["stop", str(archive.path), "2"]) == 0
    assert client.calls[-1] == ("stop", "sft-1~2")
