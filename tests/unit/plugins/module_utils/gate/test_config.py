from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.gate.config import config_findings

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"

# As verl 0.9.1 and a job's defaults compose, as far as the rules ask for it.
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


def put(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(config)
    for key, value in changes.items():
        node = config
        *parents, last = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return config


def rl(version: str = "0.9.1", environment: dict[str, str] | None = None, **changes: Any) -> list[dict[str, str]]:
    asked = {key.replace("__", "."): value for key, value in changes.items()}
    return config_findings(put(GRPO, asked), "grpo", 2, 4, version, environment)


def found(config: dict[str, Any], workload: str, changes: dict[str, Any], version: str = "0.9.1") -> list[str]:
    findings = config_findings(put(config, changes), workload, 2, 4, version)
    return [f"{finding['severity']} {finding['where']} {finding['what']}: {finding['todo']}" for finding in findings]


PPO_CHANGES = {"algorithm.adv_estimator": "gae", f"{ACTOR}.use_kl_loss": False, f"{ROLLOUT}.n": 1}


def test_what_a_job_sets_is_right() -> None:
    assert found(GRPO, "grpo", {}) == []
    assert found(GRPO, "ppo", PPO_CHANGES) == []
    assert found(SFT, "sft", {}) == []


def test_a_finding_has_the_fields_of_others() -> None:
    assert rl(trainer__total_epochs=0) == [
        {
            "where": "trainer.total_epochs",
            "what": "is below 1: nothing is trained, and the job succeeds",
            "todo": "give 1 or more",
            "severity": "error",
        }
    ]


WRONG: list[tuple[str, dict[str, Any], str]] = [
    # The workload, what is changed, and the beginning of the only thing that is said.
    ("grpo", {f"{ROLLOUT}.name": "???"}, f"error {ROLLOUT}.name has no value"),
    ("grpo", {"reward.reward_model.enable": True}, "error reward.reward_model.rollout.name has no value"),
    ("grpo", {"trainer.nnodes": 1}, "error trainer.nnodes is 1, and the job has 2"),
    ("grpo", {"trainer.n_gpus_per_node": 8}, "error trainer.n_gpus_per_node is 8, and the job has 4"),
    ("grpo", {"trainer.total_training_steps": 0}, "error trainer.total_training_steps is below 1"),
    ("grpo", {"trainer.save_freq": -1}, "warning trainer.save_freq is -1: nothing is saved, not even the last step"),
    ("grpo", {"trainer.save_freq": 0}, "warning trainer.save_freq is 0: nothing is saved"),
    ("grpo", {"trainer.resume_mode": "yes"}, "error trainer.resume_mode is yes"),
    ("grpo", {"trainer.resume_mode": "resume_path"}, "error trainer.resume_from_path is None"),
    ("grpo", {"trainer.logger": ["console", "wandb"]}, "warning trainer.logger has wandb"),
    ("grpo", {"trainer.logger": "tracking"}, "warning trainer.logger has tracking"),
    ("grpo", {"trainer.logger": ["mlflow"]}, "warning trainer.logger has mlflow"),
    ("grpo", {f"{ROLLOUT}.n": 1}, f"warning {ROLLOUT}.n is 1: an answer alone"),
    ("grpo", {"data.gen_batch_size": 100}, "error data.gen_batch_size is 100, which does not divide"),
    ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 512}, f"warning {ACTOR}.ppo_mini_batch_size is 512: 256 prompts"),
    ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 96}, f"warning {ACTOR}.ppo_mini_batch_size is 96: 256 prompts"),
    (
        "grpo",
        {f"{ACTOR}.ppo_mini_batch_size": 4},
        f"error {ACTOR}.ppo_mini_batch_size is 4: with 5 answers to each, 20",
    ),
    (
        "grpo",
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron": {"context_parallel_size": 3}},
        f"error {ACTOR}.meg",
    ),
    ("grpo", {f"{ROLLOUT}.log_prob_use_dynamic_bsz": False}, f"error {ROLLOUT}.log_prob_use_dynamic_bsz is False"),
    (
        "grpo",
        {f"{ROLLOUT}.tensor_model_parallel_size": 16},
        f"error {ROLLOUT}.tensor_model_parallel_size makes engines of",
    ),
    (
        "grpo",
        {f"{ROLLOUT}.tensor_model_parallel_size": 3},
        "error actor_rollout_ref.rollout.tensor_model_parallel_size",
    ),
    ("grpo", {f"{ROLLOUT}.pipeline_model_parallel_size": 2}, f"error {ROLLOUT}.pipeline_model_parallel_size is 2"),
    ("grpo", {f"{ROLLOUT}.expert_parallel_size": 8}, f"error {ROLLOUT}.expert_parallel_size is 8, and has to be"),
    ("grpo", {f"{ROLLOUT}.mode": "sync"}, f"error {ROLLOUT}.mode is sync, which verl has given up"),
    ("grpo", {f"{ROLLOUT}.max_model_len": 1000}, f"warning {ROLLOUT}.max_model_len is 1000"),
    (
        "grpo",
        {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.temperature": 0},
        f"error {ROLLOUT}.temperature is 0, and val_kwargs.do_sample is true",
    ),
    (
        "grpo",
        {f"{ACTOR}.ppo_max_token_len_per_gpu": 1000},
        f"warning {ACTOR}.ppo_max_token_len_per_gpu gives room for 1000 tokens, and prompt and response may have 1024",
    ),
    (
        "grpo",
        {f"{ACTOR}.ulysses_sequence_parallel_size": 2, "actor_rollout_ref.model.use_remove_padding": False},
        "error actor_rollout_ref.model.use_remove_padding is false",
    ),
    (
        "grpo",
        {f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 3},
        f"error {ACTOR}.fsdp_config.ulysses_sequence_parallel_size is 3, which does not divide the job's 8 GPUs",
    ),
    ("ppo", {"critic.enable": False}, "error critic.enable is false, and gae needs the values of a critic"),
    ("ppo", {"critic.ppo_mini_batch_size": 96}, "warning critic.ppo_mini_batch_size is 96"),
    ("ppo", {"critic.ppo_max_token_len_per_gpu": 8192}, "warning critic.ppo_max_token_len_per_gpu is 8192, which verl"),
    ("ppo", {"critic.fsdp.ulysses_sequence_parallel_size": 3}, "error critic.fsdp.ulysses_sequence_parallel_size is 3"),
    ("sft", {"trainer.total_epochs": 0}, "error trainer.total_epochs is below 1"),
    ("sft", {"trainer.save_freq": -1}, "warning trainer.save_freq is -1: only the last step is saved"),
    ("sft", {"trainer.save_freq": 0}, "error trainer.save_freq is 0: the job ends with ZeroDivisionError"),
    ("sft", {"trainer.test_freq": 0}, "error trainer.test_freq is 0: the job ends with ZeroDivisionError"),
    ("sft", {"data.train_batch_size": 100}, "error data.train_batch_size is 100, not a multiple of the 8 ranks"),
    ("sft", {"data.pad_mode": "right"}, "error data.pad_mode is right"),
    ("sft", {"data.max_length": 9000}, "warning data.max_token_len_per_gpu gives room for 8192 tokens"),
    (
        "sft",
        {"data.use_dynamic_bsz": False, "data.micro_batch_size_per_gpu": 5},
        "error data.micro_batch_size_per_gpu is 5, which does not divide the 32 samples of a rank",
    ),
    ("sft", {"engine.ulysses_sequence_parallel_size": 3}, "error engine.ulysses_sequence_parallel_size is 3"),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "model.use_remove_padding": False},
        "error model.use_remove_padding is false, and engine.ulysses_sequence_parallel_size is 2",
    ),
]


