"""What goes wrong in three weeks of training: lost nodes, hangs, full clusters, a head that dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from archive_files import lines_of, metrics_of
from system import (
    ENVIRONMENT,
    HEAD,
    NODES,
    REPO,
    SHARED_ROOT,
    Job,
    Submit,
    events,
    held,
    in_ray,
    on_node,
    playbook,
    playbook_command,
    processes_of,
    ray_jobs,
    until,
)

from argus.archive import checkpoints
from argus.evidence import hardware
from argus.jobs.listing import wait_and_describe

ONE_NODE: dict[str, Any] = {"resources": {"nnodes": 1, "gpus_per_node": 1}}
# Does not end by itself. Its checkpoints are not at the end of an epoch, which has 8 steps.
LONG = {"trainer.save_freq": 5, "trainer.test_freq": -1}
SLOW_ROWS = Path(__file__).with_name("slow_rows.py")
SLOW = {"data.custom_cls.path": f"/private/user/code/{SLOW_ROWS.name}", "data.custom_cls.name": "SlowRows"}
ENDLESS = {**LONG, **SLOW, "trainer.total_epochs": 1000}


@pytest.fixture(autouse=True, scope="module")
def slow_rows(submit: Submit) -> None:
    shutil.copy(SLOW_ROWS, SHARED_ROOT / "user" / "code")


def engine(*arguments: str) -> str:
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True).stdout


@contextmanager
def killed(node: str) -> Iterator[None]:
    """Kill a node, and start it again at the end."""
    engine("kill", node)
    try:
        yield
    finally:
        engine("start", node)


def known_checkpoints(job: Job) -> tuple[str, tuple[int, ...]]:
    """The state of a job, and the steps of its checkpoints as status lists them."""
    info = wait_and_describe(job.archive, None, tail=0, timeout=0)
    return info.state, info.checkpoints


def assert_all_steps(job: Job, count: int) -> None:
    """The joined metrics have each step once; the lost attempt may lack that of its last checkpoint.

    verl writes the checkpoint of a step before its metrics.
    """
    steps = [entry["step"] for entry in metrics_of(job.archive)]
    resumed_from = job.archive.read_status().attempts[-1].resumed_from
    assert steps == [step for step in range(1, count + 1) if step in steps or step != resumed_from]


def test_grpo_resumes_after_a_node_was_lost(submit: Submit) -> None:
    settings = {
        **{"trainer.total_training_steps": 10, "trainer.save_freq": 2},
        **{"trainer.max_actor_ckpt_to_keep": 1, "trainer.max_critic_ckpt_to_keep": 1},
    }
    job = submit("grpo", resources={"nnodes": 2, "gpus_per_node": 1}, retries=2, trainer_overrides=settings)
    tracker = job.archive.path / "checkpoints" / checkpoints.TRACKER_FILE
    until(lambda: tracker.exists() and len(list(metrics_of(job.archive))) >= 3, "a checkpoint, and a step after it")
    driver = job.archive.read_status().driver["host"]
    with killed(next(node for node in NODES[1:] if node != driver)):
        # verl itself would wait for it forever.
        until(lambda: job.archive.read_status().state == "RETRYING", "the loss is noticed")
    # verl does not know the checkpoint of the first attempt, and leaves the directory of one that it removes.
    until(lambda: known_checkpoints(job) == ("RUNNING", (4,)), "one checkpoint while it runs")
    first, second = job.wait()["attempts"]
    assert (first["kind"], second["state"]) == ("node_lost", "SUCCEEDED") and second["resumed_from"] > 0
    # Each attempt has its own metrics file, because verl truncates the file at its start.
    steps = [line["step"] for line in lines_of(job.archive, "logs/metrics-2.jsonl")]
    assert min(steps) in (second["resumed_from"], second["resumed_from"] + 1)
    assert_all_steps(job, 10)
    assert events(job).count("RETRYING") == 1 and events(job)[-1] == "CLOSED"
    # All attempts together have as many checkpoints as one keeps.
    assert known_checkpoints(job) == ("SUCCEEDED", (10,))
    assert [path.name for path in (job.archive.path / "checkpoints").glob("*/actor")] == ["actor"]


def ranks_of(job: Job, node: str) -> list[str]:
    """The processes of a job on a node that are a rank of torchrun."""
    lines = on_node(node, "ps", "-eo", "pid=,args=").splitlines()
    module = f"-m {job.archive.plan().module} "
    return [line.split()[0] for line in lines if module in line and job.submission_id in line]


@pytest.mark.slow
def test_torchrun_resumes_after_a_rank_was_killed_and_after_the_drivers_node_was_lost(submit: Submit) -> None:
    job = submit(
        "sft", launcher="torchrun", resources={"nnodes": 2, "gpus_per_node": 1}, retries=2, trainer_overrides=ENDLESS
    )
    tracker = job.archive.path / "checkpoints" / checkpoints.TRACKER_FILE
    until(tracker.exists, "a checkpoint")
    ranks = {node: ranks_of(job, node) for node in NODES}
    assert {node: len(processes) for node, processes in ranks.items()} == dict(zip(NODES, (0, 1, 1), strict=True))
    on_node(NODES[2], "kill", "-KILL", *ranks[NODES[2]])
    until(lambda: lines_of(job.archive, "logs/metrics-2.jsonl"), "it resumes")
    driver = job.archive.read_status().driver["host"]
    with killed(driver):
        until(lambda: events(job).count("RETRYING") == 2, "the loss is noticed")
    until(lambda: lines_of(job.archive, "logs/metrics-3.jsonl"), "it resumes")
    until(
        lambda: any({*NODES[1:]} <= {*line["nodes"]} for line in lines_of(job.archive, hardware.MEASUREMENTS_FILE)),
        "its nodes are measured",
    )
    # It ends on all nodes.
    stopped = playbook("stop", submission_id=job.submission_id)
    assert "changed=1" in stopped.stdout
    attempts = job.wait("STOPPED")["attempts"]
    assert [attempt["kind"] for attempt in attempts] == ["killed", "node_lost", "stopped"]
    assert all(attempt["resumed_from"] > 0 for attempt in attempts[1:])
    assert re.search(r"rank [01] \(pid=\d+\) was killed by SIGKILL", attempts[0]["reason"])
    assert re.fullmatch(rf"node {driver} was lost \(.+\), and the driver with it", attempts[1]["reason"])
    log = job.log()
    # Every rank names itself, on whichever node it is.
    assert set(re.findall(r"\(rank(\d) pid=\d+\)", log)) == set("01")
    assert re.search(r"\(rank0 pid=\d+\) .*Total training steps: 8000,", log)
    # Some of its lines: those of a rank of the second attempt.
    of_rank = {"job_log_rank": "1", "job_log_attempt": 2, "job_log_lines": 100_000}
    shown = playbook("logs", submission_id=job.submission_id, **of_rank).stdout
    second = re.split(r"ARGUS_VERL_ATTEMPT=\d", log)[1]
    assert shown.count("(rank1 pid=") == second.count("(rank1 pid=") > 0 and "(rank0 pid=" not in shown
    for node in NODES:
        assert processes_of(job, node) == []
    swept = [event for event in lines_of(job.archive, "events.jsonl") if event["event"] == "SWEPT"]
    assert [(event["killed"], event["left"]) for event in swept] == [(0, 0)] * 3


CANARY = "canary-7d1e-4b0a"
SECRETS = {"job_secrets": {"CANARY_API_KEY": "{{ lookup('ansible.builtin.env', 'CANARY_API_KEY') }}"}}
HANGING = """
import os
import threading

