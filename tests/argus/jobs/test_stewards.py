"""Which jobs need a steward after the head was restarted."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from argus.jobs.listing import UnknownJobError
from argus.jobs.registry import Registered, Registry
from argus.jobs.stewards import resume, without_steward
from argus.launcher import steward
from argus.launcher.archive import Archive


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


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(tmp_path / "registry")
    made.path.mkdir()
    return made


@pytest.mark.parametrize("check", [True, False])
def test_missing_stewards_are_started(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    started: list[tuple[str, str]] = []

    def start(archive: Archive) -> None:
        # The address of the inventory at the submission may have the token, not that of the archive's plan.
        started.append((archive.submission_id, os.environ["ARGUS_VERL_HEAD_HOST"]))

    monkeypatch.setenv("ARGUS_VERL_HEAD_HOST", "")
    job(tmp_path / "jobs", "sft-1", "RUNNING")
    # A planted archive is not this cluster's.
    assert resume(tmp_path, registry, [], start, check) == (False, [], [])
    registry.write(Registered("sft-1", 1.0, {}, str(tmp_path), "http://head.example:8265"))
    assert resume(tmp_path, registry, [], start, check) == (True, ["sft-1"], [])
    assert started == ([] if check else [("sft-1", "head.example")])


@pytest.mark.parametrize("check", [True, False])
def test_a_job_of_an_earlier_head_is_adopted(registry: Registry, tmp_path: Path, check: bool) -> None:
    started: list[str] = []

    def start(archive: Archive) -> None:
        started.append(archive.submission_id)

    job(tmp_path / "jobs", "sft-1", "RUNNING").write_json("config/job_spec.json", {"workload": "sft"})
    with pytest.raises(UnknownJobError, match="There is no job 'sft-0'"):
        resume(tmp_path, registry, ["sft-0"], start, check)
    assert resume(tmp_path, registry, ["sft-1"], start, check) == (True, ["sft-1"], [])
    adopted = registry.read("sft-1")
    assert (adopted, started) == (None, []) if check else (adopted, ["sft-1"])
    if adopted:
        assert adopted.jobspec == {"workload": "sft"}
