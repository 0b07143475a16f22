"""submit, resubmit and stop: what the command gives to the operations, and its answers."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeRay

from argus import cli
from argus.archive.archive import Archive
from argus.common.findings import WARNING, Finding
from argus.hooks import worker_secrets
from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.request import JobRequest
from argus.jobs.services import Effect, Services
from argus.verbs import request as verb_request
from argus.verbs import submit as submit_verb

MINIMAL = {"workload": "sft", "code_path": "v", "model": "m", "dataset": "d"}


@pytest.fixture
def ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    """A head whose registry knows sft-1, which runs."""
    ray = FakeRay()
    monkeypatch.setattr(verb_request, "job_client", lambda _address: ray)
    monkeypatch.setattr(verb_request, "local_head", lambda _address: ray)
    monkeypatch.setenv("ARGUS_VERL_REGISTRY", str(tmp_path / "registry"))
    registry = Registry(tmp_path / "registry")
    registry.path.mkdir()
    registry.write(RegisteredJob("sft-1", 1.0, {**MINIMAL, "submission_id": "sft-1"}, str(tmp_path)))
    archive = Archive(tmp_path / "jobs" / "sft-1")
    archive.reserve()
    archive.set_status("RUNNING", workload="sft")
    archive.write_json("config/plan.json", {})
    return ray


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> list[JobRequest]:
    """The requests that reach the operation, which submits them."""
    requests: list[JobRequest] = []

    def submit(request: JobRequest, _services: Services) -> Effect:
        requests.append(request)
        print("(raylet) This is not in the answer.")
        created = {"submission_id": "sft-2", "archive": "/x/jobs/sft-2", "state": "SUBMITTED", "overrides": ["a=1"]}
        finding = Finding("dataset", "is not in the shared root /private/x", "copy it", WARNING)
        return Effect(True, created, (finding,))

    monkeypatch.setattr(submit_verb, "submit_job", submit)
    return requests


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a verb with --json, and returns its exit code and its answer."""

    def run(*arguments: str, **request: Any) -> tuple[int, dict[str, Any]]:
        request = {"shared_root": str(tmp_path), "address": "http://127.0.0.1:8265", **request}
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(request).encode())))
        code = cli.main([*arguments, "--json"])
        return code, json.loads(capfd.readouterr().out)

    return run


@pytest.mark.parametrize("check", [True, False])
def test_a_submission(ray: FakeRay, run: Any, submitted: list[JobRequest], tmp_path: Path, check: bool) -> None:
    secrets = {"HF_TOKEN": "hf_secret"}
    arguments = {"jobspec": MINIMAL, "command_line": [{"set": "a=1"}], "secrets": secrets}
    code, answer = run("submit", **arguments, defaults={"retries": 2, "ray": {"runtime_env": {}}}, check=check)
    assert (code, answer["changed"], answer["result"]["submission_id"]) == (0, True, "sft-2")
    assert [finding["severity"] for finding in answer["findings"]] == ["warning"]
    assert "hf_secret" not in json.dumps(answer)
    (request,) = submitted
    assert (request.jobspec, request.command_line) == (MINIMAL, [{"set": "a=1"}])
    where = {"shared_root": str(tmp_path), "ray": {"address": "http://127.0.0.1:8265", "runtime_env": {}}}
    assert (request.defaults, request.secrets) == ({**where, "retries": 2}, secrets)
    assert request.check is check


def test_all_findings_are_in_the_answer(ray: FakeRay, run: Any) -> None:
    spec = {**MINIMAL, "model": "a b", "shared_root": "/other", "ray": {"address": "http://evil.example"}}
    code, answer = run("submit", jobspec=spec, defaults={"env_vars": {"HF_HOME": "/x"}})
    assert (code, answer["changed"], answer["result"]) == (1, False, {})
    # A finding about a default names the variable of the inventory.
    places = {"model": "model", "env_vars.HF_HOME": "job_defaults.env_vars.HF_HOME"}
    named = {finding["key"]: finding["where"] for finding in answer["findings"]}
    assert named.keys() == {*places, "shared_root", "ray.address"} and named.items() >= places.items()
    for jobspec in (None, ["a"], {**MINIMAL, "tags": {"a": "\x1b"}}):
        assert run("submit", jobspec=jobspec)[0] == 1
    assert ray.calls == []


