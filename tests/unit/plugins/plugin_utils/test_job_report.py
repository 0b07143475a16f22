"""Reports on jobs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.info import JobInfo
from ansible_collections.argus.verl.plugins.plugin_utils import job_report
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import job_commands, poll_job, status_report
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import ProgramError


def listed(*jobs: JobInfo) -> dict[str, Any]:
    """As ray_job_info returns it."""
    return {"jobs": [job.to_json() for job in jobs], "total": 9, "directory": "/j", "problem": "", "time": 1000.0}


def test_the_report_on_the_latest_jobs() -> None:
    report = status_report(listed(JobInfo("sft-1", "RUNNING", submitted_at=940.0, archive="/j/sft-1")), "mvp")
    assert report["title"] == "Cluster mvp: latest 1 of 9 jobs in /j"
    assert report["rows"] == [["sft-1", None, "RUNNING", "-", "1 min"]]
    assert report["text"] == ["One job:  ansible-playbook playbooks/status.yml -e submission_id=ID"]


@pytest.mark.parametrize(
    ("state", "names"), [("RUNNING", ["Follow", "Stop", "Fetch"]), ("FAILED", ["Log", "Resubmit", "Fetch"])]
)
def test_the_report_on_one_job(state: str, names: list[str]) -> None:
    job = {**JobInfo("sft-1", state, archive="/j/sft-1").to_json(), "jobspec": {"workload": "sft"}}
    report = status_report({"job": job, "time": 1000.0}, "mvp")
    assert (report["title"], report["header"], report["rows"]) == (f"Job sft-1: {state}", [], [])
    commands = report["text"][report["text"].index("") + 1 :]
    assert [line.partition(":")[0] for line in commands] == names


@pytest.mark.parametrize(
    ("state", "resumable", "registered", "offers"),
    [
        ("RUNNING", None, True, []),
        ("SUCCEEDED", None, True, ["Resubmit", "Export"]),
        ("STOPPED", 10, None, ["Resubmit", "resume", "Export"]),
        ("FAILED", 10, True, ["Resubmit", "resume", "Export"]),
        # The head does not know it.
        ("FAILED", 10, False, ["Export"]),
    ],
)
def test_what_an_ended_job_offers(
    state: str, resumable: int | None, registered: bool | None, offers: list[str]
) -> None:
    job = JobInfo("sft-1", state, archive="/j/sft-1", resumable=resumable, checkpoints=(10,)).to_json()
    answer = {"job": job, "time": 1000.0, "slow": 7.4, "registered": registered}
    text = status_report(answer, "mvp")["text"]
    lines = {line.partition(":")[0]: line for line in text}
    shown = [name for name in ("Resubmit", "Export") if name in lines]
    assert shown == [name for name in offers if name != "resume"]
    assert lines.get("Resubmit", "").endswith(" -e set=resume_from=sft-1") == ("resume" in offers)
    assert "7 s" in text[0] and status_report({**answer, "slow": 0.0}, "mvp")["text"] == text[1:]
    # The next call has no checkpoint, and neither does a job that has succeeded.
    assert "resume_from" not in "".join([*job_commands("sft-1", state), *job_commands("sft-1", "SUCCEEDED", 10)])


# --- A job that is followed -------------------------------------------------------------------------------------------

GONE = ProgramError("gone", may_answer_later=True)
RUNS, ENDED = JobInfo("sft-1", "RUNNING"), JobInfo("sft-1", "SUCCEEDED")
NO_STEWARD = JobInfo("sft-1", "RUNNING", unattended=True, notice="waits for a steward")


@pytest.mark.parametrize(
    ("replies", "count", "message"),
    [
        # The head restarts, and contact in between starts the time limit anew.
        ([GONE, AnsibleConnectionFailure("refused"), ENDED], 3, ""),
        ([RUNS, *[GONE] * 15, RUNS, *[GONE] * 15, ENDED], 33, ""),
        ([RUNS, *[NO_STEWARD] * 50, JobInfo("sft-1", "RETRYING"), *[NO_STEWARD] * 50, ENDED], 103, ""),
        # The head answers neither, but the launcher reports.
        ([*[JobInfo("sft-1", "RUNNING", problem="refused", silent_for=4.0)] * 100, ENDED], 101, ""),
        # 120 seconds, with a pause of 7, or of 2.
        ([RUNS, GONE], 18, "gone"),
        ([NO_STEWARD], 62, "waits for a steward"),
        ([JobInfo("sft-1", "RUNNING", problem="refused")], 62, "refused"),
        # Waiting helps nothing.
        ([RUNS, ProgramError("wrong")], 2, "wrong"),
    ],
)
def test_how_long_a_job_is_followed(
    monkeypatch: pytest.MonkeyPatch, replies: list[JobInfo | Exception], count: int, message: str
) -> None:
    seconds = [0.0]
    sleep = lambda pause: seconds.append(seconds[-1] + pause)  # noqa: E731
    monkeypatch.setattr(job_report, "time", SimpleNamespace(monotonic=lambda: seconds[-1], sleep=sleep))
    calls: list[JobInfo | Exception] = []

    def ask() -> dict[str, Any]:
        calls.append(replies[min(len(calls), len(replies) - 1)])
        if isinstance(calls[-1], Exception):
            raise calls[-1]
        return {"job": calls[-1].to_json()}

    try:
        assert next(job for job, _answer in poll_job(ask, "sft-1") if job.state == "SUCCEEDED") and not message
    except ProgramError as error:
        assert message and message in str(error)
    assert len(calls) == count
