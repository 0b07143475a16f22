# SPDX-License-Identifier: Apache-2.0
"""Rules for settings that are numbers, and `config_findings`, which applies all rules to a composed configuration.

Tables say what each number may be: no size of zero, no negative rate. Of numbers that are in no table, NaN is an error
and infinity a warning.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..checks.request import flatten
from ..common.findings import ERROR, WARNING, Finding, about
from ..jobspec.verl_releases import EVAL, SFT, release_of
from .config import RULES, SFT_RULES, JobConfig
from .config_rl import EVAL_RULES, RL_RULES, absent_parts


@dataclass(frozen=True)
class NumberRule:
    """The values that a number may have."""

    expected: str  # the values, in words
    accepts: Callable[[float], bool]  # whether a finite number is valid
    why: str = ""  # the consequence of another value
    severity: str = ERROR  # of another value
    is_whole: bool = False  # whether fractions are wrong
    written_as_float: str = WARNING  # the severity of a whole number written as 16.0 or 1e3, if is_whole
    is_infinite_allowed: bool = False

    def violation(self, value: float) -> str:
        """The severity of a number that is not as expected, or ""."""
        if math.isnan(value):
            return ERROR
        if math.isinf(value):
            return "" if self.is_infinite_allowed and value > 0 else self.severity
        if not self.accepts(value) or (self.is_whole and value != int(value)):
            return self.severity
        return self.written_as_float if self.is_whole and isinstance(value, float) else ""


def with_reason(rule: NumberRule, why: str) -> NumberRule:
    return replace(rule, why=why)


def as_warning(rule: NumberRule, why: str = "") -> NumberRule:
    return replace(rule, why=why, severity=WARNING)


COUNT = NumberRule("an integer of 1 or more", lambda value: value >= 1, is_whole=True)
NATURAL = NumberRule("an integer of 0 or more", lambda value: value >= 0, is_whole=True)
WHOLE = NumberRule("an integer", lambda value: True, is_whole=True)
ALL_OR_COUNT = NumberRule(
    "-1 for all, or an integer of 1 or more", lambda value: value == -1 or value >= 1, is_whole=True
)
POSITIVE = NumberRule("more than 0", lambda value: value > 0)
NOT_NEGATIVE = NumberRule("0 or more", lambda value: value >= 0)
FRACTION = NumberRule("more than 0 and at most 1", lambda value: 0 < value <= 1)
UNIT = NumberRule("from 0 to 1", lambda value: 0 <= value <= 1)
FINITE = NumberRule("a finite number", lambda value: True)
UNLIMITED = replace(POSITIVE, is_infinite_allowed=True)
TORCH, ENGINE = "torch refuses it", "the inference engine refuses it"
ZERO_GRADIENTS = "gradients would become zero, or change their sign"
TEMPERATURES = "rollout.temperature val_kwargs.temperature"
SAME_ANSWERS = "all answers to a prompt would be the same, and their probabilities meaningless"

# Each rule with the ends of its keys. For a key, the longest end that matches counts, with all rules that have it.
# Comments name sources, files below verl/ in 0.9.1, unless they say so.
RULES_BY_KEY_END: tuple[tuple[NumberRule, str], ...] = (
    # torch/utils/data/sampler.py: BatchSampler, torch/utils/data/dataloader.py
    (replace(COUNT, why=TORCH, written_as_float=ERROR), "train_batch_size gen_batch_size"),
    (replace(NATURAL, why=TORCH, written_as_float=ERROR), "val_batch_size dataloader_num_workers data.num_workers"),
    # utils/dataset/rl_dataset.py:_read_files_and_tokenize: max_samples > 0
    (as_warning(ALL_OR_COUNT, "verl takes all rows"), "train_max_samples val_max_samples"),
    (with_reason(COUNT, "datasets refuses it"), "filter_overlong_prompts_workers"),
    # experimental/agent_loop/agent_loop.py:_cap_text_prompt_length, utils/dataset/multiturn_sft_dataset.py:__getitem__
    (with_reason(COUNT, "no prompt is that short"), "max_prompt_length prompt_length"),
    (with_reason(COUNT, "no conversation is that short"), "max_length"),
    # workers/engine/utils.py:prepare_micro_batches, utils/seqlen_balancing.py:rearrange_micro_batches
    (COUNT, "ppo_mini_batch_size"),
    # trainer/sft_trainer_ray.py:fit, trainer/ppo/v1/trainer_base.py:fit
    (with_reason(COUNT, "nothing would be learned"), "ppo_epochs"),
    (with_reason(COUNT, "nothing would be trained"), "trainer.total_epochs"),
    (as_warning(COUNT, "verl ends after one step, or before"), "trainer.total_training_steps"),
    (WHOLE, "trainer.save_freq trainer.test_freq trainer.critic_warmup trainer.log_val_generations"),
    # utils/checkpoint/checkpoint_manager.py: max_ckpt_to_keep > 0, or all are kept
    (WHOLE, "max_actor_ckpt_to_keep max_critic_ckpt_to_keep max_ckpt_to_keep"),
    # workers/engine_workers.py: timedelta(seconds=nccl_timeout)
    (with_reason(POSITIVE, "process groups would time out at once"), "nccl_timeout"),
    # workers/engine/fsdp/utils.py:create_device_mesh: fsdp_size < 0 or world_size // fsdp_size
    (NumberRule("-1 for all GPUs, or an integer of 1 or more", bool, "verl divides by it", is_whole=True), "fsdp_size"),
    # torch/optim/adamw.py; an infinite rate passes it and makes every weight NaN
    (with_reason(NOT_NEGATIVE, TORCH), "optim.lr critic.optim.lr weight_decay optim.eps"),
    (with_reason(POSITIVE, "nothing would be learned"), "optim.lr"),
    (as_warning(POSITIVE, "the critic would learn nothing"), "critic.optim.lr"),
    (NumberRule("from 0 to less than 1", lambda value: 0 <= value < 1, TORCH), "betas[0] betas[1]"),
    # workers/engine/fsdp/transformer_impl.py:_build_lr_scheduler: a negative number stands for the ratio
    (WHOLE, "lr_warmup_steps optim.total_training_steps"),
    # utils/torch_functional.py:get_cosine_schedule_with_warmup asserts it
    (with_reason(UNIT, "verl asserts it"), "min_lr_ratio"),
    # trainer/ppo/core_algos.py:compute_gae_advantage_return
    (as_warning(UNIT), "lr_warmup_steps_ratio algorithm.gamma algorithm.lam"),
    # torch/nn/utils/clip_grad.py: clip_grad_norm_ multiplies gradients by max_norm / norm.
    (with_reason(UNLIMITED, ZERO_GRADIENTS), "clip_grad"),
    (as_warning(UNLIMITED, ZERO_GRADIENTS), "grad_clip"),
    # trainer/ppo/core_algos.py:compute_policy_loss_vanilla, compute_value_loss
    (
        as_warning(UNLIMITED, "updates would be clipped away"),
        "clip_ratio clip_ratio_low clip_ratio_high cliprange_value",
    ),
    (
        NumberRule("more than 1", lambda value: value > 1, "verl asserts it", is_infinite_allowed=True),
        "actor.clip_ratio_c",
    ),
    # trainer/ppo/core_algos.py:get_kl_controller, AdaptiveKLController
    (as_warning(POSITIVE), "kl_ctrl.horizon kl_ctrl.target_kl"),
    (as_warning(UNLIMITED), "rollout_is_threshold"),
    # vllm/sampling_params.py:SamplingParams._verify_args, vllm/config/cache.py, vllm_async_server.py:generate
    (with_reason(COUNT, ENGINE), "rollout.n val_kwargs.n max_response_length response_length"),
    (with_reason(COUNT, ENGINE), "max_model_len max_num_seqs max_num_batched_tokens"),
    (with_reason(NOT_NEGATIVE, ENGINE), TEMPERATURES),
    (as_warning(POSITIVE, SAME_ANSWERS), "rollout.temperature"),
    # vLLM 0.27: SamplingParams._verify_args
    (NumberRule("at most 2", lambda value: value <= 2, "newer versions of vLLM refuse more", WARNING), TEMPERATURES),
    (with_reason(FRACTION, ENGINE), "top_p gpu_memory_utilization standalone_gpu_memory_utilization"),
    (NumberRule("-1 for all, or an integer of 0 or more", lambda value: value >= -1, ENGINE, is_whole=True), "top_k"),
    # experimental/agent_loop/agent_loop.py:generate_sequences
    (NumberRule("1", lambda value: value == 1, "verl's agent loops always ask for 1", WARNING), "repetition_penalty"),
    # experimental/agent_loop/agent_loop.py:AgentLoopManager, experimental/reward_loop/reward_loop.py:RewardLoopManager
    (with_reason(COUNT, "no worker would run"), "agent.num_workers reward.num_workers reward_model.num_workers"),
    # workers/rollout/vllm_rollout/vllm_rollout.py:update_weights
    (with_reason(COUNT, "no weight would be sent to the engine"), "update_weights_bucket_megabytes"),
    # transfer_queue/storage/bootstrap/simple_storage_bootstrap.py
    (with_reason(COUNT, "no sample could be stored"), "num_data_storage_units total_storage_size"),
    # workers/config/model.py: lora_rank > 0, or there is no LoRA
    (as_warning(NATURAL, "verl trains all weights"), "lora_rank lora.rank"),
)
# Rules for the remaining keys, by the end of their last names; the engines have many of these.
RULES_BY_NAME_END = {
    "_parallel_size": with_reason(COUNT, "no process group has that size"),
    **dict.fromkeys(("micro_batch_size", "micro_batch_size_per_gpu", "max_token_len", "max_token_len_per_gpu"), COUNT),
}


def number_findings(job: JobConfig) -> Iterator[Finding]:
    """Findings about invalid numbers, and about texts in place of numbers, in all parts that the job uses."""
    for key, value in used_values(job):
        if not (rule := violated_rule(key, value)):
            continue
        severity = ERROR if isinstance(value, str) else rule.violation(value)
        is_nan = isinstance(value, float) and math.isnan(value)
        expected = FINITE.expected if is_nan else rule.expected
        problem = f"is {value}, but must be {expected}" + (f": {rule.why}" if rule.why and not is_nan else "")
        yield about(key, problem, f"set it to {expected}", severity)


def violated_rule(key: str, value: Any) -> NumberRule | None:
    """The first rule that a value violates; None if it violates none."""
    rules = rules_for(key)
    if isinstance(value, str):
        # Text in place of a number: verl finds out minutes later.
        return rules[0] if rules and not is_number(value) else None
    return next((rule for rule in rules or [as_warning(FINITE)] if rule.violation(value)), None)


@functools.cache
def rules_for(key: str) -> list[NumberRule]:
    """The rules for a key; none for a key that is not in a table."""
    parts = key.split(".")
    for end in (".".join(parts[start:]) for start in range(len(parts))):
        if rules := [rule for rule, ends in RULES_BY_KEY_END if end in ends.split()]:
            return rules
    return [rule for end, rule in RULES_BY_NAME_END.items() if key.endswith(end)][:1]


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def used_values(job: JobConfig) -> Iterator[tuple[str, Any]]:
    """The dotted keys and the values of all numbers and texts that the job reads."""
    unread = tuple(absent_parts(job))
    for key, value in flatten(job.values):
        section, _dot, name = key.rpartition(".")
        # Texts without a value are interpolations, or missing.
        is_text = isinstance(value, str) and job.get(key) is not None
        is_value = is_text or (isinstance(value, (int, float)) and not isinstance(value, bool))
        siblings = job.get(section, {})
        is_unused = isinstance(siblings, Mapping) and is_of_unused_batches(siblings, name)
        # experimental/fully_async_policy/fully_async_rollouter.py:FullyAsyncRollouter asserts it.
        is_streamed = key == "data.train_batch_size" and value == 0 and bool(job.get("async_training"))
        if is_value and not key.startswith(unread) and not is_unused and not is_streamed:
            yield key, value


def is_of_unused_batches(section: Mapping[str, Any], name: str) -> bool:
    """Whether a setting is for dynamic batches and its section has fixed ones, or the other way round."""
    dynamic = section.get("log_prob_use_dynamic_bsz" if name.startswith("log_prob_") else "use_dynamic_bsz")
    return dynamic is False if "max_token_len" in name else dynamic is True and "micro_batch_size" in name


WORKLOAD_RULES = {SFT: SFT_RULES, EVAL: EVAL_RULES}


def config_findings(
    config: Mapping[str, Any],
    workload: str,
    nnodes: int,
    gpus_per_node: int,
    version: str = "0.9.1",
    environment: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Findings about a composed configuration, by all rules for the workload.

    version: that of the snapshot's verl.
    environment: the environment variables of the job, with the names of its secrets.
    """
    release = release_of(version) or ()
    job = JobConfig(config, workload, nnodes, gpus_per_node, release, environment or {})
    findings = [finding for rule in (*RULES, *WORKLOAD_RULES.get(workload, RL_RULES)) for finding in rule(job)]
    # Other rules say more about a key than that its number is wrong.
    keys = {finding.key for finding in findings}
    return findings + [finding for finding in number_findings(job) if finding.key not in keys]
