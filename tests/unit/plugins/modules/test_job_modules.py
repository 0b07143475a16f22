"""The modules for jobs as Ansible runs them: arguments, results and failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registered, Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import Services
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.submit import Request, Submitted
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules import (
    job_fetch,
    job_stewards,
    ray_job,
)
from fake_ray import FakeRay

NO_JOB = "There is no job {!r} in {}/jobs. The latest jobs are: sft-1."


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.set_status("RUNNING", workload="sft")
    made.write_json("config/job_spec.json", {"workload": "sft"})
    made.write_json("config/plan.json", {})
    made.driver_log.write_text("a\nb\n")
    return made


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    ray = FakeRay()
    monkeypatch.setattr(ray_job, "RAY_ERROR", None)
    monkeypatch.setattr(ray_job, "job_client", lambda _address: ray)
    monkeypatch.setattr(ray_job, "RayHead", lambda _address, _token_path: ray)
    return ray


def run(module: Any, capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    """The result that a module prints."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        module.main()
    result = json.loads(capsys.readouterr().out)
    assert bool(ended.value.code) is result.get("failed", False)
    assert isinstance(result, dict)
    return result


OUTSIDE = ["../jobs/sft-1", "..", "/etc", "sft-2"]


@pytest.mark.parametrize("submission_id", OUTSIDE)
def test_an_id_that_leads_elsewhere_is_unknown(
    archive: Archive, tmp_path: Path, ray: FakeRay, capsys: pytest.CaptureFixture[str], submission_id: str
) -> None:
    expected = NO_JOB.format(submission_id, tmp_path)
    arguments = {"submission_id": submission_id, "shared_root": str(tmp_path)}
    assert run(job_fetch, capsys, **arguments, dest=str(tmp_path / "here"))["msg"] == expected
    defaults = {"shared_root": str(tmp_path)}
    stopped = run(ray_job, capsys, state="stopped", submission_id=submission_id, defaults=defaults)
    assert stopped["msg"] == expected
    assert ray.calls == []


# --- job_fetch, job_stewards ------------------------------------------------------------------------------------------