calls = 0


def wait_for_a_judge_that_never_answers():
    threading.Event().wait()


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    global calls
    calls += 1
    print("the key is", os.environ["CANARY_API_KEY"], "of length", len(os.environ["CANARY_API_KEY"]), flush=True)
    if calls > 40:
        wait_for_a_judge_that_never_answers()
    return float(len(solution_str))
"""


def test_a_hanging_reward_is_found_and_a_secret_stays_secret(submit: Submit, tmp_path: Path) -> None:
    (SHARED_ROOT / "user" / "code" / "hanging.py").write_text(HANGING)
    job = submit(
        "grpo",
        environment={"CANARY_API_KEY": CANARY},
        arguments=["-vvv", "-e", json.dumps(SECRETS)],
        reward_fn_path="hanging.py",
        stall_timeout="40s",
        on_stall="stop",
        secrets=["CANARY_API_KEY"],
        # main_ppo sets this one itself, and Ray refuses two values for one key.
        env_vars={"PYTHONHASHSEED": "0"},
        trainer_overrides={"trainer.total_training_steps": 6},
    )
    until(lambda: "RUNNING" in events(job), "it runs")
    for node in NODES:
        assert CANARY not in on_node(node, "ps", "-eo", "args")
    status = job.wait("FAILED")
    assert status["failure"]["kind"] == "stalled"
    assert "STALLED" in events(job)
    stacks = [path.read_text() for path in job.archive.path.glob("debug/*-stall-*/stacks.txt")]
    assert any("wait_for_a_judge_that_never_answers" in text for text in stacks)

    # The trainer's workers had the secret, and printed it.
    assert re.search(rf"the key is \[secret\] of length {len(CANARY)}", job.log())
    playbook("debug_bundle", submission_id=job.submission_id, artifacts_dir=str(tmp_path))
    for root in (SHARED_ROOT, tmp_path):
        holders = [path for path in root.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
        assert holders == []
    assert CANARY not in in_ray("print(c.list_jobs())")
    assert CANARY not in job.submitted  # Ansible's output, at -vvv
    for node in NODES:
        assert subprocess.run(["docker", "exec", node, "grep", "-rqs", CANARY, "/tmp/ray"], check=False).returncode == 1
        inspected = subprocess.run(["docker", "inspect", node], check=True, capture_output=True, text=True)
        assert CANARY not in inspected.stdout


def test_two_simultaneous_submissions_create_one_job_and_a_deadline_ends_another(
    submit: Submit, tmp_path: Path
) -> None:
    endless = submit("sft", **ONE_NODE, deadline="60s", trainer_overrides=ENDLESS)
    never = submit("sft", **ONE_NODE, depends_on=endless.submission_id)
    spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml").read_text())
    spec |= {**ONE_NODE, "submission_id": f"test-twice-{time.time_ns()}", "env_vars": {"SLOW_ROWS_SECONDS": "0.2"}}
    # It still trains when the next one is submitted.
    spec["trainer_overrides"] |= SLOW
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    outputs: list[str] = []

    def run() -> None:
        outputs.append(playbook("submit", jobspec=str(tmp_path / "spec.yaml")).stdout)

    threads = [threading.Thread(target=run) for _index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted("changed=1" in output for output in outputs) == [False, True], outputs
    job = Job(spec["submission_id"])
    # Its last checkpoint is at the end of an epoch: verl trains nothing more from there, and exits with success.
    chain = {"depends_on": job.submission_id, "resume_from": job.submission_id}
    again = submit("sft", **ONE_NODE, **chain, trainer_overrides={"trainer.total_epochs": 2})
    assert again.archive.read_status().reason == f"waits for {job.submission_id} to succeed"
    job.wait()
    assert list(ray_jobs(job.submission_id)) == [job.submission_id]
    assert events(job).count("SUBMITTED") == 1

    status = again.wait("FAILED")
    checkpoint = f"/private/jobs/{job.submission_id}/checkpoints/global_step_8"
    assert status["lineage"] == {"resumed_from": job.submission_id, "checkpoint": checkpoint}
    assert "without an error and without any step, at step 0 of 16" in status["reason"]

    assert endless.wait("FAILED")["failure"]["kind"] == "deadline"
    assert never.wait("FAILED")["failure"]["kind"] == "dependency"
    assert list(endless.archive.path.glob("debug/*-deadline-*/stacks.txt"))
    for node in NODES[1:]:
        assert processes_of(endless, node) == []


def test_a_pending_driver_is_really_cancelled(submit: Submit) -> None:
    """Ray's own stop_job returns True and does nothing."""
    unmet = {"resources": {"entrypoint_resources": {"worker_node": 100}}}
    sixty = {"entrypoint_num_cpus": 1, "entrypoint_resources": {"worker_node": 60}}
    with held(**sixty), held(**sixty):
        jobs = {
            "STOPPED": submit("sft", **ONE_NODE, ray=unmet),
            "FAILED": submit("sft", **ONE_NODE, ray=unmet, deadline="20s"),
        }
        for job in jobs.values():
            assert ray_jobs(job.submission_id) == {job.submission_id: "PENDING"}
        playbook("stop", submission_id=jobs["STOPPED"].submission_id)
        for state, job in jobs.items():
            job.wait(state)
            assert ray_jobs(job.submission_id) == {job.submission_id: "FAILED"}
        assert jobs["FAILED"].archive.read_status().failure.kind == "deadline"


