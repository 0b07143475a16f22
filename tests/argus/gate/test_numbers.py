from __future__ import annotations

import math
from typing import Any

import numbers_of_verl as judged
import pytest
from composed_config import ACTOR, CONFIGS, ROLLOUT, found, put

from argus.gate.numbers import config_findings

SECTIONS = {
    "data": {"dataloader_num_workers": 8, "train_max_samples": -1, "image_patch_size": 14},
    "actor_rollout_ref.actor.optim": {"lr": 1e-6, "weight_decay": 0.01, "betas": [0.9, 0.999], "clip_grad": 1.0},
    "actor_rollout_ref.rollout": {
        **CONFIGS["grpo"]["actor_rollout_ref"]["rollout"],
        **{"top_p": 1.0, "top_k": -1, "gpu_memory_utilization": 0.5, "over_sample_rate": 0},
    },
    "critic.optim": {"lr": 1e-5},
    "algorithm.kl_ctrl": {"horizon": 10000, "kl_coef": 0.001},
}


def config(workload: str) -> Any:
    return put(CONFIGS[workload], SECTIONS if workload != "sft" else {"optim": {"lr": 1e-5}})


def test_a_fully_asynchronous_trainer_has_no_batches() -> None:
    changes = {"data": {"train_batch_size": 0, "gen_batch_size": 1}}
    (finding,) = config_findings(put(config("grpo"), changes), "grpo", 2, 4)
    assert finding.key == "data.train_batch_size"
    changes["async_training"] = {"staleness_threshold": 0.1}
    assert config_findings(put(config("grpo"), changes), "grpo", 2, 4) == []


KEYS = [
    *((name, key) for name in ("ppo", "grpo") for key in ("data.train_batch_size", "data.max_prompt_length")),
    *(("ppo", f"{ROLLOUT}.{name}") for name in ("n", "temperature", "top_p", "top_k", "tensor_model_parallel_size")),
    *(("ppo", f"{ROLLOUT}.{name}") for name in ("gpu_memory_utilization", "over_sample_rate")),
    *(("grpo", f"{ACTOR}.optim.{name}") for name in ("lr", "weight_decay", "betas[0]", "betas[1]", "clip_grad")),
    *(("grpo", f"{ACTOR}.{name}") for name in ("ppo_mini_batch_size", "ppo_max_token_len_per_gpu")),
    *(("grpo", f"data.{name}") for name in ("dataloader_num_workers", "train_max_samples", "image_patch_size")),
    *(("grpo", f"algorithm.kl_ctrl.{name}") for name in ("horizon", "kl_coef")),
    *(("grpo", f"trainer.{name}") for name in ("total_epochs", "save_freq", "test_freq")),
    *(("sft", f"trainer.{name}") for name in ("total_epochs", "save_freq", "test_freq")),
    *(("sft", key) for key in ("data.max_length", "data.max_token_len_per_gpu", "optim.lr")),
    ("ppo", "critic.optim.lr"),
]


@pytest.mark.parametrize(("workload", "key"), KEYS)
def test_numbers(workload: str, key: str) -> None:
    assert config_findings(config(workload), workload, 2, 4) == []
    assert judged.letters(config(workload), key, workload, 4) == judged.expected(workload, key)


@pytest.mark.parametrize(
    ("key", "value", "severity"),
    [
        ("data.train_batch_size", 1e3, "error"),
        ("data.train_batch_size", 16.5, "error"),
        ("data.max_prompt_length", 512.0, "warning"),
        ("data.max_prompt_length", 512.5, "error"),
        ("data.max_prompt_length", "512 tokens", "error"),
        ("data.max_prompt_length", "nan", "error"),
        ("data.max_prompt_length", "1", ""),
        ("data.max_prompt_length", 1, ""),
        (f"{ROLLOUT}.gpu_memory_utilization", 1.0, ""),
        (f"{ROLLOUT}.gpu_memory_utilization", 1.01, "error"),
        (f"{ROLLOUT}.top_p", 1e-9, ""),
        (f"{ROLLOUT}.top_k", -2, "error"),
        (f"{ACTOR}.optim.betas", [0.9, 1.0], "error"),
        (f"{ACTOR}.optim.clip_grad", -math.inf, "error"),
        (f"{ACTOR}.clip_ratio_c", 1.0, "error"),
        (f"{ACTOR}.clip_ratio_c", 1.01, ""),
        ("algorithm.gamma", 1.5, "warning"),
        # The table has none of these.
        ("engine_kwargs.alpha", -5, ""),
        ("engine_kwargs.alpha", math.inf, "warning"),
        ("engine_kwargs.alpha", math.nan, "error"),
        ("engine_kwargs.mode", "fast", ""),
        ("engine_kwargs.flag", False, ""),
    ],
)
def test_boundaries(key: str, value: Any, severity: str) -> None:
    said = [text for text in found("grpo", {key: value}) if f" {key}" in text]
    assert [text.partition(" ")[0] for text in said] == [severity] * bool(severity), said


def test_parts_that_verl_does_not_read() -> None:
    assert found("grpo", {"critic.optim": {"lr": 0}, "reward.reward_model.nccl_timeout": -1}) == []
    assert len(found("ppo", {"critic.optim": {"lr": 0}})) == 1
    assert found("ppo", {"actor_rollout_ref.ref.nccl_timeout": -1}) == []
    assert len(found("grpo", {"actor_rollout_ref.ref.nccl_timeout": -1})) == 1
    assert found("grpo", {"part": {"enabled": False, "nccl_timeout": 0}}) == []
    assert len(found("grpo", {"part": {"enabled": True, "nccl_timeout": 0}})) == 1
    assert found("grpo", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 0}) == []
