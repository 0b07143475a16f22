# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers of a composed configuration that verl cannot work with: sizes of zero, negative rates, NaN.

A table says what each number may be. Of others, only NaN is refused, and infinity is doubtful.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from .config_rl import needs_critic, needs_reference
from .settings import ACTOR, REF, ROLLOUT, JobConfig, is_disabled


@dataclass(frozen=True)
class Rule:
    """What a number may be.

    expected: the same in words. accepts: whether a finite number is such a number. why: what happens otherwise.
    whole: whether fractions are wrong as well. written_as_float: the severity of 16.0 or 1e3 then.
    infinite: whether infinity has a meaning.
    """

    expected: str
    accepts: Callable[[float], bool]
    why: str = ""
    severity: str = ERROR
    whole: bool = False
    written_as_float: str = WARNING
    infinite: bool = False

    def because(self, why: str) -> Rule:
        return replace(self, why=why)

    def violation(self, value: float) -> str:
        """The severity of a number that is not as expected, or ""."""
        if math.isnan(value):
            return ERROR
        if math.isinf(value):
            return "" if self.infinite and value > 0 else self.severity
        if not self.accepts(value) or (self.whole and value != int(value)):
            return self.severity
        return self.written_as_float if self.whole and isinstance(value, float) else ""


def doubtful(rule: Rule) -> Rule:
    return replace(rule, severity=WARNING)


COUNT = Rule("an integer of 1 or more", lambda value: value >= 1, whole=True)
NATURAL = Rule("an integer of 0 or more", lambda value: value >= 0, whole=True)
WHOLE = Rule("an integer", lambda value: True, whole=True)
ALL_OR_COUNT = Rule("-1 for all, or an integer of 1 or more", lambda value: value == -1 or value >= 1, whole=True)
POSITIVE = Rule("more than 0", lambda value: value > 0)
NOT_NEGATIVE = Rule("0 or more", lambda value: value >= 0)
FRACTION = Rule("more than 0 and at most 1", lambda value: 0 < value <= 1)
UNIT = Rule("from 0 to 1", lambda value: 0 <= value <= 1)
FINITE = Rule("a finite number", lambda value: True)

NOTHING_LEARNED = POSITIVE.because("nothing would be learned")
LEARNING_RATE = (NOT_NEGATIVE.because("torch refuses it"), NOTHING_LEARNED)
# torch/optim/adamw.py
BETA = Rule("from 0 to less than 1", lambda value: 0 <= value < 1, "torch refuses it")
# torch/nn/utils/clip_grad.py: clip_grad_norm_ multiplies gradients by max_norm / norm.
CLIP_NORM = replace(POSITIVE.because("gradients would become zero, or change their sign"), infinite=True)
CLIP_RANGE = replace(doubtful(POSITIVE), infinite=True, why="updates would be clipped away")
# torch/utils/data/sampler.py: BatchSampler, torch/utils/data/dataloader.py
BATCH = replace(COUNT.because("torch refuses it"), written_as_float=ERROR)
WORKERS = replace(NATURAL.because("torch refuses it"), written_as_float=ERROR)
ENGINE = "the inference engine refuses it"
PARALLEL = COUNT.because("no process group has that size")

