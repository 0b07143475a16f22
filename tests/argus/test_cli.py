"""The command: what it prints for people, its answers in JSON, and its exit codes."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from argus import cli
from argus.archive.archive import Archive
from argus.verbs import request, status


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.set_status("RUNNING", workload="sft", tags={"team": "a"})
    made.write_json("config/job_spec.json", {"workload": "sft"})
    made.write_json("config/plan.json", {})
    made.driver_log.write_text("first\nsecond\n")
    return made


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a verb on the archives alone, and returns its exit code and what it writes."""

    def run(*arguments: str, request: object = None) -> tuple[int, str, str]:
        if request is not None:
            text = request if isinstance(request, bytes) else json.dumps(request).encode()
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        code = cli.main([*arguments, "--shared-root", str(tmp_path), "--address", ""])
        return (code, *capfd.readouterr())

    return run


def test_status_lists_jobs_and_shows_one(archive: Archive, run: Any) -> None:
    code, text, _ = run("status")
    assert code == 0
    assert f"1 job in {archive.path.parent}" in text and "sft-1  sft       RUNNING" in text
    assert "No job has these tags" in run("status", "--tag", "team=a", "--tag", "team=b=c")[1]
    code, text, _ = run("status", "sft-1")
    assert code == 0
    assert text.startswith("Job sft-1: RUNNING") and "argus logs sft-1 --follow" in text


def test_answers_in_json(archive: Archive, run: Any) -> None:
    for arguments in (["status"], ["status", "sft-1"]):
        code, text, _ = run(*arguments, "--json", request={"limit": 5, "tail": 1})
        answer = json.loads(text)
        assert (code, answer["changed"], answer["findings"]) == (0, False, [])
        job = answer["result"].get("job") or answer["result"]["jobs"][0]
        assert (job["submission_id"], job["state"], job["tags"]) == ("sft-1", "RUNNING", {"team": "a"})
    assert (job["log"], job["jobspec"]) == (["second"], {"workload": "sft"})


def test_paths_are_those_of_the_machines(
    archive: Archive, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/mvp")
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", str(tmp_path))
    assert "1 job in /srv/mvp/jobs" in run("status")[1]
    assert "/srv/mvp/jobs/sft-1" in run("status", "sft-1")[1]
    assert "in /srv/mvp/jobs" in run("status", "sft-2")[2]


def test_a_node_without_a_container_is_entered(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"ARGUS_VERL_SHARED_ROOT_MOUNT": str(tmp_path), "ARGUS_VERL_NODE": "worker-0"}
    (tmp_path / "node.json").write_text(json.dumps({"environment": environment}))
    for name in environment:
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("ARGUS_VERL_ENTER", str(tmp_path))
    assert cli.main(["status", "sft-1"]) == 0
    assert "ARGUS_VERL_ENTER" not in os.environ


@pytest.mark.parametrize("name", ["sft-2", "../jobs/sft-1"])
def test_a_job_that_does_not_exist_is_refused(archive: Archive, run: Any, name: str) -> None:
    code, text, error = run("status", name)
    assert (code, text) == (1, "")
    assert "There is no job" in error and "sft-1" in error
    code, text, _ = run("status", name, "--json", request={})
    (finding,) = json.loads(text)["findings"]
    assert (code, finding["severity"], finding["key"]) == (1, "error", "submission_id")


@pytest.mark.parametrize(
    "request_", [{"limitt": 1}, {"limit": "many"}, [], b"{", b"x" * (request.MAX_REQUEST_BYTES + 1)]
)
def test_a_request_that_is_malformed_is_wrong_usage(archive: Archive, run: Any, request_: object) -> None:
    code, text, _ = run("status", "--json", request=request_)
    assert code == 2
    assert [finding["key"] for finding in json.loads(text)["findings"]] == ["usage"]


def test_wrong_usage(run: Any) -> None:
    for arguments in (["stat"], ["status", "--tag", "x"], ["logs"]):
        code, text, error = run(*arguments)
        assert (code, text, "Error: " in error) == (2, "", True)


def test_a_defect_names_the_file_with_its_traceback(
    archive: Archive, run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mistake(*_arguments: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(status, "jobs_status", mistake)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code, text, error = run("status")
    assert (code, text) == (2, "")
    assert "ZeroDivisionError: division by zero" in error and "Traceback" not in error
    (file,) = tmp_path.glob("argus-*.txt")
    assert "in mistake" in file.read_text()


def test_a_log_is_followed_to_the_end_of_its_job(archive: Archive, run: Any) -> None:
    archive.write_json("heartbeat.json", {"time": time.time()})

    def end() -> None:
        with archive.driver_log.open("a") as log:
            log.write("third\n")
        archive.set_status("FAILED", reason="a worker was lost")

    timer = threading.Timer(0.5, end)
    timer.start()
    code, text, _ = run("logs", "sft-1", "--follow")
    timer.join()
    assert code == 0
    assert text.splitlines() == ["first", "second", "third", "sft-1 FAILED: a worker was lost"]
