from __future__ import annotations

import math
from typing import Any

import numbers_of_verl as judged
import pytest
from composed_config import ACTOR, CONFIGS, ROLLOUT, finding_keys, finding_texts, put

from argus.gate.numbers import config_findings

ESTIMATOR = "algorithm.adv_estimator"
# Rollouts on one worker with four GPUs, each engine with two.
SEPARATE = {
    "trainer.v1.trainer_mode": "separate_async",
    "trainer.v1.separate_async.parameter_sync_step": 2,
    f"{ROLLOUT}.nnodes": 1,
    f"{ROLLOUT}.n_gpus_per_node": 4,
    f"{ROLLOUT}.checkpoint_engine.backend": "nccl",
}
SUMS = f"{ACTOR}.calculate_sum_pi_squared"
REF, MODEL = "actor_rollout_ref.ref", "actor_rollout_ref.model"
CRITIC_SEQUENCE = {"critic.strategy": "fsdp2", "critic.fsdp.ulysses_sequence_parallel_size": 2}
MEGATRON = {f"{ACTOR}.strategy": "megatron"}
RESUMES = {"trainer.resume_mode": "resume_path"}
PROMETHEUS = {"enable": True, "port": 9090, "file": "/private/jobs/grpo-1/config/prometheus.yml"}