def test_a_bundle(archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(job_fetch, capsys, submission_id="sft-1", shared_root=str(tmp_path), dest="here")
    bundle = Path(result["bundle"])
    try:
        assert bundle.stat().st_mode & 0o777 == 0o600
        assert bundle.stat().st_size == result["bundle_bytes"] > 100
    finally:
        bundle.unlink()


def test_a_bundle_without_free_space(
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(job_fetch, "pack", full)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = run(job_fetch, capsys, submission_id="sft-1", shared_root=str(tmp_path), dest="here")
    why = "The bundle cannot be written: No space left on device."
    assert result["msg"] == f"{why} Does {tmp_path} have enough free space?"
    assert list(tmp_path.glob("argus-verl-*")) == []


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(tmp_path / "registry")
    made.path.mkdir()
    return made


@pytest.mark.parametrize("check_mode", [True, False])
def test_missing_stewards_are_started(
    archive: Archive,
    registry: Registry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    check_mode: bool,
) -> None:
    started: list[tuple[str, str]] = []

    def start(job: Archive) -> None:
        # The address of the inventory at the submission may have the token, not that of the archive's plan.
        started.append((job.submission_id, os.environ["ARGUS_VERL_HEAD_HOST"]))

    monkeypatch.setattr(job_stewards, "start_steward", start)
    monkeypatch.setenv("ARGUS_VERL_HEAD_HOST", "")
    archive.write_heartbeat("keeper.json", time=time.time(), host="head", pid=1)
    arguments = {"shared_root": str(tmp_path), "registry": str(registry.path), "_ansible_check_mode": check_mode}
    # A planted archive is not this cluster's.
    result = run(job_stewards, capsys, **arguments)
    assert (result["changed"], result["started"], started) == (False, [], [])
    registry.write(Registered("sft-1", 1.0, {}, str(tmp_path), "http://head.example:8265"))
    result = run(job_stewards, capsys, **arguments)
    assert (result["changed"], result["started"]) == (True, ["sft-1"])
    assert started == ([] if check_mode else [("sft-1", "head.example")])


@pytest.mark.parametrize("check_mode", [True, False])
def test_a_job_of_an_earlier_head_is_adopted(
    archive: Archive,
    registry: Registry,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    check_mode: bool,
) -> None:
    started: list[str] = []
    monkeypatch.setattr(job_stewards, "start_steward", lambda job: started.append(job.submission_id))
    archive.write_heartbeat("keeper.json", time=0)
    archive.write_json("config/job_spec.json", {"workload": "sft"})
    arguments = {"shared_root": str(tmp_path), "registry": str(registry.path), "_ansible_check_mode": check_mode}
    assert "There is no job 'sft-0'" in run(job_stewards, capsys, **arguments, adopt=["sft-0"])["msg"]
    result = run(job_stewards, capsys, **arguments, adopt=["sft-1"])
    assert (result["changed"], result["started"]) == (True, ["sft-1"])
    adopted = registry.read("sft-1")
    assert (adopted, started) == (None, []) if check_mode else (adopted, ["sft-1"])
    if adopted:
        assert adopted.jobspec == {"workload": "sft"}


# --- ray_job ----------------------------------------------------------------------------------------------------------


def test_its_process_ends_as_soon_as_the_result_is_written() -> None:
    arguments = {"ANSIBLE_MODULE_ARGS": {"state": "stopped"}}
    program = (
        "import atexit, runpy, sys\n"
        "atexit.register(print, 'the end of Python')\n"
        "runpy.run_module(sys.argv.pop(1), run_name='__main__')"
    )
    command = [sys.executable, "-c", program, ray_job.__name__, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["msg"] == "state is stopped but all of the following are missing: submission_id"


def test_ray_is_required(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_job, "RAY_ERROR", "No module named 'ray'")
    result = run(ray_job, capsys, state="stopped", submission_id="sft-1")
    assert "ray[default]" in result["msg"]


def test_a_refusal_lists_all_findings(ray: FakeRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"workload": "grpo", "code_path": "v", "model": "m", "dataset": "d", "retries": -1}
    spec |= {"shared_root": str(tmp_path), "submission_id": "A", "deadline": "soon"}
    result = run(ray_job, capsys, jobspec=spec, defaults={"shared_root": str(tmp_path)})
    assert result["msg"].startswith("The JobSpec was refused; nothing was changed.\nSEVERITY")
    keys = {finding["key"] for finding in result["findings"]}
    assert {"submission_id", "deadline", "retries"} <= keys
    assert all(set(finding) == {"where", "what", "todo", "severity", "key"} for finding in result["findings"])


def test_the_head_checks_again_what_only_the_inventory_decides(
    ray: FakeRay, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"workload": "grpo", "code_path": "v", "model": "m", "dataset": "d"}
    spec |= {"shared_root": str(tmp_path), "ray": {"address": "http://evil.example"}}
    result = run(ray_job, capsys, jobspec=spec, defaults={"shared_root": "/mnt"})
    assert [finding["key"] for finding in result["findings"]] == ["shared_root", "ray.address"]
    assert ray.calls == []


def test_the_jobspec_of_a_registered_job(
    tmp_path: Path, registry: Registry, ray: FakeRay, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.write(Registered("sft-1", 1.0, {"workload": "sft"}, str(tmp_path)))
    arguments = {"state": "registered", "registry": str(registry.path)}
    result = run(ray_job, capsys, **arguments, submission_id="sft-1")
    assert (result["changed"], result["jobspec"], result["findings"]) == (False, {"workload": "sft"}, [])
    assert run(ray_job, capsys, **arguments, submission_id="../sft-1")["msg"].startswith("../sft-1 is not registered")
    assert "missing: submission_id" in run(ray_job, capsys, **arguments)["msg"]


def test_a_job_is_stopped_where_the_defaults_say(
    archive: Archive, tmp_path: Path, ray: FakeRay, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.set_status("SUCCEEDED")
    arguments = {"state": "stopped", "submission_id": "sft-1"}
    result = run(ray_job, capsys, **arguments, defaults={"shared_root": str(tmp_path)})
    assert (result["changed"], result["state"]) == (False, "SUCCEEDED")
    assert "There is no job 'sft-1' in /private/jobs" in run(ray_job, capsys, **arguments)["msg"]


def test_a_job_is_not_stopped_in_check_mode(
    archive: Archive, tmp_path: Path, ray: FakeRay, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {"state": "stopped", "submission_id": "sft-1", "defaults": {"shared_root": str(tmp_path)}}
    result = run(ray_job, capsys, **arguments, _ansible_check_mode=True, _ansible_diff=True)
    assert (result["changed"], result["state"]) == (True, "STOPPED")
    assert result["diff"] == {"before": "RUNNING\n", "after": "STOPPED\n"}
    assert not archive.stop_requested()
    assert ray.calls == []


@pytest.mark.parametrize("check_mode", [True, False])
def test_the_request_of_a_submission(
    ray: FakeRay, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, check_mode: bool
) -> None:
    requests: list[Request] = []

    def submit(request: Request, services: Services) -> Submitted:
        assert services.client("http://127.0.0.1:8265") is ray
        requests.append(request)
        return Submitted(True, "sft-1", "/private/jobs/sft-1", "SUBMITTED", ("a=1",), (), {})

    monkeypatch.setattr(ray_job, "submit", submit)
    finding = Finding("model", "is empty", "name one", key="model")
    spec = {"workload": "sft", "code_path": "v", "model": "m", "dataset": "d", "secrets": ["HF_TOKEN"]}
    result = run(
        ray_job,
        capsys,
        jobspec=spec,
        given={"workload": "sft"},
        secret_values={"HF_TOKEN": "hf_secret"},
        findings=[finding.as_dict()],
        resubmitted_from="sft-0",
        _ansible_check_mode=check_mode,
    )
    (request,) = requests
    assert request.jobspec["secrets"] == ["HF_TOKEN"]
    assert (request.given, request.secrets) == ({"workload": "sft"}, {"HF_TOKEN": "hf_secret"})
    assert (request.findings, request.resubmitted_from) == ((finding,), "sft-0")
    assert request.check_mode is check_mode
    assert (result["state"], result["overrides"]) == ("SUBMITTED", ["a=1"])
    assert "hf_secret" not in json.dumps(result)


def test_an_operation_that_fails(
    ray: FakeRay, archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ray.answers = False
    archive.write_json("keeper.json", {"time": time.time()})
    arguments = {"state": "stopped", "submission_id": "sft-1", "defaults": {"shared_root": str(tmp_path)}}
    assert run(ray_job, capsys, **arguments)["msg"].startswith("sft-1 could not be stopped: ")