@pytest.mark.parametrize(("workload", "changes", "said"), WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_what_verl_would_say_late_or_never(workload: str, changes: dict[str, Any], said: str) -> None:
    start = {"sft": SFT, "grpo": GRPO, "ppo": put(GRPO, PPO_CHANGES)}[workload]
    (finding,) = found(start, workload, changes)
    assert finding.startswith(said)


STATIC = {
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 4,
}


def test_micro_batches() -> None:
    assert found(GRPO, "grpo", STATIC) == []
    left_out = [key for key in STATIC if "micro" in key]
    for key in left_out:
        (finding,) = found(GRPO, "grpo", {**STATIC, key: None})
        assert finding.startswith(f"error {key} has no value, and {ACTOR}.use_dynamic_bsz is false")
    # A model without a reference needs no size for it.
    without = {**STATIC, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": None, f"{ACTOR}.use_kl_loss": False}
    assert found(GRPO, "grpo", without) == []
    (finding,) = found(GRPO, "grpo", {**STATIC, f"{ACTOR}.ppo_micro_batch_size": 32})
    assert finding.startswith(f"error {ACTOR}.ppo_micro_batch_size is set, and")
    (finding,) = found(GRPO, "grpo", {**STATIC, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3})
    assert finding.endswith(
        "is 3, which does not divide the 80 samples of a rank's mini-batch: give a divisor, or use_dynamic_bsz=True"
    )


def test_batches_of_fixed_size() -> None:
    finding, *_others = found(GRPO, "grpo", {**STATIC, "data.train_batch_size": 129})
    assert finding.startswith("error data.train_batch_size is 129: with 5 answers to each, 645 is not a multiple of 8")
    (finding,) = found(GRPO, "grpo", {**STATIC, "data.train_batch_size": 64})
    assert finding.startswith(f"error {ACTOR}.ppo_mini_batch_size is 128, more than data.train_batch_size 64")


def test_rules_that_older_versions_have_not() -> None:
    assert found(GRPO, "grpo", {f"{ROLLOUT}.mode": "sync"}, "0.6.1") == []
    assert found(GRPO, "grpo", {f"{ACTOR}.ppo_mini_batch_size": 96}, "0.8.0") == []
    # 0.5 asks for whole batches, whether they are dynamic or not.
    odd = {"data.train_batch_size": 129, f"{ACTOR}.ppo_mini_batch_size": 129}
    assert found(GRPO, "grpo", odd, "0.7.1") == []
    assert len(found(GRPO, "grpo", odd, "0.5.0")) == 1


def test_an_account_that_the_job_has() -> None:
    assert rl(trainer__logger=["wandb", "swanlab"], environment={"WANDB_API_KEY": "", "SWANLAB_MODE": "local"}) == []


def test_what_is_not_known_is_not_judged() -> None:
    """Another trainer's configuration, or one of a version with other names."""
    config = {"trainer": {"nnodes": 2, "n_gpus_per_node": 4}}
    for workload in ("sft", "grpo", "ppo"):
        assert config_findings(config, workload, 2, 4) == []
