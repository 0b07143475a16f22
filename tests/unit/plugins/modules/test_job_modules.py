"""The modules for jobs as Ansible runs them: arguments, results and failures."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.registry import Registered, Registry
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules import job_evidence, job_stewards

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
    archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str], submission_id: str
) -> None:
    expected = NO_JOB.format(submission_id, tmp_path)
    arguments = {"submission_id": submission_id, "shared_root": str(tmp_path)}
    assert run(job_evidence, capsys, **arguments)["msg"] == expected


# --- job_evidence, job_stewards ---------------------------------------------------------------------------------------


def test_evidence_in_check_mode(archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"submission_id": "sft-1", "shared_root": str(tmp_path)}
    result = run(job_evidence, capsys, **arguments, _ansible_check_mode=True)
    result.pop("invocation", None)
    assert result == {"changed": True, "archive": str(archive.path), "files": 0, "nodes": [], "problems": []}


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
