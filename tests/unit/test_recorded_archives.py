"""Archives that an older version wrote are still read; see fixtures/archives/README.md."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.jobspec.parse import parse_jobspec
from argus.verbs.fetch import FetchRequest, fetch
from argus.verbs.status import StatusRequest, status

RECORDED = Path(__file__).parent / "fixtures" / "archives"
EXPECTED: dict[str, Any] = json.loads((RECORDED / "expected.json").read_text(encoding="utf-8"))
JOBS = [(name, job) for name, recorded in EXPECTED.items() for job in recorded["jobs"]]


def shared_root(name: str, directory: Path) -> Path:
    """A shared root with the recorded archives."""
    with tarfile.open(RECORDED / f"{name}.tar.gz") as tar:
        tar.extractall(directory / "jobs", filter="data")
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


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_status_of_one_job(name: str, job: str, tmp_path: Path) -> None:
    root = shared_root(name, tmp_path)
    shown = status(StatusRequest(submission_id=job, shared_root=str(root), address="", tail=3))["job"]
    jobspec = shown.pop("jobspec")
    expected = json.loads(json.dumps(EXPECTED[name]["jobs"][job]).replace("<jobs>", str(root / "jobs")))
    assert shown.pop("unreadable") == []
    assert (shown.pop("root_problem"), shown.pop("written_at") > 0) == ("", True)
    # Younger than the archives, whose checkpoints have no contents.
    assert [shown.pop(name) for name in YOUNGER] == [[], "", None, None, None, "", {}, None, ""]
    assert not any(attempt.pop("phases") for attempt in shown["attempts"])
    assert shown["progress"].pop("trend")[-1:] == [shown["progress"]["last"]][: shown["progress"]["last"] is not None]
    assert ("step" in shown["progress"].pop("seconds")) == is_measured(expected)
    assert shown["progress"].pop("validation") == {}
    assert shown.pop("unattended") == bool(shown.pop("notice")) == (not shown["ended"])
    # Their directories are recorded, and nothing in them.
    assert shown == {**expected, "checkpoints": [], "models": []}
    assert jobspec["workload"] == expected["workload"]


@pytest.mark.parametrize("name", EXPECTED)
def test_status_of_all_jobs(name: str, tmp_path: Path) -> None:
    root = shared_root(name, tmp_path)
    shown = status(StatusRequest(shared_root=str(root), address=""))
    expected = json.loads(json.dumps(EXPECTED[name]["recent"]).replace("<jobs>", str(root / "jobs")))
    assert [job.pop("unreadable") for job in shown["jobs"]] == [[]] * len(expected)
    assert [[job.pop(name) for name in YOUNGER] for job in shown["jobs"]] == [
        [[], "", None, None, None, "", {}, None, ""]
    ] * len(expected)
    for job in shown["jobs"]:
        assert len(job["progress"].pop("trend")) <= 60
        assert job["progress"].pop("validation") == {}
        assert not any(attempt.pop("phases") for attempt in job["attempts"])
    assert all(("step" in job["progress"].pop("seconds")) == is_measured(job) for job in shown["jobs"])
    assert all(job.pop("written_at") > 0 and job.pop("root_problem") == "" for job in shown["jobs"])
    assert all(job.pop("unattended") == bool(job.pop("notice")) == (not job["ended"]) for job in shown["jobs"])
    assert shown["jobs"] == [{**job, "checkpoints": [], "models": []} for job in expected]


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_resubmit_takes_the_jobspec(name: str, job: str, tmp_path: Path) -> None:
    """`resubmit` submits the JobSpec that `status` returns without its id."""
    root = shared_root(name, tmp_path)
    given = status(StatusRequest(submission_id=job, shared_root=str(root), address=""))["job"]["jobspec"]
    findings, spec = parse_jobspec({key: value for key, value in given.items() if key != "submission_id"})
    assert findings == []
    assert spec
    assert (spec.workload, spec.code_path) == (given["workload"], "verl-0.9.1")


@pytest.mark.parametrize(("name", "job"), JOBS)
def test_fetch_takes_every_file(name: str, job: str, tmp_path: Path) -> None:
    root = shared_root(name, tmp_path)
    bundle = io.BytesIO()
    fetch(FetchRequest(submission_id=job, shared_root=str(root), checkpoints=True), bundle)
    bundle.seek(0)
    with tarfile.open(fileobj=bundle) as tar:
        fetched = set(tar.getnames())
    archive = root / "jobs" / job
    assert fetched == {str(path.relative_to(archive)) for path in archive.rglob("*") if path.is_file()}
    assert {"config/plan.json", "status.json", "events.jsonl", "logs/driver.log"} <= fetched


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
