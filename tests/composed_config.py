"""Composed configurations for the tests of the gate's rules."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

from argus.gate.numbers import config_findings

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

# What verl 0.9.1 and a job's defaults compose, as far as the rules read it.
GRPO: dict[str, Any] = {
    "trainer": {
        "nnodes": 2,
        "n_gpus_per_node": 4,
        "total_epochs": 1,
        "total_training_steps": None,
        "save_freq": 10,
        "test_freq": -1,
        "logger": ["console", "file"],
        "resume_mode": "auto",
        "resume_from_path": None,
        "use_v1": True,
        "v1": {"trainer_mode": "sync"},
    },
    "data": {"train_batch_size": 256, "max_prompt_length": 512, "max_response_length": 512, "gen_batch_size": None},
    "algorithm": {"adv_estimator": "grpo", "use_kl_in_reward": False, "filter_groups": {"enable": False}},
    "critic": {
        "enable": None,
        "strategy": "fsdp",
        "use_dynamic_bsz": True,
        "ppo_mini_batch_size": 128,
        "ppo_micro_batch_size": None,
        "ppo_micro_batch_size_per_gpu": None,
        "ppo_max_token_len_per_gpu": 32768,
        "ulysses_sequence_parallel_size": 1,
        "fsdp": {"ulysses_sequence_parallel_size": 1},
        "model": {"use_remove_padding": True},
    },
    "reward": {"reward_model": {"enable": False, "rollout": {"name": "???"}}},
    "actor_rollout_ref": {
        "model": {"use_remove_padding": True},
        "actor": {
            "strategy": "fsdp",
            "use_dynamic_bsz": True,
            "use_kl_loss": True,
            "ppo_mini_batch_size": 128,
            "ppo_micro_batch_size": None,
            "ppo_micro_batch_size_per_gpu": None,
            "ppo_max_token_len_per_gpu": 16384,
            "ulysses_sequence_parallel_size": 1,
            "fsdp_config": {"ulysses_sequence_parallel_size": 1},
        },
        "ref": {"log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": None},
        "rollout": {
            "name": "vllm",
            "mode": "async",
            "n": 5,
            "temperature": 1.0,
            "tensor_model_parallel_size": 2,
            "data_parallel_size": 1,
            "pipeline_model_parallel_size": 1,
            "expert_parallel_size": 1,
            "max_model_len": None,
            "max_num_batched_tokens": 8192,
            "max_num_seqs": 256,
            "enable_chunked_prefill": True,
            "log_prob_use_dynamic_bsz": True,
            "log_prob_max_token_len_per_gpu": 16384,
            "log_prob_micro_batch_size": None,
            "log_prob_micro_batch_size_per_gpu": None,
            "val_kwargs": {"do_sample": False},
        },
    },
}
SFT: dict[str, Any] = {
    "trainer": {
        "nnodes": 2,
        "n_gpus_per_node": 4,
        "total_epochs": 1,
        "total_training_steps": None,
        "save_freq": 10,
        "test_freq": -1,
        "logger": ["console", "file"],
        "resume_mode": "auto",
        "resume_from_path": None,
    },
    "data": {
        "train_batch_size": 256,
        "micro_batch_size_per_gpu": 4,
        "max_token_len_per_gpu": 8192,
        "use_dynamic_bsz": True,
        "max_length": 1024,
        "pad_mode": "no_padding",
    },
    "engine": {"strategy": "fsdp", "ulysses_sequence_parallel_size": 1},
    "model": {"use_remove_padding": True},
}


def put(config: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with other values for keys such as a.b or a.b[0]."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        node: Any = config
        *parents, last = [int(part[1:-1]) if part[0] == "[" else part for part in re.findall(r"[^.\[]+|\[\d+\]", key)]
        for parent in parents:
            node = node.setdefault(parent, {}) if isinstance(node, dict) else node[parent]
        node[last] = value
    return config


PPO = put(GRPO, {"algorithm.adv_estimator": "gae", f"{ACTOR}.use_kl_loss": False, f"{ROLLOUT}.n": 1})
CONFIGS = {"sft": SFT, "grpo": GRPO, "ppo": PPO}


def finding_texts(
    workload: str, changes: dict[str, Any], version: str = "0.9.1", nnodes: int = 2, environment: Any = None
) -> list[str]:
    """The findings about a configuration with changes, each as one text."""
    config = put(CONFIGS[workload], changes)
    if nnodes != 2:
        config = put(config, {"trainer.nnodes": nnodes})
    findings = config_findings(config, workload, nnodes, 4, version, environment)
    assert all(finding.where == finding.key for finding in findings)
    return [f"{finding.severity} {finding.key} {finding.problem}: {finding.remedy}" for finding in findings]


def finding_keys(workload: str, changes: dict[str, Any], version: str = "0.9.1", **job: Any) -> list[str]:
    """Severity and key of each finding."""
    return [" ".join(text.split(" ")[:2]) for text in finding_texts(workload, changes, version, **job)]
