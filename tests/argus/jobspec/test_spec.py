from __future__ import annotations

import pytest
from jobs import MINIMAL, jobspec

from argus.jobspec.spec import (
    Inputs,
    RewardFunction,
)

# Every key that has no default in MINIMAL, with a value of its own.
EVERYTHING = {
    "submission_id": "mine",
    "workload": "ppo",
    "launcher": "ray",
    "shared_root": "/mnt",
    "code_path": "c",
    "reward_fn_path": "r.py:f",
    "model": "m",
    "dataset": "d",
    "ray": {
        "address": "https://head:1",
        "runtime_env": {"nsight": "default"},
        "resources": {"entrypoint_resources": {"train": 2}, "entrypoint_num_cpus": 0.5},
    },
    "resources": {"nnodes": 3, "gpus_per_node": 5},
    "trainer_overrides": {"a.b": 1},
    "env_vars": {"A": 1},
    "secrets": ["S"],
    "retries": 7,
    "deadline": "2d",
    "wait_for_resources": "2h",
    "priority": -5,
    "queue_patience": "2h",
    "start_timeout": "2h",
    "stall_timeout": "90",
    "on_stall": "stop",
    "resume_from": "old",
    "depends_on": "older",
    "debugger": "legacy",
    "tags": {"t": 1},
    "check_reward": 4,
    "accept": ["space"],
}


def test_defaults() -> None:
    assert vars(jobspec()) == dict(
        **MINIMAL,
        submission_id=None,
        launcher="ray",
        shared_root="/private",
        reward_fn_path=None,
        address="http://127.0.0.1:8265",
        entrypoint_resources={"worker_node": 1},
        entrypoint_num_cpus=1,
        runtime_env={},
        nnodes=None,
        gpus_per_node=None,
        trainer_overrides=(),
        env_vars={},
        secrets=(),
        retries=0,
        deadline=None,
        wait_for_resources=None,
        priority=0,
        queue_patience=3600,
        start_timeout=3600,
        stall_timeout=1800,
        on_stall="report",
        resume_from=None,
        depends_on=None,
        debugger=None,
        tags={},
        check_reward=0,
        accept=(),
    )


def test_every_key_arrives_in_its_own_field() -> None:
    assert vars(jobspec(**EVERYTHING)) == dict(  # noqa: C408
        workload="ppo",
        launcher="ray",
        shared_root="/mnt",
        code_path="c",
        model="m",
        dataset="d",
        submission_id="mine",
        reward_fn_path="r.py:f",
        address="https://head:1",
        entrypoint_resources={"train": 2},
        entrypoint_num_cpus=0.5,
        runtime_env={"nsight": "default"},
        nnodes=3,
        gpus_per_node=5,
        trainer_overrides=("a.b=1",),
        env_vars={"A": 1},
        secrets=("S",),
        retries=7,
        deadline=172_800,
        wait_for_resources=7200,
        priority=-5,
        queue_patience=7200,
        start_timeout=7200,
        stall_timeout=90,
        on_stall="stop",
        resume_from="old",
        depends_on="older",
        debugger="legacy",
        tags={"t": 1},
        check_reward=4,
        accept=("space",),
    )


@pytest.mark.parametrize(("given", "root"), [("/private/", "/private"), ("/a/b//", "/a/b"), ("/", "/")])
def test_a_shared_root_has_no_trailing_slash(given: str, root: str) -> None:
    assert jobspec(shared_root=given).shared_root == root


def test_durations_may_be_numbers() -> None:
    spec = jobspec(deadline=3600, wait_for_resources=0.5, stall_timeout=0)
    assert [spec.deadline, spec.wait_for_resources, spec.stall_timeout] == [3600.0, 0.5, None]


def test_names_are_resolved_below_the_shared_root() -> None:
    spec = jobspec(shared_root="/mnt", reward_fn_path="r.py")
    assert spec.inputs == Inputs(
        code_path="/mnt/common/code/verl/verl-0.9.1",
        model="/mnt/common/models/tiny-qwen2",
        dataset="/mnt/datasets/gsm8k_tiny",
        reward=RewardFunction("/mnt/user/code/r.py", "compute_score"),
    )


def test_a_reward_function_of_a_module() -> None:
    reward = jobspec(shared_root="/mnt", reward_fn_path="a.b:f").inputs.reward
    assert reward == RewardFunction("/mnt/user/code/a/b.py", "f", "a.b")
    assert reward.path == "pkg://a.b"
    assert jobspec(reward_fn_path="r:f").inputs.reward == RewardFunction("/private/user/code/r.py", "f", "r")
    assert RewardFunction("/mnt/r.py", "f").path == "/mnt/r.py"


def test_absolute_paths_are_not_changed() -> None:
    paths = {"code_path": "/private/c", "model": "/private/m", "dataset": "/private/d"}
    inputs = jobspec(**paths, reward_fn_path="/private/r.py:score").inputs
    assert inputs == Inputs(**paths, reward=RewardFunction("/private/r.py", "score"))
