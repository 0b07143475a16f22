from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.status.report import (
    LINE_LENGTH,
    age,
    failure_lines,
    job_report,
    jobs_report,
    readable,
    steps,
)

NOW = 1_767_268_900.0
FAILURE = {
    "kind": "gpu_oom",
    "reason": "CUDA out of memory",
    "lines": ["\x1b[36m(WorkerDict pid=7)\x1b[0m torch.OutOfMemoryError"],
    "todo": "Lower the micro batch sizes.",
}


def job(**changes: Any) -> dict[str, Any]:
    progress = {"step": 4, "total_steps": 12, "metric": "train/loss", "first": 6.0, "last": 4.25}
    return {
        "submission_id": "sft-1",
        "state": "RUNNING",
        "ended": False,
        "reason": "",
        "failure": None,
        "workload": "sft",
        "code_id": "verl-0.9.1",
        "tags": {},
        "lineage": {},
        "attempt": 1,
        "attempts": [],
        "submitted_at": NOW - 100,
        "started_at": NOW - 98,
        "ended_at": None,
        "silent_for": 4.0,
        "time_left": 192.0,
        "driver_host": "mvp-ray-worker-1",
        "driver_node_ip": None,
        "progress": progress,
        "checkpoints": [],
        "archive": "/srv/verl/jobs/sft-1",
        "log": [],
        "problem": "",
    } | changes


def detail(*commands: str, **changes: Any) -> list[str]:
    one = job(**changes)
    report = job_report({"job": one, "time": NOW, "problem": one["problem"]}, commands)
    return [report["title"], *report["text"]]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (3599, "59 min"), (7300, "2 h"), (86400, "1 d"), (864000, "10 d")],
)
def test_how_long_ago(seconds: float, text: str) -> None:
    assert age(seconds) == text


@pytest.mark.parametrize(
    ("step", "total", "text"), [(0, None, "-"), (0, 12, "0/12"), (3, None, "3/?"), (3, 12, "3/12")]
)
def test_steps(step: int, total: int | None, text: str) -> None:
    assert steps({"step": step, "total_steps": total}) == text


@pytest.mark.parametrize(
    ("line", "colour", "text"),
    [
        ("\x1b[36m(pid=7)\x1b[0m a", True, "\x1b[36m(pid=7)\x1b[0m a"),
        ("\x1b[36m(pid=7)\x1b[0m a", False, "(pid=7) a"),
        # A bar above another one; a screen that is cleared; a title.
        ("\x1b[A 50%|##", True, " 50%|##"),
        ("\x1b[2J\x1b[1;1Hb", True, "b"),
        ("\x1b]0;mine\x07c", True, "0;minec"),
        ("größer\t1", False, "größer\t1"),
    ],
)
def test_a_line_for_a_terminal(line: str, colour: bool, text: str) -> None:
    assert readable(line, colour) == text


# --- The table --------------------------------------------------------------------------------------------------------


def listed(*jobs: dict[str, Any], total: int | None = None, problem: str = "") -> dict[str, Any]:
    looked = {
        "jobs": list(jobs),
        "total": len(jobs) if total is None else total,
        "directory": "/srv/verl/jobs",
        "problem": problem,
        "time": NOW,
    }
    return jobs_report(looked, {"cluster": "mvp", "one": "status ID", "submit": "submit FILE"})


def test_the_last_jobs() -> None:
    failed = job(state="FAILED", failure=FAILURE, attempt=2, submitted_at=NOW - 7300, silent_for=None)
    waiting = job(state="PENDING", progress={"step": 0, "total_steps": None}, driver_host=None, silent_for=None)
    report = listed(waiting, job(), failed, total=40)
    assert report["title"] == "Cluster mvp: the last 3 of 40 jobs in /srv/verl/jobs"
    assert report["header"] == ["job", "workload", "state", "class", "step", "attempt", "age", "where"]
    assert report["rows"] == [
        ["sft-1", "sft", "PENDING", None, "-", 1, "1 min", None],
        ["sft-1", "sft", "RUNNING", None, "4/12", 1, "1 min", "mvp-ray-worker-1"],
        ["sft-1", "sft", "FAILED", "gpu_oom", "4/12", 2, "2 h", "mvp-ray-worker-1"],
    ]
    assert report["text"] == ["One job:  status ID"]


def test_one_job_is_no_jobs() -> None:
    assert listed(job())["title"] == "Cluster mvp: 1 job in /srv/verl/jobs"


