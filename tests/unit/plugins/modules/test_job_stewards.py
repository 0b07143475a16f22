"""Which jobs need a steward after the head was restarted."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.argus.launcher import steward
from ansible_collections.argus.verl.plugins.module_utils.argus.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules.job_stewards import without_steward


def job(jobs: Path, name: str, state: str) -> Archive:
    archive = Archive(jobs / name)
    archive.reserve()
    archive.set_status(state)
    # Its steward may have died only a moment ago.
    archive.write_heartbeat("keeper.json", time=time.time(), host="head", pid=1)
    return archive


def test_submitted_jobs_without_a_steward(tmp_path: Path) -> None:
    submitted = ["queued", "submitted", "running", "ending", "retrying", "succeeded", "failed", "stopped", "gone"]
    for state in ("QUEUED", "SUBMITTED", "RUNNING", "ENDING", "RETRYING", "SUCCEEDED"):
        job(tmp_path, state.lower(), state)
    for state in ("FAILED", "STOPPED"):
        job(tmp_path, state.lower(), state).close()
    # Another cluster's, or one that a job has made to be taken up here.
    job(tmp_path, "planted", "RUNNING")
    # A directory without any file.
    (tmp_path / "empty").mkdir()
    found, problems = without_steward(tmp_path, [*submitted, "empty"])
    assert [archive.submission_id for archive in found] == submitted[:6]
    assert problems == {}


def test_a_job_with_a_steward_gets_no_other(tmp_path: Path) -> None:
    kept = job(tmp_path, "kept", "RUNNING")
    with steward.lock_of(kept) as ours:
        assert ours
        assert without_steward(tmp_path, ["kept"])[0] == []
    assert [archive.path for archive in without_steward(tmp_path, ["kept"])[0]] == [kept.path]


def test_a_trap_instead_of_a_lock_does_not_keep_other_jobs_from_their_stewards(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    for name in ("dangling", "linked", "directory", "bad-status", "good"):
        job(tmp_path, name, "RUNNING")
    (tmp_path / "bad-status" / "status.json").write_text("[" * 100_000)
    (tmp_path / "dangling" / ".keeper.lock").symlink_to(tmp_path / "created")
    (tmp_path / "linked" / ".keeper.lock").symlink_to(victim)
    (tmp_path / "directory" / ".keeper.lock").mkdir()
    found, problems = without_steward(tmp_path, ["dangling", "linked", "directory", "bad-status", "good"])
    assert [archive.submission_id for archive in found] == ["good"]
    assert sorted(problems) == ["bad-status", "dangling", "directory", "linked"]
    assert victim.read_text() == "untouched"
    assert not (tmp_path / "created").exists()
