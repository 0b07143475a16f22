from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.jobs.info import JobInfo, JobList
from argus.jobs.listing import UnknownJobError, find_job, latest_jobs
from argus.ray.api import RayHead


class Lists(RayHead):
    """A head with three jobs: the second attempt of one, a pending one, and one that was submitted directly."""

    def jobs(self) -> list[dict[str, Any]]:
        return [
            {"submission_id": "grpo-2", "status": "FAILED"},
            {"submission_id": "grpo-2~2", "status": "RUNNING", "driver_info": {"node_ip_address": "10.0.0.2"}},
            {"submission_id": "sft-3", "status": "PENDING", "message": "no resources"},
            {"submission_id": "raysubmit_1", "status": "RUNNING", "start_time": 2500},
        ]


LISTING = Lists("http://127.0.0.1:1")


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Archives that were created in the first, second and third second of the epoch."""
    for second, (name, state, attempt) in enumerate(
        (("grpo-1", "SUCCEEDED", 1), ("grpo-2", "RUNNING", 2), ("sft-3", "SUBMITTED", 1)), 1
    ):
        made = Archive(tmp_path / "jobs" / name)
        made.reserve()
        made.set_status(state, attempt=attempt)
        made.write_json("config/job_spec.json", {})
        os.utime(made.path / "config" / "job_spec.json", (second, second))
    (tmp_path / "jobs" / ".half").mkdir()
    (tmp_path / "jobs" / "notes.txt").touch()
    return tmp_path / "jobs"


def test_jobs_with_tags(jobs: Path) -> None:
    Archive(jobs / "grpo-1").set_status("SUCCEEDED", tags={"team": "a", "final": True})
    Archive(jobs / "grpo-2").set_status("RUNNING", attempt=2, tags={"team": "a", "stage": 2})
    for tags, names in (({"team": "a"}, ["grpo-2", "grpo-1"]), ({"team": "a", "final": "true"}, ["grpo-1"])):
        listed = latest_jobs(jobs, LISTING, 20, tags)
        assert ([job.submission_id for job in listed.jobs], listed.total) == (names, len(names))


def test_the_latest_jobs_with_a_head(jobs: Path) -> None:
    listed = latest_jobs(jobs, LISTING, 20)
    assert [job.submission_id for job in listed.jobs] == ["sft-3", "raysubmit_1", "grpo-2", "grpo-1"]
    assert [job.state for job in listed.jobs] == ["PENDING", "RUNNING", "RUNNING", "SUCCEEDED"]
    assert listed.jobs[0].reason == "no resources"
    assert listed.jobs[1] == JobInfo("raysubmit_1", "RUNNING", submitted_at=2.5)
    assert listed.jobs[2].driver_node_ip == "10.0.0.2"
    assert listed.total == 4
    assert JobList.from_json(json.loads(json.dumps(listed.to_json()))) == listed


def test_the_end_of_an_id_and_the_latest_job_stand_for_it(jobs: Path) -> None:
    assert find_job(jobs, "po-1").submission_id == "grpo-1"
    assert find_job(jobs, "last").submission_id == "sft-3"
    # An id that is wrong must not harm another job.
    for short_id, harms in (("-1", False), ("o-1", False), ("last", True), ("po-1", True), ("rpo-1", True)):
        with pytest.raises(UnknownJobError, match="There is no job"):
            find_job(jobs, short_id, harms=harms)
    for name in ("sft-20261127-094816-c42f", "sft-20261127-094817-0c42", "other-grpo-1"):
        Archive(jobs / name).reserve()
    assert find_job(jobs, "c42f", harms=True).submission_id == "sft-20261127-094816-c42f"
    with pytest.raises(UnknownJobError, match="There is no job"):
        find_job(jobs, "42", harms=True)
    with pytest.raises(UnknownJobError, match="the end of several ids: grpo-1, other-grpo-1"):
        find_job(jobs, "po-1")
    # A job with that very id is that job.
    assert find_job(jobs, "grpo-1").submission_id == "grpo-1"
    Archive(jobs / "last").reserve()
    assert find_job(jobs, "last", harms=True).submission_id == "last"
