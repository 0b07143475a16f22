"""The modules for jobs as Ansible runs them: arguments, results and failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules import (
    job_evidence,
    job_fetch,
)

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
    assert run(job_fetch, capsys, **arguments, dest=str(tmp_path / "here"))["msg"] == expected


# --- job_evidence, job_fetch ----------------------------------------------------------------------------


def test_evidence_in_check_mode(archive: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"submission_id": "sft-1", "shared_root": str(tmp_path)}
    result = run(job_evidence, capsys, **arguments, _ansible_check_mode=True)
    result.pop("invocation", None)
    assert result == {"changed": True, "archive": str(archive.path), "files": 0, "nodes": [], "problems": []}


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
