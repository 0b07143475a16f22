"""Archives that an older version wrote are still read; see fixtures/archives/README.md."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.jobspec.parse import parse_jobspec
from argus.verbs.status import StatusRequest, status

RECORDED = Path(__file__).parent / "fixtures" / "archives"
EXPECTED: dict[str, Any] = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))
JOBS = [(name, job) for name, recorded in EXPECTED.items() for job in recorded["jobs"]]


def shared_root(name: str, directory: Path) -> Path:
    """A shared root with the recorded archives."""
    shutil.unpack_archive(RECORDED / f"{name}.tar.gz", directory / "jobs")
    return directory


def is_measured(job: Mapping[str, Any]) -> bool:
    """Whether verl has measured the parts of a step."""
    return job["workload"] != "sft" and job["progress"]["step"] > 0


YOUNGER = (
    "warnings",
    "phase",
    "resumable",
    "head_away_for",
    "place",
    "submitted_by",
    "phases",
    "gpu_percent",
    "address",
)


def compare(job: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare a job as `status` shows it: without what is younger than the archives."""
    assert [job.pop(name) for name in YOUNGER] == [[], "", None, None, None, "", {}, None, ""]
    assert (job.pop("unreadable"), job.pop("root_problem"), job.pop("written_at") > 0) == ([], "", True)
    assert not any(attempt.pop("phases") for attempt in job["attempts"])
    progress = job["progress"]
    assert progress.pop("trend")[-1:] == [progress["last"]][: progress["last"] is not None]
    assert ("step" in progress.pop("seconds")) == is_measured(expected)
    assert progress.pop("validation") == {}
    assert job.pop("unattended") == bool(job.pop("notice")) == (not job["ended"])
    # Their directories are recorded, and nothing in them.
    assert job == {**expected, "checkpoints": [], "models": []}


def placed(recorded: Any, root: Path) -> Any:
    return json.loads(json.dumps(recorded).replace("<jobs>", str(root / "jobs")))


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_status_of_one_job_whose_jobspec_can_be_submitted_again(name: str, job: str, tmp_path: Path) -> None:
    root = shared_root(name, tmp_path)
    shown = status(StatusRequest(submission_id=job, shared_root=str(root), address="", tail=3))["job"]
    jobspec = shown.pop("jobspec")
    compare(shown, placed(EXPECTED[name]["jobs"][job], root))
    # `resubmit` submits it without its id.
    findings, spec = parse_jobspec({key: value for key, value in jobspec.items() if key != "submission_id"})
    assert findings == []
    assert spec and (spec.workload, spec.code_path) == (shown["workload"], "verl-0.9.1")


@pytest.mark.parametrize("name", EXPECTED)
def test_status_of_all_jobs(name: str, tmp_path: Path) -> None:
    root = shared_root(name, tmp_path)
    shown = status(StatusRequest(shared_root=str(root), address=""))["jobs"]
    expected = placed(EXPECTED[name]["recent"], root)
    assert len(shown) == len(expected)
    for job, recorded in zip(shown, expected, strict=True):
        compare(job, recorded)


def test_the_job_that_waits_for_its_next_attempt_is_looked_after(tmp_path: Path) -> None:
    """The steward of a head that starts again goes on with it: its plan and status are understood."""
    root = shared_root("retrying", tmp_path)
    archive = Archive(root / "jobs" / "sft-retried")
    assert archive.needs_steward()
    status, plan = archive.read_status(), archive.plan()
    assert plan
    assert (plan.retries, plan.workload, plan.cpus_per_node, plan.stall_timeout) == (2, "sft", 10, 1800)
    assert (status.state, status.attempt, [attempt.kind for attempt in status.attempts]) == ("RETRYING", 1, ["killed"])
    assert status.submitted_at
    assert not status.closed_at
