"""What the gate says about each number of verl's configurations if it is 0, -1, NaN or infinite.

One letter each: an error, a warning, or nothing ("."). By the end of the key; of several, the longest counts.
"""

from __future__ import annotations

from typing import Any

from composed_config import put

from argus.gate.numbers import config_findings

TRIED = (0, -1, float("nan"), float("inf"))
JUDGED = {
    # None of these can be zero or less.
    **dict.fromkeys(
        (
            *("train_batch_size", "max_prompt_length", "max_response_length", "max_length", "prompt_length"),
            *("response_length", "ppo_mini_batch_size", "ppo_epochs", "ppo_max_token_len_per_gpu", "nccl_timeout"),
            *("log_prob_max_token_len_per_gpu", "forward_max_token_len_per_gpu", "data.max_token_len_per_gpu"),
            *("trainer.total_epochs", "val_kwargs.n", "optim.lr"),
            *("top_p", "gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "agent.num_workers"),
            *("reward.num_workers", "update_weights_bucket_megabytes", "num_data_storage_units"),
            *("total_storage_size", "ulysses_parallel_size", "tensor_parallel_size", "expert_parallel_size"),
            *("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size"),
            *("ulysses_sequence_parallel_size", "fully_shard_parallel_size", "expert_fully_shard_parallel_size"),
            *("rollout.n", "filter_overlong_prompts_workers"),
        ),
        "EEEE",
    ),
    # verl 0.9 reads another key instead.
    "critic.optim.lr": "WEEE",
    "rollout.temperature": "WEEE",
    "val_kwargs.temperature": ".EEE",
    "fsdp_size": "E.EE",
    "top_k": "..EE",
    "clip_grad": "EEE.",
    "clip_ratio_c": "EEE.",
    **dict.fromkeys(("grad_clip", "clip_ratio", "clip_ratio_low", "clip_ratio_high", "cliprange_value"), "WWE."),
    "rollout_is_threshold": "WWE.",
    **dict.fromkeys(("weight_decay", "betas[0]", "betas[1]", "min_lr_ratio", "dataloader_num_workers"), ".EEE"),
    "data.num_workers": ".EEE",
    **dict.fromkeys(("train_max_samples", "val_max_samples"), "W.EW"),
    **dict.fromkeys(("gamma", "lam", "lr_warmup_steps_ratio", "lora_rank", "lora.rank"), ".WEW"),
    **dict.fromkeys(("horizon", "target_kl"), "WWEW"),
    **dict.fromkeys(
        (
            *("lr_warmup_steps", "optim.total_training_steps", "critic_warmup", "log_val_generations", "test_freq"),
            *("max_actor_ckpt_to_keep", "max_critic_ckpt_to_keep", "max_ckpt_to_keep"),
        ),
        "..EE",
    ),
    "trainer.save_freq": "WWEE",
    "trainer.total_training_steps": "EEEW",
}
# In SFT, verl divides by the frequencies.
JUDGED_SFT = {"trainer.save_freq": "EWEE", "trainer.test_freq": "E.EE"}
# In GRPO, an answer alone has nothing to be compared with; 0.9 reads another key than critic.ppo_max_token_len_per_gpu.
OTHERWISE = "..EW"


def expected(workload: str, key: str) -> str:
    """The letters for a key."""
    table = {**JUDGED, **(JUDGED_SFT if workload == "sft" else {})}
    parts = key.split(".")
    return next((table[end] for start in range(len(parts)) if (end := ".".join(parts[start:])) in table), OTHERWISE)


def letters(config: Any, key: str, workload: str, gpus: int, version: str = "0.9.1") -> str:
    """The severities of the findings for each value of TRIED, as letters."""
    said = ""
    for value in TRIED:
        findings = config_findings(put(config, {key: value}), workload, 2, gpus, version)
        severities = [finding.severity[0].upper() for finding in findings if finding.key == key]
        said += severities[0] if severities else "."
    return said
