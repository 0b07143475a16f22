"""Several jobs of PPO and GRPO in one cluster: each has a TransferQueue of its own, and none gets another's samples."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from archive_files import metrics_of
from program import write_program
from system import HEAD, SHARED_ROOT, Job, Submit, events, held, playbook, ray_jobs, said, until

from argus.checks.child import MARK_VARIABLE

USER_CODE = SHARED_ROOT / "user" / "code"
# The share of digits, moved to a range of its own. In a job, not in the gate's dry call, it waits for the file `go`.
REWARD = f"""
import os, pathlib, time
GO = pathlib.Path("/private/user/code/go")
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if {MARK_VARIABLE!r} not in os.environ and not GO.exists():
        print("waits for the others", flush=True)
        while not GO.exists():
            time.sleep(0.2)
    return LOWEST + sum(character.isdigit() for character in solution_str) / max(1, len(solution_str))
"""
# As small as a job can be. Lengths that differ keep a sample of another job from being a valid one of this job.
SMALL = {
    "trainer.total_training_steps": 3,
    "data": {"train_batch_size": 4, "max_prompt_length": 64, "max_response_length": 16},
    "actor_rollout_ref.actor.ppo_mini_batch_size": 4,
    "actor_rollout_ref.rollout.n": 2,
}
ONE_NODE: dict[str, Any] = {"nnodes": 1, "gpus_per_node": 1}
# A controller of another job, under the name that TransferQueue uses when nothing maps it.
FOREIGN_CONTROLLER = """
import sys, time, ray
ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
class TransferQueueController:
    def ready(self): return True
actor = ray.remote(num_cpus=0)(TransferQueueController)
actor = actor.options(name="TransferQueueController", namespace="transfer_queue").remote()
ray.get(actor.ready.remote())
print("ready", flush=True)
sys.stdin.read()
"""


def reward(name: str, lowest: int) -> str:
    (USER_CODE / f"{name}.py").write_text(REWARD.replace("LOWEST", str(lowest)))
    return f"{name}.py"


@contextmanager
def together() -> Iterator[Callable[[], None]]:
    """The jobs' rewards wait until what this gives is called."""
    go = USER_CODE / "go"
    go.unlink(missing_ok=True)
    try:
        yield go.touch
    finally:
        go.touch()


@contextmanager
def foreign_controller() -> Iterator[None]:
    command = ["docker", "exec", "-i", HEAD, "python3", "-c", FOREIGN_CONTROLLER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdin
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()


def assert_own_samples(job: Job, lowest: float) -> None:
    """All rewards of the job are its own."""
    for name in ("critic/rewards/min", "critic/rewards/max"):
        values = job.values(name)
        assert len(values) == 3
        assert all(lowest <= value <= lowest + 1 for value in values), (job.submission_id, name, values)


def waits_for_others(job: Job) -> bool:
    return job.archive.driver_log.exists() and "waits for the others" in job.log()


def without_mapping() -> str:
    """A directory for PYTHONPATH with a hook that maps nothing, so that the guard alone is left."""
    isolation = write_program(USER_CODE / "unmapped") / "argus" / "hooks" / "isolation.py"
    isolation.write_text(isolation.read_text().replace('f"{SHARED_NAMESPACE}-{job_id}"', "SHARED_NAMESPACE"))
    return "/private/user/code/unmapped"


@pytest.mark.acceptance
def test_each_job_has_its_own_samples(submit: Submit) -> None:
    """At once: GRPO, PPO over two nodes, and a job whose hook maps nothing."""
    waits: dict[str, Any] = {"wait_for_resources": "10m"}
    with foreign_controller(), together() as go:
        first = submit(
            "grpo",
            **waits,
            resources=ONE_NODE,
            reward_fn_path=reward("one_to_two", 1),
            trainer_overrides=SMALL,
        )
        two_nodes, below_zero = {**ONE_NODE, "nnodes": 2}, reward("minus_five", -5)
        second = submit("ppo", **waits, trainer_overrides=SMALL, resources=two_nodes, reward_fn_path=below_zero)
        # All of them are in their first step, with samples in their queues.
        for job in (first, second):
            until(partial(waits_for_others, job), f"{job.submission_id} computes its first rewards")
        go()
        path = {"PYTHONPATH": without_mapping()}
        control = submit("grpo", **waits, trainer_overrides=SMALL, resources=ONE_NODE, env_vars=path)
        status = control.wait("FAILED")
        assert status["failure"]["kind"] == "transfer_queue"
        assert "TransferQueueController belongs to another job: Ray's job" in status["reason"]
        assert control.submission_id in status["reason"]
        assert not list(metrics_of(control.archive))
        for job in (second, first):
            job.wait()
    assert_own_samples(first, 1)
    assert_own_samples(second, -5)
    assert len(set(second.values("critic/vf_loss"))) == 3


def test_a_job_without_capacity_is_refused_or_queued(submit: Submit) -> None:
    """Two jobs at once, and one place. Ray may place a job of two nodes on one that has room, so each has one GPU."""
    short = {"trainer.total_training_steps": 2}
    jobs: list[Job] = []

    def run() -> None:
        jobs.append(submit("sft", resources=ONE_NODE, wait_for_resources="10m", trainer_overrides=short))

    on_worker: dict[str, Any] = {"entrypoint_resources": {"worker_node": 1}}
    with held(entrypoint_num_gpus=4, **on_worker) as foreign, held(entrypoint_num_gpus=3, **on_worker):
        refused = submit("sft", check=False, trainer_overrides=short)
        expected = "the job needs 2 workers with 1 GPUs and 10 CPUs free; available: 1"
        assert expected in said(refused.submitted)
        assert not refused.archive.path.exists()
        threads = [threading.Thread(target=run) for _job in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # What was just accepted counts as taken.
        first, second = sorted(jobs, key=lambda job: "QUEUED" in events(job))
        assert "QUEUED" not in events(first)
        assert second.archive.read_status().state == "QUEUED" and ray_jobs(second.submission_id) == {}
        assert f"once {first.submission_id} has what it needs" in second.archive.read_status().reason
        # Whose job it is that holds the resources, and that it is not one of ours.
        shown = playbook("cluster_status", "status").stdout
        assert "3 of 3 nodes as expected" in shown
        assert re.search(rf"{foreign} +- +RUNNING", shown)
        assert "Jobs without a workload were submitted to Ray directly." in shown
        kept = playbook("cluster_down", check=False)
        assert kept.returncode != 0 and f"{foreign} (RUNNING)" in said(kept.stdout)
        first.wait()
        until(lambda: "RUNNING" in events(second), "the other one starts")
    playbook("stop", submission_id=second.submission_id)
    # It has two steps only, and may be faster.
    ended = second.wait("STOPPED", "SUCCEEDED")
    # A trainer's resources are free some seconds before its launcher records the end.
    assert (first.archive.read_status().ended_at or 0) <= (second.archive.read_status().started_at or 0) + 15, ended
    assert events(second)[0] == "QUEUED" and events(second).count("SUBMITTED") == 1
