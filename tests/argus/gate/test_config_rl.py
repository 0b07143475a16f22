from __future__ import annotations

from typing import Any

import pytest
from composed_config import ACTOR, ROLLOUT, found

REF = "actor_rollout_ref.ref"

WRONG: list[tuple[str, dict[str, Any], str]] = [
    # The workload, the changes, and the only finding.
    (
        "grpo",
        {f"{ROLLOUT}.n": 1},
        (
            f"warning {ROLLOUT}.n is 1: a single answer has nothing to be compared with,"
            " so its advantage is its reward: set it to 2 or more"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.checkpoint.async_save": True},
        (
            f"error {ACTOR}.checkpoint.async_save is true, which only Megatron does: verl would record no checkpoint "
            "as finished, so nothing could resume: remove it"
        ),
    ),
    (
        "grpo",
        {"trainer.val_only": True, "trainer.val_before_train": False},
        (
            "error trainer.val_only is true, but verl reads it only with trainer.val_before_train=True: the job would "
            "train: remove trainer.val_before_train"
        ),
    ),
    (
        "grpo",
        {"data.gen_batch_size": 100},
        (
            "error data.gen_batch_size is 100, which does not divide data.train_batch_size, 256: set it"
            " to a divisor, or remove it"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.ppo_mini_batch_size": 512},
        (
            f"warning {ACTOR}.ppo_mini_batch_size is 512: verl adds 1280 empty samples of 128 tokens to the 1280 of a "
            "step, and computes those as well: set it to a divisor of data.train_batch_size, 256"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.ppo_mini_batch_size": 96},
        (
            f"warning {ACTOR}.ppo_mini_batch_size is 96: verl adds 160 empty samples of 128 tokens to the 1280 of a "
            "step, and computes those as well: set it to a divisor of data.train_batch_size, 256"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.ppo_mini_batch_size": 4},
        (
            f"error {ACTOR}.ppo_mini_batch_size is 4: with 5 answers each, 20 is not a "
            "multiple of 8 ranks: set it to a multiple of 8"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron": {"context_parallel_size": 3}},
        (
            f"error {ACTOR}.megatron puts a model on 3 GPUs, which do not divide the "
            "job's 8 GPUs: choose tensor, pipeline and context parallel sizes whose product does"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.log_prob_use_dynamic_bsz": False},
        (
            f"error {ROLLOUT}.log_prob_use_dynamic_bsz is False, but "
            f"{ACTOR}.use_dynamic_bsz is True: remove it: it follows the actor's"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.tensor_model_parallel_size": 16},
        (
            f"error {ROLLOUT}.tensor_model_parallel_size puts an engine on 16 GPUs, but "
            "the job has 8: set it to 8 or less"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.tensor_model_parallel_size": 3},
        (
            f"error {ROLLOUT}.tensor_model_parallel_size puts an engine on 3 GPUs, which"
            " do not divide the job's 8 GPUs: set it to a divisor"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.pipeline_model_parallel_size": 2},
        (f"error {ROLLOUT}.pipeline_model_parallel_size is 2, which verl does not support with vllm yet: set it to 1"),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.expert_parallel_size": 8},
        (
            f"error {ROLLOUT}.expert_parallel_size is 8, but must be "
            "tensor_model_parallel_size times data_parallel_size, 2: set it to 2, or to 1"
        ),
    ),
    ("grpo", {f"{ROLLOUT}.mode": "sync"}, f"error {ROLLOUT}.mode is sync, which verl no longer supports: remove it"),
    (
        "grpo",
        {f"{ROLLOUT}.max_model_len": 1000},
        (
            f"warning {ROLLOUT}.max_model_len is 1000, but prompt and response may have "
            "1024 tokens: the end is cut off: set it to 1024, or remove it"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.val_kwargs.do_sample": True, f"{ROLLOUT}.temperature": 0},
        (f"error {ROLLOUT}.temperature is 0, but {ROLLOUT}.val_kwargs.do_sample is true: set it to more than 0"),
    ),
    (
        "grpo",
        {f"{ACTOR}.ppo_max_token_len_per_gpu": 1000},
        (
            f"warning {ACTOR}.ppo_max_token_len_per_gpu allows 1000 tokens, but prompt "
            "and response may have 1024: one of that length ends the job: set it to 1024 or more"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.ulysses_sequence_parallel_size": 2, "actor_rollout_ref.model.use_remove_padding": False},
        (
            "error actor_rollout_ref.model.use_remove_padding is false, but "
            f"{ACTOR}.ulysses_sequence_parallel_size is 2: set "
            "actor_rollout_ref.model.use_remove_padding=True"
        ),
    ),
    (
        "grpo",
        {f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 3},
        (
            f"error {ACTOR}.fsdp_config.ulysses_sequence_parallel_size is 3, which does "
            "not divide the job's 8 GPUs: set it to a divisor"
        ),
    ),
    (
        "ppo",
        {"critic.enable": False},
        ("error critic.enable is false, but gae needs the values of a critic: remove it, or choose workload: grpo"),
    ),
    (
        "ppo",
        {"critic.ppo_mini_batch_size": 96},
        (
            "warning critic.ppo_mini_batch_size is 96: verl adds 128 empty samples of 128 tokens to the 256 of a step, "
            "and computes those as well: set it to a divisor of data.train_batch_size, 256"
        ),
    ),
    (
        "ppo",
        {"critic.ppo_max_token_len_per_gpu": 8192},
        (
            "warning critic.ppo_max_token_len_per_gpu is 8192, but verl reads "
            "critic.ppo_infer_max_token_len_per_gpu instead, which is 32768: set "
            "++critic.ppo_infer_max_token_len_per_gpu=8192"
        ),
    ),
    (
        "ppo",
        {"critic.fsdp.ulysses_sequence_parallel_size": 3},
        (
            "error critic.fsdp.ulysses_sequence_parallel_size is 3, which does not divide the job's 8 "
            "GPUs: set it to a divisor"
        ),
    ),
    (
        "grpo",
        {f"{ROLLOUT}.log_prob_max_token_len_per_gpu": 1023},
        (
            f"warning {ROLLOUT}.log_prob_max_token_len_per_gpu allows 1023 tokens, but "
            "prompt and response may have 1024: one of that length ends the job: set it to 1024 or more"
        ),
    ),
    (
        "ppo",
        {
            "critic.strategy": "fsdp2",
            "critic.model.use_remove_padding": False,
            "critic.fsdp.ulysses_sequence_parallel_size": 2,
        },
        (
            "error critic.model.use_remove_padding is false, but "
            "critic.fsdp.ulysses_sequence_parallel_size is 2: set critic.model.use_remove_padding=True"
        ),
    ),
]


@pytest.mark.parametrize(("workload", "changes", "expected"), WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_wrong_settings(workload: str, changes: dict[str, Any], expected: str) -> None:
    assert found(workload, changes) == [expected]


STATIC = {
    f"{ACTOR}.use_dynamic_bsz": False,
    f"{ROLLOUT}.log_prob_use_dynamic_bsz": False,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 4,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 4,
}


def test_micro_batches() -> None:
    assert found("grpo", STATIC) == []
    for key in (key for key in STATIC if "micro" in key):
        assert found("grpo", {**STATIC, key: None}) == [
            f"error {key} has no value, but {ACTOR}.use_dynamic_bsz is false: set {key}"
        ]
    # A job without a reference model needs no size for it.
    without = {**STATIC, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": None, f"{ACTOR}.use_kl_loss": False}
    assert found("grpo", without) == []
    assert len(found("grpo", {**without, "algorithm.use_kl_in_reward": True})) == 1
    assert found("grpo", {**STATIC, f"{ACTOR}.ppo_micro_batch_size": 32}) == [
        f"error {ACTOR}.ppo_micro_batch_size is set, and so is {ACTOR}.ppo_micro_batch_size_per_gpu: "
        f"remove {ACTOR}.ppo_micro_batch_size"
    ]
    assert found("grpo", {**STATIC, f"{ACTOR}.ppo_micro_batch_size_per_gpu": 3}) == [
        f"error {ACTOR}.ppo_micro_batch_size_per_gpu is 3, which does not divide the 80 samples of a rank's "
        f"mini-batch: set it to a divisor, or set {ACTOR}.use_dynamic_bsz=True"
    ]


def test_a_batch_that_is_not_completed_ends_the_job() -> None:
    expected = [
        f"error {ACTOR}.ppo_mini_batch_size is 96, which does not divide data.train_batch_size, 256: the job ends at "
        "its first update: set it to a divisor of data.train_batch_size, 256"
    ]
    changes = {f"{ACTOR}.ppo_mini_batch_size": 96}
    assert found("grpo", {**changes, "trainer.use_v1": False}) == found("grpo", changes, "0.8.0") == expected


@pytest.mark.parametrize("section", [ROLLOUT, REF])
def test_micro_batches_of_log_probabilities(section: str) -> None:
    key = f"{section}.log_prob_micro_batch_size_per_gpu"
    # 160 samples for each of 8 ranks; with a mini-batch of 96, verl completes them to 180.
    (text,) = found("grpo", {**STATIC, key: 9})
    assert f"error {key} is 9, which does not divide the 160 samples of a rank: set it to a divisor, or set" in text
    of_96 = {**STATIC, f"{ACTOR}.ppo_mini_batch_size": 96}
    assert not any(key in text for text in found("grpo", {**of_96, key: 9}))


def test_fixed_batches_of_the_reference_alone() -> None:
    fixed = {f"{REF}.log_prob_use_dynamic_bsz": False}
    assert found("grpo", {**fixed, f"{REF}.log_prob_micro_batch_size_per_gpu": 4}) == []
    (text,) = found("grpo", fixed)
    assert f"{REF}.log_prob_micro_batch_size_per_gpu has no value" in text


def test_prometheus() -> None:
    (text,) = found("grpo", {f"{ROLLOUT}.prometheus": {"enable": True, "port": 9090, "file": "/tmp/p.yml"}})
    assert text.startswith(f"warning {ROLLOUT}.prometheus.enable is true, and verl then replaces /tmp/p.yml on every")
    assert found("grpo", {f"{ROLLOUT}.prometheus": {"enable": False, "port": 9090, "file": "/tmp/p.yml"}}) == []


def test_micro_batches_of_the_critic() -> None:
    assert found("ppo", {"critic.use_dynamic_bsz": False}) == [
        "error critic.ppo_micro_batch_size_per_gpu has no value, but critic.use_dynamic_bsz is false: "
        "set critic.ppo_micro_batch_size_per_gpu"
    ]
    assert found("grpo", {"critic.use_dynamic_bsz": False}) == []


def test_batches_of_fixed_size() -> None:
    assert found("grpo", {**STATIC, "data.train_batch_size": 129})[0] == (
        "error data.train_batch_size is 129: with 5 answers each, 645 is not a multiple of 8 GPUs: "
        "set it to a multiple of 8"
    )
    assert found("grpo", {**STATIC, "data.train_batch_size": 64}) == [
        f"error {ACTOR}.ppo_mini_batch_size is 128, more than data.train_batch_size, 64: set it to 64 or less"
    ]


def test_rules_begin_with_a_release() -> None:
    changes = {"data.gen_batch_size": 100}
    assert any(" data.gen_batch_size " in text for text in found("grpo", changes, "0.9.0"))
    assert found("grpo", changes, "0.8.0") == []


def test_a_rollout_that_verl_no_longer_has() -> None:
    (text,) = found("grpo", {f"{ROLLOUT}.mode": "sync"})
    assert f" {ROLLOUT}.mode " in text


def test_the_policy_and_its_rollout_have_one_kind_of_batches() -> None:
    key = f"{ROLLOUT}.log_prob_use_dynamic_bsz"
    assert any(f" {key} " in text for text in found("grpo", {key: False}))


def test_tokens_of_the_critic_before_0_9() -> None:
    changes = {"critic.ppo_max_token_len_per_gpu": 1000, "critic.ulysses_sequence_parallel_size": 1}
    assert found("ppo", changes, "0.8.0") == [
        "warning critic.ppo_max_token_len_per_gpu allows 1000 tokens, but prompt and response may have 1024: "
        "one of that length ends the job: set it to 1024 or more"
    ]
    assert found("ppo", {**changes, "critic.fsdp.ulysses_sequence_parallel_size": 2}, "0.8.0") == []
    assert found("ppo", {"critic.ppo_max_token_len_per_gpu": 32768}) == []
    # Since 0.9, verl reads another key for the critic.
    assert not any("allows 1000 tokens" in text for text in found("ppo", changes, "0.9.0"))


def test_tokens_are_those_of_all_gpus_that_share_a_sequence() -> None:
    changes = {f"{ACTOR}.ppo_max_token_len_per_gpu": 512, f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 2}
    assert found("grpo", changes) == []
    # The old name wins if it is set.
    old = {f"{ACTOR}.ppo_max_token_len_per_gpu": 512, f"{ACTOR}.ulysses_sequence_parallel_size": 2}
    assert found("grpo", old) == []


def test_megatron() -> None:
    megatron: dict[str, Any] = {f"{ACTOR}.strategy": "megatron"}
    assert found("grpo", {**megatron, f"{ACTOR}.ppo_max_token_len_per_gpu": 1000}) == []
    assert found("grpo", {**megatron, f"{ACTOR}.checkpoint.async_save": True}) == []
    sizes = {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2, "context_parallel_size": 2}
    assert found("grpo", {**megatron, f"{ACTOR}.megatron": sizes, f"{ACTOR}.ppo_mini_batch_size": 1}) == []
    # One rank for each model of four GPUs: 3 prompts with 5 answers each are not shared by two.
    sizes["context_parallel_size"] = 1
    changes = {"data.train_batch_size": 3, f"{ACTOR}.ppo_mini_batch_size": 3}
    assert found("grpo", {**megatron, **changes, f"{ACTOR}.megatron": sizes}) == [
        f"error {ACTOR}.ppo_mini_batch_size is 3: with 5 answers each, 15 is not a multiple of 2 ranks: "
        "set it and data.train_batch_size to the same multiple of 2, such as 4"
    ]
    assert found("grpo", {f"{ACTOR}.strategy": "other", f"{ACTOR}.ppo_mini_batch_size": 1}) == []


def test_groups_that_are_filtered_need_no_whole_batches() -> None:
    changes = {"data.gen_batch_size": 100}
    assert found("grpo", {**changes, "algorithm.filter_groups.enable": True}) == []
    assert found("grpo", {**changes, "trainer.v1.trainer_mode": "async"}) == []


def test_engines_fill_nodes() -> None:
    key = f"{ROLLOUT}.tensor_model_parallel_size"
    changes = {key: 6, "data.train_batch_size": 264, f"{ACTOR}.ppo_mini_batch_size": 132}
    assert found("grpo", changes, nnodes=3) == [
        f"error {key} puts an engine on 6 GPUs, which do not fill nodes of 4 GPUs: "
        "set it to a multiple of 4, or to a size that fits in a node"
    ]
    assert found("grpo", {**changes, key: 3}, nnodes=3) == []


def test_engines_of_several_dimensions() -> None:
    assert found("grpo", {f"{ROLLOUT}.data_parallel_size": 8}) == [
        f"error {ROLLOUT}.tensor_model_parallel_size puts an engine on 16 GPUs, but the job has 8: set it to 8 or less"
    ]
    expert = f"{ROLLOUT}.expert_parallel_size"
    assert found("grpo", {expert: 8, f"{ROLLOUT}.data_parallel_size": 4}) == []
    assert found("grpo", {expert: 8, f"{ROLLOUT}.name": "trtllm"}) == []
    assert found("grpo", {f"{ROLLOUT}.pipeline_model_parallel_size": 2, f"{ROLLOUT}.name": "hf"}) == []


def test_generation() -> None:
    sampled = {f"{ROLLOUT}.val_kwargs.do_sample": True}
    assert found("grpo", {**sampled, f"{ROLLOUT}.temperature": 0.1}) == []
    (warning,) = found("grpo", {f"{ROLLOUT}.temperature": 0})
    assert warning.startswith(f"warning {ROLLOUT}.temperature is 0, but must be more than 0: all answers to a prompt")
    assert found("grpo", {f"{ROLLOUT}.max_model_len": 1024}) == []


@pytest.mark.parametrize(("size", "answers", "example"), [(100, 5, "8, such as 104"), (100, 4, "")])
def test_batch_without_a_mini_batch_that_fits(size: int, answers: int, example: str) -> None:
    """Both hints lead to sizes that satisfy both rules."""
    changes = {
        "data.train_batch_size": size,
        f"{ACTOR}.ppo_mini_batch_size": 60,
        "actor_rollout_ref.rollout.n": answers,
    }
    both = f"set it and data.train_batch_size to the same multiple of {example}"
    hints = [line.rpartition(": ")[2] for line in found("grpo", changes) if "ppo_mini_batch_size" in line]
    assert hints == ([both, both] if example else ["set it to a divisor of data.train_batch_size, 100"])


@pytest.mark.parametrize(
    ("engine", "settings", "refused"),
    [
        ("vllm", {}, True),
        ("vllm", {f"{ROLLOUT}.enable_sleep_mode": False}, False),
        ("hf_cpu", {}, False),
    ],
)
def test_memory_of_an_engine_that_sleeps(engine: str, settings: dict[str, Any], refused: bool) -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"}
    findings = found("grpo", {f"{ROLLOUT}.name": engine, **settings}, environment=environment)
    assert any("env_vars.PYTORCH_CUDA_ALLOC_CONF" in line for line in findings) == refused