def test_findings_name_the_shared_root_of_the_machines(
    ray: FakeRay, run: Any, submitted: list[JobRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", "/private/x")
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/x")
    _code, answer = run("submit", jobspec=MINIMAL, shared_root="/private/x", shared_root_source="/srv/x")
    assert "(/srv/x on the machines)" in answer["findings"][0]["problem"]


def test_people_submit_a_file(
    ray: FakeRay, submitted: list[JobRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sft.yaml"
    file.write_text("workload: sft\n")
    assert cli.main(["submit", str(file), "--check", "--shared-root", str(tmp_path)]) == 0
    assert "The job would be SUBMITTED" in capsys.readouterr().out
    assert cli.main(["submit", str(file), "retries=2", "--shared-root", str(tmp_path)]) == 0
    assert "Job sft-2: SUBMITTED" in capsys.readouterr().out
    expected = [({"workload": "sft"}, True), ({"workload": "sft", "retries": 2}, False)]
    assert [(request.author_jobspec, request.check) for request in submitted] == expected
    file.write_text("{")
    assert cli.main(["submit", str(file)]) == 2
    assert "is not YAML" in capsys.readouterr().err


def test_a_job_is_submitted_again(ray: FakeRay, run: Any, submitted: list[JobRequest]) -> None:
    code, answer = run("resubmit", submission_id="sft-1", command_line=[{"set": "retries=2"}])
    assert (code, answer["result"]["submission_id"]) == (0, "sft-2")
    (request,) = submitted
    assert (request.author_jobspec, request.resubmitted_from) == ({**MINIMAL, "retries": 2}, "sft-1")
    code, answer = run("resubmit", submission_id="../sft-1")
    assert (code, answer["findings"][0]["where"]) == (1, "argus")
    assert "../sft-1 is not registered" in answer["findings"][0]["problem"]


def test_a_job_is_not_stopped_in_check_mode(ray: FakeRay, run: Any, tmp_path: Path) -> None:
    code, answer = run("stop", "sft-1", check=True)
    assert (code, answer["changed"], answer["result"]["state"]) == (0, True, "STOPPED")
    assert answer["result"]["diff"] == {"before": "RUNNING\n", "after": "STOPPED\n"}
    assert not Archive(tmp_path / "jobs" / "sft-1").stop_requested()
    for name in ("../jobs/sft-1", "sft-2"):
        code, answer = run("stop", name)
        assert (code, [finding["key"] for finding in answer["findings"]]) == (1, ["operation"])
    assert ray.calls == []


@pytest.mark.parametrize("verb", ["submit", "stop", "resubmit"])
def test_only_the_head_of_the_cluster_answers(
    ray: FakeRay, run: Any, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {} if verb == "submit" else {"submission_id": "sft-1"}
    code, answer = run(verb, **named, address="")
    assert (code, answer["findings"][0]["key"]) == (1, "operation")
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/other")
    code, answer = run(verb, **named, shared_root_source="/srv/mine")
    assert code == 1
    assert "/srv/other" in answer["findings"][0]["problem"] and "/srv/mine" in answer["findings"][0]["problem"]
    assert ray.calls == []


@pytest.mark.parametrize("check", [True, False])
def test_archives_of_a_cluster_that_is_removed_are_closed(ray: FakeRay, run: Any, tmp_path: Path, check: bool) -> None:
    archive = Archive(tmp_path / "jobs" / "sft-1")
    worker_secrets.store(archive.path, {"KEY": "value"})
    code, answer = run("removal", state="closed", check=check, address="")
    assert (code, answer["changed"], answer["result"]) == (0, True, {"closed": ["sft-1"]})
    assert (archive.read_status().state, bool(worker_secrets.load(archive.path))) == (
        ("RUNNING", True) if check else ("STOPPED", False)
    )
