"""Which jobs an earlier head has left."""

from __future__ import annotations

import time
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.launcher import steward
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.modules.job_keepers import left
from ansible_collections.argus.verl.plugins.modules.ray_cluster_info import unkept


def job(jobs: Path, name: str, state: str, host: str = "head") -> Archive:
    archive = Archive(jobs / name)
    archive.reserve()
    archive.set_status(state)
    # Its keeper may have died a moment ago.
    archive.write_sign("keeper.json", time=time.time(), host=host, pid=1)
    return archive


def test_jobs_of_this_head_that_nobody_keeps(tmp_path: Path) -> None:
    for state in ("QUEUED", "SUBMITTED", "RUNNING", "ENDING", "RETRYING", "SUCCEEDED"):
        job(tmp_path, state.lower(), state)
    for state in ("FAILED", "STOPPED"):
        job(tmp_path, state.lower(), state).close()
    job(tmp_path, "elsewhere", "RUNNING", host="head-of-another-cluster")
    # Not begun, or of nobody's making.
    (tmp_path / "empty").mkdir()
    found = [archive.submission_id for archive in left(tmp_path, "head")]
    assert found == ["ending", "queued", "retrying", "running", "submitted", "succeeded"]


def test_jobs_whose_keeper_gives_no_sign(tmp_path: Path) -> None:
    now = time.time()
    for name, age in (("fresh", 1), ("old", 1000)):
        job(tmp_path / "jobs", name, "RUNNING").write_sign("keeper.json", time=now - age, host="head", pid=1)
    steward.close(job(tmp_path / "jobs", "closed", "FAILED"), "FAILED")
    assert unkept(str(tmp_path), [{"head": True, "since": None}]) == ["old"]
    # With the head's container, all keepers have ended.
    assert unkept(str(tmp_path), [{"head": True, "since": now}, {"head": False, "since": None}]) == ["fresh", "old"]
    assert unkept(None, []) == []


def test_a_job_that_is_kept_is_left_alone(tmp_path: Path) -> None:
    kept = job(tmp_path, "kept", "RUNNING")
    with steward.lock_of(kept) as ours:
        assert ours
        assert left(tmp_path, "head") == []
    assert [archive.path for archive in left(tmp_path, "head")] == [kept.path]