# The workload, the changes, the severity and, if it is not the last changed one, the key of the only finding, and a
# part of its text.
WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("grpo", {f"{ROLLOUT}.name": "???"}, "error", ""),
    ("grpo", {"reward.reward_model.enable": True}, "error reward.reward_model.rollout.name", ""),
    ("grpo", {"trainer.total_training_steps": 0}, "error", ""),
    ("grpo", {"trainer.total_epochs": 0}, "error", ""),
    ("grpo", {"trainer.save_freq": -1}, "warning", ""),
    ("grpo", {"trainer.save_freq": 0}, "warning", ""),
    ("grpo", {"trainer.resume_mode": "yes"}, "error", ""),
    ("grpo", {"trainer.resume_mode": "resume_path"}, "error trainer.resume_from_path", ""),
    ("grpo", {**RESUMES, "trainer.resume_from_path": "/x/step_3"}, "error", ""),
    *(("grpo", {"trainer.logger": logger}, "warning", "") for logger in (["console", "wandb"], "tracking")),
    *(("sft", {"trainer.logger": [logger]}, "warning", "") for logger in ("swanlab", "clearml", "vemlp_wandb")),
    # SFT ends after its first step.
    ("sft", {"trainer.total_training_steps": 0}, "warning", ""),
    ("sft", {"trainer.save_freq": -1}, "warning", ""),
    ("sft", {"trainer.save_freq": 0}, "error", ""),
    ("sft", {"trainer.test_freq": 0}, "error", ""),
    ("grpo", {"part": {"enabled": True, "path": "???"}}, "error part.path", ""),
    ("grpo", {f"{ROLLOUT}.n": 1}, "warning", "set it to 2 or more"),
    ("grpo", {ESTIMATOR: "rloo", f"{ROLLOUT}.n": 1}, "warning", "set it to 2 or more"),
    ("grpo", {ESTIMATOR: "grpo_passk", f"{ROLLOUT}.n": 1}, "error", "set it to 2 or more"),
    ("grpo", {ESTIMATOR: "gae"}, "error", ""),
    ("ppo", {"trainer.use_v1": False, ESTIMATOR: "remax"}, "warning", ""),
    ("grpo", {ESTIMATOR: "remax"}, "error", ""),
    ("grpo", {SUMS: True, ESTIMATOR: "optimal_token_baseline"}, "error", ""),
    ("grpo", {ESTIMATOR: "optimal_token_baseline", "trainer.use_v1": False}, f"error {SUMS}", ""),
    ("grpo", {ESTIMATOR: "gdpo", "trainer.use_v1": False}, "error algorithm.gdpo_reward_keys", ""),
    ("grpo", {f"{ACTOR}.checkpoint.async_save": True}, "error", ""),
    ("grpo", {**SEPARATE, "data.train_batch_size": 128}, "error", "set it to 256"),
    ("grpo", {**SEPARATE, f"{ROLLOUT}.nnodes": 0}, f"error {ROLLOUT}.nnodes", ""),
    ("grpo", {**SEPARATE, f"{ROLLOUT}.checkpoint_engine.backend": "naive"}, "error", ""),
    ("grpo", {**SEPARATE, "actor_rollout_ref.hybrid_engine": False}, "error", ""),
    ("grpo", {**SEPARATE, f"{ROLLOUT}.n_gpus_per_node": 3}, f"error {ROLLOUT}.n_gpus_per_node", ""),
    ("grpo", {"trainer.val_before_train": False, "trainer.val_only": True}, "error", ""),
    ("grpo", {"data.gen_batch_size": 100}, "error", ""),
    ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 512}, "warning", "1280 empty samples"),
    ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 96}, "warning", "160 empty samples"),
    ("grpo", {f"{ACTOR}.ppo_mini_batch_size": 4}, "error", "set it to a multiple of 8"),
    ("grpo", {**MEGATRON, f"{ACTOR}.megatron": {"context_parallel_size": 3}}, "error", ""),
    ("grpo", {f"{ROLLOUT}.log_prob_use_dynamic_bsz": False}, "error", ""),
    ("grpo", {f"{ROLLOUT}.tensor_model_parallel_size": 16}, "error", "set it to 8 or less"),
    ("grpo", {f"{ROLLOUT}.tensor_model_parallel_size": 3}, "error", ""),
    ("grpo", {f"{ROLLOUT}.pipeline_model_parallel_size": 2}, "error", "set it to 1"),
    ("grpo", {f"{ROLLOUT}.expert_parallel_size": 8}, "error", "set it to 2, or to 1"),
    ("grpo", {f"{ROLLOUT}.mode": "sync"}, "error", ""),
    ("grpo", {f"{ROLLOUT}.max_model_len": 1000}, "warning", "set it to 1024, or remove it"),
    ("grpo", {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.temperature": 0}, "error", "set it to more than 0"),
    ("grpo", {f"{ACTOR}.ppo_max_token_len_per_gpu": 1000}, "warning", "set it to 1024 or more"),
    ("grpo", {f"{ACTOR}.ulysses_sequence_parallel_size": 2, f"{MODEL}.use_remove_padding": False}, "error", ""),
    ("grpo", {f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 3}, "error", ""),
    ("ppo", {"critic.enable": False}, "error", ""),
    ("ppo", {"critic.ppo_mini_batch_size": 96}, "warning", "128 empty samples"),
    ("ppo", {"critic.ppo_max_token_len_per_gpu": 8192}, "warning", "set ++critic.ppo_infer_max_token_len_per_gpu=8192"),
    ("ppo", {"critic.fsdp.ulysses_sequence_parallel_size": 3}, "error", ""),
    ("grpo", {f"{ROLLOUT}.log_prob_max_token_len_per_gpu": 1023}, "warning", "set it to 1024 or more"),
    ("ppo", {**CRITIC_SEQUENCE, "critic.model.use_remove_padding": False}, "error", ""),
    ("ppo", {"critic.use_dynamic_bsz": False}, "error critic.ppo_micro_batch_size_per_gpu", ""),
    ("grpo", {f"{ROLLOUT}.data_parallel_size": 8}, f"error {ROLLOUT}.tensor_model_parallel_size", ""),
    ("grpo", {f"{ROLLOUT}.temperature": 0}, "warning", ""),
    ("grpo", {f"{ROLLOUT}.temperature": 2.5}, "warning", ""),
    ("grpo", {f"{ROLLOUT}.repetition_penalty": 1.1}, f"warning {ROLLOUT}.repetition_penalty", ""),
    ("grpo", {f"{REF}.log_prob_use_dynamic_bsz": False}, f"error {REF}.log_prob_micro_batch_size_per_gpu", ""),
    ("grpo", {f"{ROLLOUT}.prometheus": {"enable": True, "file": "/x.yml"}}, f"warning {ROLLOUT}.prometheus.file", ""),
    ("grpo", {f"{ROLLOUT}.prometheus": PROMETHEUS, f"{ROLLOUT}.disable_log_stats": True}, "error", ""),
    ("grpo", {f"{ROLLOUT}.max_num_batched_tokens": 128}, "error", ""),
    ("sft", {"data.train_batch_size": 100}, "error", "set it to a multiple of 8"),
    ("sft", {"data.val_files": None, "trainer.test_freq": 1}, "error", ""),
    ("sft", {"data.pad_mode": "right"}, "error", ""),
    # Ranks that share a sequence share a batch; a batch that cannot be divided has no second finding.
    ("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 102}, "error", "multiple of 4"),
    (
        "sft",
        {"data.use_dynamic_bsz": False, "data.train_batch_size": 100, "data.micro_batch_size_per_gpu": 5},
        "error data.train_batch_size",
        "",
    ),
    ("sft", {"data.max_length": 9000}, "warning data.max_token_len_per_gpu", "set it to 9000 or more"),
    ("sft", {"data.use_dynamic_bsz": False, "data.micro_batch_size_per_gpu": 5}, "error", ""),
    ("sft", {"engine.ulysses_sequence_parallel_size": 3}, "error", ""),
    ("sft", {"engine.ulysses_sequence_parallel_size": 2, "model.use_remove_padding": False}, "error", ""),
    (
        "sft",
        {"engine.ulysses_sequence_parallel_size": 2, "data.max_length": 16385},
        "warning data.max_token_len_per_gpu",
        "set it to 16385 or more",
    ),
]
EXPERT, TOKENS = f"{ROLLOUT}.expert_parallel_size", f"{ACTOR}.ppo_max_token_len_per_gpu"
RIGHT: list[tuple[str, dict[str, Any]]] = [
    *((workload, {}) for workload in ("grpo", "ppo", "sft")),
    ("grpo", {"part": {"enabled": False, "path": "???"}}),
    ("grpo", {"trainer.total_epochs": None, "trainer.test_freq": "${x}"}),
    ("grpo", {"trainer.total_training_steps": 1}),
    ("sft", {**RESUMES, "trainer.resume_from_path": "/private/jobs/a/checkpoints/global_step_3"}),
    ("sft", {"trainer.resume_mode": "disable", "trainer.resume_from_path": "/x"}),
    ("grpo", {ESTIMATOR: "one_of_a_team"}),
    ("grpo", SEPARATE),
    ("ppo", {"critic.ppo_max_token_len_per_gpu": 32768}),
    ("grpo", {**MEGATRON, f"{ACTOR}.ppo_max_token_len_per_gpu": 1000}),
    ("grpo", {**MEGATRON, f"{ACTOR}.checkpoint.async_save": True}),
    ("grpo", {f"{ACTOR}.strategy": "other", f"{ACTOR}.ppo_mini_batch_size": 1}),
    ("sft", {"engine.ulysses_sequence_parallel_size": 2, "data.train_batch_size": 100}),
    ("grpo", {"critic.use_dynamic_bsz": False}),
    ("grpo", {f"{ROLLOUT}.prometheus": {**PROMETHEUS, "enable": False}}),
    ("grpo", {f"{ROLLOUT}.max_num_batched_tokens": 256, f"{ROLLOUT}.repetition_penalty": 1.0}),
    ("grpo", {f"{REF}.log_prob_use_dynamic_bsz": False, f"{REF}.log_prob_micro_batch_size_per_gpu": 4}),
    ("grpo", {"data.gen_batch_size": 100, "algorithm.filter_groups.enable": True}),
    ("grpo", {"data.gen_batch_size": 100, "trainer.v1.trainer_mode": "async"}),
    # Tokens are those of all GPUs that share a sequence; the old name wins if it is set.
    ("grpo", {TOKENS: 512, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 2}),
    ("grpo", {TOKENS: 512, f"{ACTOR}.ulysses_sequence_parallel_size": 2}),
    ("grpo", {EXPERT: 8, f"{ROLLOUT}.data_parallel_size": 4}),
    ("grpo", {EXPERT: 8, f"{ROLLOUT}.name": "trtllm"}),
    ("grpo", {f"{ROLLOUT}.pipeline_model_parallel_size": 2, f"{ROLLOUT}.name": "hf"}),
    ("grpo", {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.temperature": 0.1}),
    ("grpo", {f"{ROLLOUT}.max_model_len": 1024}),
    ("sft", {"engine.strategy": "megatron", "data.train_batch_size": 100, "data.pad_mode": "right"}),
    ("sft", {"data.val_files": None, "trainer.test_freq": -1}),
    ("sft", {"data.val_files": ["v.parquet"], "trainer.test_freq": 1}),
    ("sft", {"data.max_length": 8192}),
    ("sft", {"data.max_length": 9000, "data.use_dynamic_bsz": False}),
]


@pytest.mark.parametrize(("workload", "changes", "expected", "part"), WRONG)
def test_wrong_settings(workload: str, changes: dict[str, Any], expected: str, part: str) -> None:
    severity, _blank, key = expected.partition(" ")
    (text,) = finding_texts(workload, changes)
    assert text.startswith(f"{severity} {key or [*changes][-1]} ") and part in text


@pytest.mark.parametrize(("workload", "changes"), RIGHT)
def test_right_settings(workload: str, changes: dict[str, Any]) -> None:
    assert finding_texts(workload, changes) == []


STATIC = {
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 4,
    f"{REF}.log_prob_micro_batch_size_per_gpu": 4,
}


def test_micro_batches() -> None:
    assert finding_texts("grpo", STATIC) == []
    for key in (key for key in STATIC if "micro" in key):
        assert finding_keys("grpo", {**STATIC, key: None}) == [f"error {key}"]
    # A job without a reference model needs no size for it.
    without = {**STATIC, f"{REF}.log_prob_micro_batch_size_per_gpu": None, f"{ACTOR}.use_kl_loss": False}
    assert finding_texts("grpo", without) == []
    assert len(finding_texts("grpo", {**without, "algorithm.use_kl_in_reward": True})) == 1
    both = {**STATIC, f"{ACTOR}.ppo_micro_batch_size": 32}
    assert finding_keys("grpo", both) == [f"error {ACTOR}.ppo_micro_batch_size"]
    (text,) = finding_texts("grpo", {**STATIC, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3})
    assert "does not divide the 80 samples" in text


def test_a_batch_that_is_not_completed_ends_the_job() -> None:
    changes = {f"{ACTOR}.ppo_mini_batch_size": 96}
    for texts in (finding_texts("grpo", {**changes, "trainer.use_v1": False}), finding_texts("grpo", changes, "0.8.0")):
        assert len(texts) == 1 and texts[0].startswith(f"error {ACTOR}.ppo_mini_batch_size is 96")


@pytest.mark.parametrize("section", [ROLLOUT, REF])
def test_micro_batches_of_log_probabilities(section: str) -> None:
    key = f"{section}.log_prob_micro_batch_size_per_gpu"
    # 160 samples for each of 8 ranks; with a mini-batch of 96, verl completes them to 180.
    (text,) = finding_texts("grpo", {**STATIC, key: 9})
    assert text.startswith(f"error {key} ") and "160 samples" in text
    of_96 = {**STATIC, f"{ACTOR}.ppo_mini_batch_size": 96}
    assert not any(key in text for text in finding_texts("grpo", {**of_96, key: 9}))


def test_batches_of_fixed_size() -> None:
    text = finding_texts("grpo", {**STATIC, "data.train_batch_size": 129})[0]
    assert text.startswith("error data.train_batch_size ") and "645 is not a multiple of 8 GPUs" in text
    (text,) = finding_texts("grpo", {**STATIC, "data.train_batch_size": 64})
    assert text.startswith(f"error {ACTOR}.ppo_mini_batch_size ") and text.endswith("64 or less")


def test_rules_begin_with_a_release() -> None:
    changes = {"data.gen_batch_size": 100}
    assert any(" data.gen_batch_size " in text for text in finding_texts("grpo", changes, "0.9.0"))
    assert finding_texts("grpo", changes, "0.8.0") == []


def test_tokens_of_the_critic_before_0_9() -> None:
    changes = {"critic.ppo_max_token_len_per_gpu": 1000, "critic.ulysses_sequence_parallel_size": 1}
    assert finding_keys("ppo", changes, "0.8.0") == ["warning critic.ppo_max_token_len_per_gpu"]
    assert finding_texts("ppo", {**changes, "critic.fsdp.ulysses_sequence_parallel_size": 2}, "0.8.0") == []
    assert finding_texts("ppo", {"critic.ppo_max_token_len_per_gpu": 32768}) == []
    # Since 0.9, verl reads another key for the critic.
    assert not any("allows 1000 tokens" in text for text in finding_texts("ppo", changes, "0.9.0"))


def test_engines_fill_nodes() -> None:
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    changes = {key: 6, "data.train_batch_size": 264, f"{ACTOR}.ppo_mini_batch_size": 132}
    (text,) = finding_texts("grpo", changes, nnodes=3)
    assert text.startswith(f"error {key} ") and "multiple of 4" in text
    assert finding_texts("grpo", {**changes, key: 3}, nnodes=3) == []


@pytest.mark.parametrize(("size", "answers", "example"), [(100, 5, "8, such as 104"), (100, 4, "")])
def test_batch_without_a_mini_batch_that_fits(size: int, answers: int, example: str) -> None:
    """Both hints lead to sizes that satisfy both rules."""
    changes = {
        "data.train_batch_size": size,
        f"{ACTOR}.ppo_mini_batch_size": 60,
        "actor_rollout_ref.rollout.n": answers,
    }
    both = f"set it and data.train_batch_size to the same multiple of {example}"
    hints = [line.rpartition(": ")[2] for line in finding_texts("grpo", changes) if "ppo_mini_batch_size" in line]
    assert hints == ([both, both] if example else ["set it to a divisor of data.train_batch_size, 100"])


@pytest.mark.parametrize(
    ("engine", "settings", "refused"),
    [("vllm", {}, True), ("vllm", {f"{ROLLOUT}.enable_sleep_mode": False}, False), ("hf_cpu", {}, False)],
)
def test_memory_of_an_engine_that_sleeps(engine: str, settings: dict[str, Any], refused: bool) -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"}
    findings = finding_texts("grpo", {f"{ROLLOUT}.name": engine, **settings}, environment=environment)
    assert any("env_vars.PYTORCH_CUDA_ALLOC_CONF" in line for line in findings) == refused


def test_megatron() -> None:
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 2}
    assert finding_texts("grpo", {**MEGATRON, f"{ACTOR}.megatron": sizes, f"{ACTOR}.ppo_mini_batch_size": 1}) == []
    # There is one rank for each model of four GPUs: two ranks cannot share 3 prompts with 5 answers each.
    sizes["context_parallel_size"] = 1
    changes = {"data.train_batch_size": 3, f"{ACTOR}.ppo_mini_batch_size": 3}
    (text,) = finding_texts("grpo", {**MEGATRON, **changes, f"{ACTOR}.megatron": sizes})
    assert text.startswith(f"error {ACTOR}.ppo_mini_batch_size ") and "multiple of 2, such as 4" in text


def test_loggers_whose_account_the_job_has() -> None:
    environment = {"WANDB_API_KEY": "", "SWANLAB_MODE": "local"}
    assert finding_texts("grpo", {"trainer.logger": ["wandb", "swanlab", "console"]}, environment=environment) == []
    assert len(finding_texts("grpo", {"trainer.logger": ["wandb", "swanlab"]}, environment={"OTHER": "1"})) == 2


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_unknown_settings_are_not_judged(workload: str) -> None:
    """The configuration of another trainer, or of a version with other names."""
    assert config_findings({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}}, workload, 2, 4) == []


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
    said = [text for text in finding_texts("grpo", {key: value}) if f" {key}" in text]
    assert [text.partition(" ")[0] for text in said] == [severity] * bool(severity), said


def test_parts_that_verl_does_not_read() -> None:
    assert finding_texts("grpo", {"critic.optim": {"lr": 0}, "reward.reward_model.nccl_timeout": -1}) == []
    assert len(finding_texts("ppo", {"critic.optim": {"lr": 0}})) == 1
    assert finding_texts("ppo", {"actor_rollout_ref.ref.nccl_timeout": -1}) == []
    assert len(finding_texts("grpo", {"actor_rollout_ref.ref.nccl_timeout": -1})) == 1
    assert finding_texts("grpo", {"part": {"enabled": False, "nccl_timeout": 0}}) == []
    assert len(finding_texts("grpo", {"part": {"enabled": True, "nccl_timeout": 0}})) == 1
    assert finding_texts("grpo", {f"{ACTOR}.ppo_micro_batch_size_per_gpu": 0}) == []
