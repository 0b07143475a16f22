from __future__ import annotations

import re
from typing import Any

import pytest
from jobs import MINIMAL, jobspec

from argus.jobspec.spec import Inputs, RewardFunction, new_submission_id
from argus.jobspec.value_types import parse_duration

# Every key that has no default in MINIMAL, with a value of its own.
EVERYTHING: dict[str, Any] = {
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
    "resources": {
        "nnodes": 3,
        "gpus_per_node": 5,
        "pools": {
            name: {"nnodes": number, "gpus_per_node": number + 1}
            for number, name in ((1, "rollout"), (3, "reward"), (5, "teacher"))
        },
    },
    "trainer_overrides": {"a.b": 1},
    "env_vars": {"A": 1},
    "module": "recipe.dapo.main_dapo",
    "config_name": "other",
    "before": "docker run x",
    "after": ["docker rm x", "true"],
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


DURATIONS = {"deadline": 172_800, "stall_timeout": 90}
DURATIONS.update(dict.fromkeys(("wait_for_resources", "queue_patience", "start_timeout"), 7200))


def test_every_key_arrives_in_its_own_field() -> None:
    ray, rest = EVERYTHING["ray"], {key: value for key, value in EVERYTHING.items() if key not in ("ray", "resources")}
    address, runtime_env = {"address": ray["address"]}, {"runtime_env": ray["runtime_env"]}
    texts = {"secrets": ("S",), "accept": ("space",), "trainer_overrides": ("a.b=1",)}
    texts |= {"before": ("docker run x",), "after": ("docker rm x", "true"), "command": (), "gpus": 0, "env_from": {}}
    texts |= {"ready_port": None, "ready_path": "/"}
    size = {name: value for name, value in EVERYTHING["resources"].items() if name != "pools"}
    pools = EVERYTHING["resources"]["pools"].items()
    size |= {f"{pool}_{name}": value for pool, sizes in pools for name, value in sizes.items()}
    expected = {**rest, **address, **runtime_env, **ray["resources"], **size, **DURATIONS, **texts}
    assert vars(jobspec(**EVERYTHING)) == expected


def test_defaults() -> None:
    defaults = {key: value for key, value in vars(jobspec()).items() if value and key not in MINIMAL}
    assert defaults == {
        "launcher": "ray",
        "shared_root": "/private",
        "address": "http://127.0.0.1:8265",
        "entrypoint_resources": {"worker_node": 1},
        "entrypoint_num_cpus": 1,
        "queue_patience": 3600,
        "start_timeout": 3600,
        "stall_timeout": 1800,
        "on_stall": "report",
        "ready_path": "/",
    }


def test_names_are_resolved_below_the_shared_root() -> None:
    spec = jobspec(shared_root="/mnt", reward_fn_path="r.py")
    assert spec.inputs == Inputs(
        code_path="/mnt/common/code/verl/verl-0.9.1",
        model="/mnt/common/models/tiny-qwen2",
        dataset="/mnt/datasets/gsm8k_tiny",
        reward=RewardFunction("/mnt/user/code/r.py", "compute_score"),
    )


def test_a_reward_function_of_a_module() -> None:
    assert jobspec(reward_fn_path="a.b:f").inputs.reward == RewardFunction("/private/user/code/a/b.py", "f", "a.b")
    assert jobspec(reward_fn_path="r:f").inputs.reward == RewardFunction("/private/user/code/r.py", "f", "r")


@pytest.mark.parametrize(
    ("duration", "value"),
    [(None, None), ("0", None), ("90", 90.0), ("0.5", 0.5), ("1h30m", 5400.0), ("1d2h3m4s", 93_784.0)],
)
def test_durations(duration: str | None, value: float | None) -> None:
    assert parse_duration(duration) == value


@pytest.mark.parametrize("duration", ["", " ", "h", "1 h", "-1", "1e3", "nan", "1h1h", "1m1h", "1,5h", "1H", "90\n"])
def test_malformed_durations(duration: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(duration)


@pytest.mark.parametrize("identifier", ["a", "0", "grpo-7b.try_2", "a" * 63, 17])
def test_valid_submission_ids(identifier: str | int) -> None:
    assert jobspec(submission_id=identifier).submission_id == str(identifier)


def test_new_submission_ids_are_valid_and_unique() -> None:
    names = {new_submission_id("grpo") for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"grpo-\d{8}-\d{6}-[0-9a-f]{4}", name) for name in names)
