"""Reports on jobs."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.filter.job import evidence_rows, job_status
from ansible_collections.argus.verl.plugins.module_utils.status.info import JobInfo


def test_rows_of_evidence() -> None:
    asked = {"files": 12, "nodes": ["a", "b"], "problems": ["gpu.txt no answer"]}
    assert evidence_rows(asked, "head") == [["head", 12, "a, b", "gpu.txt no answer"]]
    # Without the head, the result has one entry for each worker, which may be gone as well.
    gone = {"results": [{**asked, "item": "w0", "problems": []}, {"item": "w1", "msg": "no such container"}]}
    assert evidence_rows(gone, "head") == [["w0", 12, "a, b", None], ["w1", 0, None, "no such container"]]


def listed(*jobs: JobInfo) -> dict[str, Any]:
    """As ray_job_info returns it."""
    return {"jobs": [job.to_json() for job in jobs], "total": 9, "directory": "/j", "problem": "", "time": 1000.0}


def test_the_report_on_the_latest_jobs() -> None:
    report = job_status(listed(JobInfo("sft-1", "RUNNING", submitted_at=940.0, archive="/j/sft-1")), "mvp")
    assert report["title"] == "Cluster mvp: latest 1 of 9 jobs in /j"
    assert report["rows"] == [["sft-1", None, "RUNNING", "-", "1 min"]]
    assert report["text"] == ["One job:  ansible-playbook playbooks/status.yml -e submission_id=ID"]


@pytest.mark.parametrize(
    ("state", "names"), [("RUNNING", ["Follow", "Stop", "Fetch"]), ("FAILED", ["Log", "Resubmit", "Fetch"])]
)
def test_the_report_on_one_job(state: str, names: list[str]) -> None:
    job = {**JobInfo("sft-1", state, archive="/j/sft-1").to_json(), "jobspec": {"workload": "sft"}}
    report = job_status({"job": job, "time": 1000.0}, "mvp")
    assert (report["title"], report["header"], report["rows"]) == (f"Job sft-1: {state}", [], [])
    commands = report["text"][report["text"].index("") + 1 :]
    assert [line.partition(":")[0] for line in commands] == names