# By the end of the key; of several, the longest counts. A tuple of rules: the first that is violated.
# Each names its source, a file below verl/ in 0.9.1, unless it says so.
RULES: Mapping[str, Rule | tuple[Rule, ...]] = {
    # trainer/ppo/v1/trainer_base.py:_create_dataloader, trainer/sft_trainer_ray.py:_build_dataloader
    "train_batch_size": BATCH,
    "gen_batch_size": BATCH,
    "val_batch_size": WORKERS,
    "dataloader_num_workers": WORKERS,
    "data.num_workers": WORKERS,
    # utils/dataset/rl_dataset.py:_read_files_and_tokenize: max_samples > 0
    "train_max_samples": doubtful(ALL_OR_COUNT).because("verl takes all rows"),
    "val_max_samples": doubtful(ALL_OR_COUNT).because("verl takes all rows"),
    "filter_overlong_prompts_workers": COUNT.because("datasets refuses it"),
    # experimental/agent_loop/agent_loop.py:_cap_text_prompt_length, utils/dataset/multiturn_sft_dataset.py:__getitem__
    "max_prompt_length": COUNT.because("no prompt is that short"),
    "max_length": COUNT.because("no conversation is that short"),
    # workers/rollout/vllm_rollout/vllm_async_server.py:generate
    "max_response_length": COUNT.because(ENGINE),
    "prompt_length": COUNT.because("no prompt is that short"),
    "response_length": COUNT.because(ENGINE),
    # workers/engine/utils.py:prepare_micro_batches, utils/seqlen_balancing.py:rearrange_micro_batches
    "ppo_mini_batch_size": COUNT,
    "ppo_epochs": COUNT.because("nothing would be learned"),
    # trainer/sft_trainer_ray.py:fit, trainer/ppo/v1/trainer_base.py:fit
    "trainer.total_epochs": COUNT.because("nothing would be trained"),
    "trainer.total_training_steps": doubtful(COUNT).because("verl ends after one step, or before"),
    "trainer.save_freq": WHOLE,
    "trainer.test_freq": WHOLE,
    "trainer.critic_warmup": WHOLE,
    "trainer.log_val_generations": WHOLE,
    # utils/checkpoint/checkpoint_manager.py: max_ckpt_to_keep > 0, or all are kept
    "max_actor_ckpt_to_keep": WHOLE,
    "max_critic_ckpt_to_keep": WHOLE,
    "max_ckpt_to_keep": WHOLE,
    # workers/engine_workers.py: timedelta(seconds=nccl_timeout)
    "nccl_timeout": POSITIVE.because("process groups would time out at once"),
    # workers/engine/fsdp/utils.py:create_device_mesh: fsdp_size < 0 or world_size // fsdp_size
    "fsdp_size": Rule("-1 for all GPUs, or an integer of 1 or more", bool, "verl divides by it", whole=True),
    # torch/optim/adamw.py; an infinite rate passes it and makes every weight NaN
    "optim.lr": LEARNING_RATE,
    "critic.optim.lr": (LEARNING_RATE[0], doubtful(NOTHING_LEARNED).because("the critic would learn nothing")),
    "weight_decay": NOT_NEGATIVE.because("torch refuses it"),
    "optim.eps": NOT_NEGATIVE.because("torch refuses it"),
    "betas[0]": BETA,
    "betas[1]": BETA,
    # workers/engine/fsdp/transformer_impl.py:_build_lr_scheduler: a negative number stands for the ratio
    "lr_warmup_steps": WHOLE,
    "lr_warmup_steps_ratio": doubtful(UNIT),
    "optim.total_training_steps": WHOLE,
    # utils/torch_functional.py:get_cosine_schedule_with_warmup asserts it
    "min_lr_ratio": UNIT.because("verl asserts it"),
    # workers/engine/fsdp/transformer_impl.py:optimizer_step; actor.grad_clip before 0.8
    "clip_grad": CLIP_NORM,
    "grad_clip": doubtful(CLIP_NORM),
    # trainer/ppo/core_algos.py:compute_policy_loss_vanilla
    "clip_ratio": CLIP_RANGE,
    "clip_ratio_low": CLIP_RANGE,
    "clip_ratio_high": CLIP_RANGE,
    "actor.clip_ratio_c": Rule("more than 1", lambda value: value > 1, "verl asserts it", infinite=True),
    # trainer/ppo/core_algos.py:compute_value_loss
    "cliprange_value": CLIP_RANGE,
    # trainer/ppo/core_algos.py:compute_gae_advantage_return
    "algorithm.gamma": doubtful(UNIT),
    "algorithm.lam": doubtful(UNIT),
    # trainer/ppo/core_algos.py:get_kl_controller, AdaptiveKLController
    "kl_ctrl.horizon": doubtful(POSITIVE),
    "kl_ctrl.target_kl": doubtful(POSITIVE),
    "rollout_is_threshold": replace(doubtful(POSITIVE), infinite=True),
    # vllm/sampling_params.py:SamplingParams._verify_args, vllm/config/cache.py
    "rollout.n": COUNT.because(ENGINE),
    "val_kwargs.n": COUNT.because(ENGINE),
    "rollout.temperature": (
        NOT_NEGATIVE.because(ENGINE),
        doubtful(POSITIVE).because("all answers to a prompt would be the same, and their probabilities meaningless"),
    ),
    "val_kwargs.temperature": NOT_NEGATIVE.because(ENGINE),
    "top_p": FRACTION.because(ENGINE),
    "top_k": Rule("-1 for all, or an integer of 0 or more", lambda value: value >= -1, ENGINE, whole=True),
    "repetition_penalty": POSITIVE.because(ENGINE),
    "gpu_memory_utilization": FRACTION.because(ENGINE),
    "standalone_gpu_memory_utilization": FRACTION.because(ENGINE),
    "max_model_len": COUNT.because(ENGINE),
    "max_num_seqs": COUNT.because(ENGINE),
    "max_num_batched_tokens": COUNT.because(ENGINE),
    # experimental/agent_loop/agent_loop.py:AgentLoopManager, experimental/reward_loop/reward_loop.py:RewardLoopManager
    "agent.num_workers": COUNT.because("no worker would run"),
    "reward.num_workers": COUNT.because("no worker would run"),
    "reward_model.num_workers": COUNT.because("no worker would run"),
    # workers/rollout/vllm_rollout/vllm_rollout.py:update_weights
    "update_weights_bucket_megabytes": COUNT.because("no weight would be sent to the engine"),
    # transfer_queue/storage/bootstrap/simple_storage_bootstrap.py
    "num_data_storage_units": COUNT.because("no sample could be stored"),
    "total_storage_size": COUNT.because("no sample could be stored"),
    # workers/config/model.py: lora_rank > 0, or there is no LoRA
    "lora_rank": doubtful(NATURAL).because("verl trains all weights"),
    "lora.rank": doubtful(NATURAL).because("verl trains all weights"),
}
# By the end of the last name, for the rest: the engines have many of these.
ENDS = {
    "_parallel_size": PARALLEL,
    **dict.fromkeys(("micro_batch_size", "micro_batch_size_per_gpu", "max_token_len", "max_token_len_per_gpu"), COUNT),
}
# Keys whose default is the value of another one: only that one is reported.
FOLLOWERS = {
    f"{ROLLOUT}.prompt_length": "data.max_prompt_length",
    f"{ROLLOUT}.response_length": "data.max_response_length",
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu": f"{ACTOR}.ppo_max_token_len_per_gpu",
    f"{REF}.log_prob_max_token_len_per_gpu": f"{ACTOR}.ppo_max_token_len_per_gpu",
    f"{REF}.ulysses_sequence_parallel_size": f"{ACTOR}.ulysses_sequence_parallel_size",
    "critic.ppo_epochs": f"{ACTOR}.ppo_epochs",
    "critic.ppo_mini_batch_size": f"{ACTOR}.ppo_mini_batch_size",
    "critic.forward_max_token_len_per_gpu": "critic.ppo_max_token_len_per_gpu",
    "reward_model.forward_max_token_len_per_gpu": "critic.forward_max_token_len_per_gpu",
}