def test_no_jobs_yet() -> None:
    report = listed()
    assert (report["title"], report["rows"]) == ("Cluster mvp: 0 jobs in /srv/verl/jobs", [])
    assert report["text"] == ["Submit:   submit FILE"]


def test_a_head_that_does_not_answer_is_said() -> None:
    report = listed(job(silent_for=7300.0), problem="connection refused")
    assert report["rows"][0][3] == "silent"
    assert report["text"][0] == "The head does not answer, states are those of the archives: connection refused"


def test_jobs_of_others_are_explained() -> None:
    text = listed(job(archive="", workload=""))["text"]
    assert text[0] == "Without a workload: jobs that Ray has and that were not submitted from here."


# --- One job ----------------------------------------------------------------------------------------------------------


def test_a_running_job_in_detail() -> None:
    assert detail("Follow:   logs", checkpoints=[10, 20], driver_node_ip="172.18.0.3", tags={"team": "x", "a": 1}) == [
        "Job sft-1: RUNNING",
        "Workload:    sft on verl-0.9.1",
        "Tags:        a=1, team=x",
        "Step:        4/12, 3:12 left",
        "Metric:      train/loss 4.250, at first 6.000",
        "Submitted:   2026-01-01 12:00:00 UTC, 1 min ago",
        "Started:     2026-01-01 12:00:02 UTC, has run 1:38",
        "Driver:      mvp-ray-worker-1 (172.18.0.3)",
        "Checkpoints: steps 10, 20",
        "Archive:     /srv/verl/jobs/sft-1",
        "",
        "Follow:   logs",
    ]


def test_a_job_that_waits() -> None:
    lines = detail(state="QUEUED", reason="needs 2 workers, 1 is free", started_at=None, driver_host=None)
    assert "Reason:    needs 2 workers, 1 is free" in lines
    assert not any(line.startswith(("Started", "Driver")) for line in lines)


def test_a_job_that_failed_says_why() -> None:
    lines = detail(state="FAILED", failure=FAILURE, reason=FAILURE["reason"], ended_at=NOW - 30, log=["the end"])
    begin = lines.index("Failed: gpu_oom: CUDA out of memory")
    assert lines[begin + 1 : begin + 3] == ["  (WorkerDict pid=7) torch.OutOfMemoryError", "To do:  " + FAILURE["todo"]]
    assert "Ended:     2026-01-01 12:01:10 UTC, 30 s ago" in lines
    assert "Started:   2026-01-01 12:00:02 UTC, ran 1:08" in lines
    # The lines that tell why are there already.
    assert "  the end" not in lines


def test_the_end_of_the_log_of_a_job_without_an_explanation() -> None:
    lines = detail(state="FAILED", failure={**FAILURE, "lines": []}, log=["short", "x" * 500])
    begin = lines.index("The end of its log:")
    assert lines[begin + 1] == "  short"
    assert len(lines[begin + 2]) == LINE_LENGTH + 2
    assert "The end of its log:" not in detail(state="SUCCEEDED", log=["short"])


def test_a_silent_job() -> None:
    lines = detail(silent_for=7300.0, problem="connection refused")
    assert "Step:      4/12" in lines
    assert "Silent:    no sign of life for 2 h: its launcher has ended without a word, or its node is gone" in lines
    assert "The head does not answer, this is what the archive tells: connection refused" in lines


def test_attempts_and_where_a_job_comes_from() -> None:
    first = {"attempt": 1, "started_at": NOW - 90, "ended_at": NOW - 25, "state": "FAILED", "kind": "node_lost"}
    first |= {"reason": "the node was lost", "resumed_from": None}
    lineage = {"resubmitted_from": "sft-0", "resumed_from": "sft-00", "checkpoint": "global_step_10"}
    lines = "\n".join(detail(attempt=2, attempts=[first], lineage=lineage))
    assert lines.startswith("Job sft-1: RUNNING, attempt 2\n")
    assert "Resubmitted: from sft-0\n" in lines
    assert "Resumed:     from sft-00, global_step_10\n" in lines
    assert "1        FAILED  node_lost  1:05  -          the node was lost\n" in lines
    # What there is to say of the only attempt of a job that has ended was said.
    assert "ATTEMPT" not in "\n".join(detail(state="FAILED", attempts=[first]))


def test_no_failure_is_no_lines() -> None:
    assert failure_lines(None) == []