def namespace_of_the_head() -> Path:
    """The PID namespace of the head's container."""
    inspected = ["docker", "inspect", "--format", "{{.State.Pid}}", HEAD]
    head = subprocess.run(inspected, check=True, capture_output=True, text=True).stdout.strip()
    return Path(f"/proc/{head}/ns/pid").readlink()


def submissions_in(namespace: Path) -> list[int]:
    """The processes of the program in a container that submit a job, by their ids on this machine."""
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        # Others end meanwhile.
        with contextlib.suppress(OSError):
            submits = (process / "cmdline").read_bytes().endswith(b"\0submit\0--json\0")
            if submits and (process / "ns/pid").readlink() == namespace:
                pids.append(int(process.name))
    return pids


def test_a_submission_that_is_killed_ends(submit: Submit, tmp_path: Path) -> None:
    spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml").read_text())
    spec |= {**ONE_NODE, "submission_id": f"test-killed-{time.time_ns()}"}
    spec["trainer_overrides"]["trainer.total_training_steps"] = 2
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    job, head = Job(spec["submission_id"]), namespace_of_the_head()
    submitting = subprocess.Popen(
        playbook_command("submit", jobspec=str(tmp_path / "spec.yaml")),
        cwd=REPO,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    # From here on, the steward knows of it.
    pids: list[int] = []
    while not (job.archive.path / "config" / "job_spec.json").exists():
        assert submitting.poll() is None
        # Looking for them takes longer than submitting, once the job has been examined.
        pids = submissions_in(head)
    for pid in pids:
        # One may end with another.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    submitting.wait()
    until(lambda: {"CLOSED", "RUNNING"} & {*events(job)}, "it is closed, or Ray had it before the program was killed")
    if "CLOSED" not in events(job):
        playbook("stop", submission_id=job.submission_id)
        job.wait("STOPPED", "SUCCEEDED")
        return
    status = job.archive.read_status()
    assert status.state == "FAILED" and status.reason.endswith("its submission was interrupted")
    assert ray_jobs(job.submission_id) == {}


def submitted_and_followed(directory: Path, **changes: Any) -> tuple[Job, subprocess.Popen[bytes], Path]:
    """An endless job, `submit -e job_wait=true` that follows it, and the file with what this shows."""
    spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml").read_text())
    spec |= {**ONE_NODE, "submission_id": f"test-followed-{time.time_ns()}", **changes}
    spec["trainer_overrides"] |= ENDLESS
    (directory / "spec.yaml").write_text(yaml.safe_dump(spec))
    shown = directory / "shown"
    with shown.open("w") as terminal:
        following = subprocess.Popen(
            playbook_command("submit", jobspec=str(directory / "spec.yaml"), job_wait=True, **SECRETS),
            cwd=REPO,
            env={**ENVIRONMENT, "CANARY_API_KEY": CANARY},
            stdout=terminal,
            start_new_session=True,
        )
    job = Job(spec["submission_id"])
    until(lambda: f"{job.submission_id}  RUNNING" in shown.read_text(), "a progress line")
    return job, following, shown


@pytest.mark.usefixtures("submit")  # the cluster
def test_a_job_trains_on_without_its_head_and_ends_with_its_cluster(tmp_path: Path) -> None:
    """The last test, because it leaves no cluster."""
    job, following, shown = submitted_and_followed(tmp_path, retries=1, secrets=["CANARY_API_KEY"])
    tracker = job.archive.path / "checkpoints" / checkpoints.TRACKER_FILE
    until(tracker.exists, "a checkpoint")
    # Ray reads its token at its start: a new one would end the job.
    refused = playbook("cluster_up", check=False, rotate_token=True)
    assert refused.returncode != 0
    assert job.submission_id in refused.stdout
    engine("kill", HEAD)
    done = job.archive.heartbeat().step or 0
    try:
        playbook("debug_bundle", submission_id=job.submission_id, artifacts_dir=str(tmp_path))
        fetched = tmp_path / job.submission_id
        assert list(fetched.glob("debug/*-demand-*/processes.json"))
        problems = [entry["error"] for entry in lines_of(job.archive, "debug/index.jsonl") if entry.get("error")]
        assert any("only this node was inspected" in problem for problem in problems)
        assert "train/loss" in playbook("logs", submission_id=job.submission_id).stdout
        assert "the job goes on" in playbook("status", submission_id=job.submission_id).stdout
        until(lambda: (job.archive.heartbeat().step or 0) > done + 1, "it trains on")
    finally:
        up = playbook("cluster_up")
    assert [line for line in up.stdout.splitlines() if line.startswith("changed: ")] == [f"changed: [{HEAD}]"]
    # Its end is noticed by the head that came back, also with Ray's own means.
    # It may end the container before the command has.
    subprocess.run(["docker", "exec", HEAD, "pkill", "-KILL", "gcs_server"], check=False)
    until(lambda: engine("inspect", "--format", "{{.RestartCount}}", HEAD).strip() == "1", "it is started again")
    done = job.archive.heartbeat().step or 0
    until(lambda: (job.archive.heartbeat().step or 0) > done + 1, "it trains on")
    status = job.archive.read_status()
    assert (status.state, status.attempt, status.attempts) == ("RUNNING", 1, ())
    until(lambda: "HEAD_RETURNED" in events(job), "the event")

    os.killpg(following.pid, signal.SIGINT)  # as a terminal does, to the whole foreground group
    following.wait(timeout=60)
    assert f"playbooks/logs.yml -e submission_id={job.submission_id} -e job_wait=true" in shown.read_text()
    assert not re.search(rf"{job.submission_id} +FAILED", shown.read_text())
    assert job.archive.read_status().state == "RUNNING"
    assert_ends_with_its_cluster(job)


def assert_ends_with_its_cluster(job: Job) -> None:
    """cluster_down refuses while it runs; asked again, it ends the job before its nodes."""
    secrets = SHARED_ROOT / "jobs" / ".secrets" / f"{job.submission_id}.json"
    assert secrets.exists()
    refused = playbook("cluster_down", check=False)
    assert refused.returncode != 0 and job.submission_id in refused.stdout
    assert job.submission_id in playbook("cluster_down", allow_disruption=True).stdout
    assert not secrets.exists()
    status = job.wait("STOPPED")
    assert (status["reason"], status["failure"]["kind"]) == ("the cluster was removed, by cluster_down.yml", "stopped")
    # Its evidence is collected while there is a head.
    assert list(job.archive.path.glob("debug/*-end-*"))
    assert events(job)[-1] == "CLOSED" and "RETRYING" not in events(job)
    assert not list(job.archive.path.glob(".status.json.*"))