def number_findings(job: JobConfig) -> Iterator[Finding]:
    """Numbers, and texts in their places, that verl cannot work with. Parts that are disabled are skipped."""
    bad = {key: (value, rule) for key, value in used_values(job) if (rule := violated(key, value))}
    for key, (value, rule) in bad.items():
        origin = FOLLOWERS.get(key)
        if origin in bad and repr(bad[origin][0]) == repr(value):
            continue
        severity = ERROR if isinstance(value, str) else rule.violation(value)
        expected = FINITE.expected if is_nan(value) else rule.expected
        what = f"is {value}, but must be {expected}" + (f": {rule.why}" if rule.why and not is_nan(value) else "")
        yield about(key, what, f"set it to {expected}", severity)


def violated(key: str, value: Any) -> Rule | None:
    """The rule that a value violates; None if there is none."""
    if isinstance(value, str):
        # Text in place of a number: verl finds out minutes later.
        listed = rules_of(key)
        return listed[0] if listed and not is_number(value) else None
    return next((rule for rule in rules_of(key) or (doubtful(FINITE),) if rule.violation(value)), None)


def rules_of(key: str) -> tuple[Rule, ...]:
    """The rules of the table for a key."""
    parts = key.split(".")
    for start in range(len(parts)):
        if found := RULES.get(".".join(parts[start:])):
            return found if isinstance(found, tuple) else (found,)
    return next(((rule,) for end, rule in ENDS.items() if key.endswith(end)), ())


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def used_values(job: JobConfig) -> Iterator[tuple[str, Any]]:
    """The dotted keys and the values of all numbers and texts that the job reads."""
    unread = set()
    if job.workload != "sft":
        unread |= set() if needs_critic(job) else {"critic"}
        unread |= set() if needs_reference(job) else {REF}
    return values_below(job, job.values, "", unread)


def values_below(job: JobConfig, node: Any, path: str, unread: set[str]) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        if path not in unread and not is_disabled(node):
            for name, value in node.items():
                if not is_of_other_batches(node, str(name)):
                    yield from values_below(job, value, f"{path}.{name}".lstrip("."), unread)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from values_below(job, value, f"{path}[{index}]", unread)
    # Texts without a value are interpolations, or missing.
    elif not isinstance(node, bool) and (
        isinstance(node, (int, float)) or (isinstance(node, str) and job.get(path) is not None)
    ):
        yield path, node


def is_of_other_batches(section: Mapping[str, Any], name: str) -> bool:
    """Whether a setting is of dynamic batches, or of fixed ones, and its section has the others."""
    dynamic = section.get("log_prob_use_dynamic_bsz" if name.startswith("log_prob_") else "use_dynamic_bsz")
    return dynamic is False if "max_token_len" in name else dynamic is True and "micro_batch_size" in name
