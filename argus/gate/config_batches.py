# SPDX-License-Identifier: Apache-2.0
"""The rules about batches of PPO and GRPO, which verl splits into mini-batches and micro-batches, and among GPUs.

Each rule was read in verl 0.9.1 and names its source, a file and a function below verl/.
"""

from __future__ import annotations

import math

from ..common.findings import WARNING, about
from .config import ACTOR, CRITIC_SEQUENCE_KEY, REF, ROLLOUT, Findings, JobConfig, is_indivisible, multiple_remedy

# The name of the setting in the sections of actor and critic.
TOKENS_NAME = "ppo_max_token_len_per_gpu"


def batch_size_findings(job: JobConfig) -> Findings:
    size, answers = job.number("data.train_batch_size"), job.number(f"{ROLLOUT}.n", 1)
    if job.is_megatron:
        # utils/config.py:validate_config
        if is_indivisible(job.gpus, job.megatron_model_gpus):
            problem = f"puts a model on {job.megatron_model_gpus} GPUs, which do not divide the job's {job.gpus} GPUs"
            remedy = "choose tensor, pipeline and context parallel sizes whose product does"
            yield about(f"{ACTOR}.megatron", problem, remedy)
    # utils/config.py:validate_config
    elif job.get(f"{ACTOR}.use_dynamic_bsz") is False and is_indivisible(size * answers, job.gpus):
        problem = f"is {size}: with {answers} answers each, {size * answers} is not a multiple of {job.gpus} GPUs"
        yield about("data.train_batch_size", problem, multiple_remedy(job.gpus))


def generated_batch_findings(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:_next_train_batch
    size, generated = job.number("data.train_batch_size"), job.number("data.gen_batch_size")
    is_used = job.get("trainer.v1.trainer_mode") == "sync" and not job.get("algorithm.filter_groups.enable")
    if job.release >= (0, 9) and is_used and is_indivisible(size, generated):
        problem = f"is {generated}, which does not divide data.train_batch_size, {size}"
        yield about("data.gen_batch_size", problem, "set it to a divisor, or remove it")


def mini_batch_findings(job: JobConfig) -> Findings:
    size, answers = job.number("data.train_batch_size"), job.number(f"{ROLLOUT}.n", 1)
    for section in trained_sections(job):
        key = f"{section}.ppo_mini_batch_size"
        mini = job.number(key)
        ranks = job.data_parallel_size if section == ACTOR else 0
        # workers/config/actor.py:ActorConfig.validate, workers/config/critic.py:CriticConfig.validate
        if job.get(f"{section}.use_dynamic_bsz") is False and 0 < size < mini:
            yield about(key, f"is {mini}, more than data.train_batch_size, {size}", f"set it to {size} or less")
        elif is_padded(job) and is_indivisible(size, mini):
            added = added_sample_count(job)
            text = f"is {mini}: verl adds {added} empty samples of 128 tokens to the {size * answers} of a step"
            yield about(key, f"{text}, and computes those as well", batch_remedy(size, answers, ranks), WARNING)
        # utils/tensordict_utils.py:make_iterator
        elif not is_padded(job) and is_indivisible(size, mini):
            text = f"is {mini}, which does not divide data.train_batch_size, {size}: the job ends at its first update"
            yield about(key, text, batch_remedy(size, answers, ranks))
        # workers/engine_workers.py:train_mini_batch
        if is_indivisible(mini * answers, ranks):
            text = f"is {mini}: with {answers} answers each, {mini * answers} is not a multiple of {ranks} ranks"
            is_batch_wrong = is_indivisible(size * answers, ranks)
            yield about(key, text, batch_remedy(size, answers, ranks) if is_batch_wrong else multiple_remedy(ranks))


def is_padded(job: JobConfig) -> bool:
    """Whether verl adds samples to a batch that mini-batches do not divide."""
    return job.release >= (0, 9) and bool(job.get("trainer.use_v1"))


def trained_sections(job: JobConfig) -> list[str]:
    return [ACTOR, "critic"] if job.needs_critic else [ACTOR]


def added_sample_count(job: JobConfig) -> int:
    """How many samples verl adds to those of a step, so that all mini-batches and all ranks are full."""
    # trainer/ppo/v1/trainer_base.py:_get_required_batch_multiple, padding_utils.py:upsample_batch_to_divisible_size
    answers = job.number(f"{ROLLOUT}.n", 1)
    minis = [job.number(f"{section}.ppo_mini_batch_size") * answers for section in trained_sections(job)]
    multiple = math.lcm(job.data_parallel_size or 1, *minis) if is_padded(job) else 0
    return -job.number("data.train_batch_size") * answers % multiple if multiple else 0


def batch_remedy(size: int, answers: int, ranks: int) -> str:
    """What to set a mini-batch to, so that it divides the batch and fills all ranks.

    If no mini-batch does so for this batch, both have to change.
    """
    if not is_indivisible(size * answers, ranks):
        return f"set it to a divisor of data.train_batch_size, {size}"
    least = ranks // math.gcd(ranks, answers)
    return f"set it and data.train_batch_size to the same multiple of {least}, such as {-(-size // least) * least}"


def micro_batch_findings(job: JobConfig) -> Findings:
    kinds = [(ACTOR, "ppo_micro_batch_size", ACTOR)]
    kinds += [("critic", "ppo_micro_batch_size", "critic")] if job.needs_critic else []
    kinds += [(REF, "log_prob_micro_batch_size", ACTOR)] if job.needs_reference else []
    kinds += [(ROLLOUT, "log_prob_micro_batch_size", ACTOR)]
    for section, name, owner in kinds:
        if job.get(f"{owner}.use_dynamic_bsz") is False:
            yield from micro_batch_size_findings(job, section, f"{section}.{name}", f"{owner}.use_dynamic_bsz")
        elif section == REF and job.get(f"{REF}.log_prob_use_dynamic_bsz") is False:
            yield from micro_batch_size_findings(job, section, f"{section}.{name}", f"{REF}.log_prob_use_dynamic_bsz")


def micro_batch_size_findings(job: JobConfig, section: str, deprecated_key: str, dynamic: str) -> Findings:
    """Findings about the micro-batch of a section. deprecated_key: its size over all GPUs. dynamic: the switch."""
    # workers/config/actor.py:__post_init__, workers/config/critic.py:__post_init__, utils/config.py:validate_config
    key = f"{deprecated_key}_per_gpu"
    size = job.get(key)
    if job.get(deprecated_key) is None and size is None:
        yield about(key, f"has no value, but {dynamic} is false", f"set {key}")
    elif job.get(deprecated_key) is not None and size is not None:
        yield about(deprecated_key, f"is set, and so is {key}", f"remove {deprecated_key}")
    # workers/engine/utils.py:prepare_micro_batches
    answers, ranks = job.number(f"{ROLLOUT}.n", 1), job.data_parallel_size
    samples, owner = job.number(f"{ACTOR}.ppo_mini_batch_size") * answers, "a rank's mini-batch"
    if section in (ROLLOUT, REF):
        samples, owner = job.number("data.train_batch_size") * answers + added_sample_count(job), "a rank"
    elif section != ACTOR:
        return
    if ranks and samples % ranks == 0 and is_indivisible(samples // ranks, job.number(key)):
        problem = f"is {size}, which does not divide the {samples // ranks} samples of {owner}"
        yield about(key, problem, f"set it to a divisor, or set {dynamic}=True")


def dynamic_batch_findings(job: JobConfig) -> Findings:
    # workers/engine_workers.py:init_model: actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    actor, rollout = job.get(f"{ACTOR}.use_dynamic_bsz"), job.get(f"{ROLLOUT}.log_prob_use_dynamic_bsz")
    if None not in (actor, rollout) and bool(actor) != bool(rollout):
        problem = f"is {rollout}, but {ACTOR}.use_dynamic_bsz is {actor}"
        yield about(f"{ROLLOUT}.log_prob_use_dynamic_bsz", problem, "remove it: it follows the actor's")
    if job.is_megatron:
        return
    # utils/seqlen_balancing.py:rearrange_micro_batches
    longest = job.max_sample_tokens
    kinds = [(f"{ACTOR}.{TOKENS_NAME}", actor, job.actor_sequence_gpus)]
    kinds += [(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", actor, job.actor_sequence_gpus)]
    if job.needs_critic and job.release < (0, 9):
        kinds.append((f"critic.{TOKENS_NAME}", job.get("critic.use_dynamic_bsz"), job.number(CRITIC_SEQUENCE_KEY, 1)))
    for key, dynamic, sequence in kinds:
        tokens = job.number(key) * sequence
        if dynamic and 0 < tokens < longest:
            problem = (
                f"allows {tokens} tokens, but prompt and response may have {longest}: one of that length ends the job"
            )
            yield about(key, problem, f"set it to {longest} or more", WARNING)


def critic_token_findings(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:_setup takes ppo_infer_max_token_len_per_gpu for updates as well; the default is
    # that of workers/config/critic.py:CriticConfig.
    tokens, key = job.number(f"critic.{TOKENS_NAME}"), "critic.ppo_infer_max_token_len_per_gpu"
    used = job.number(key, 32768)
    if job.release >= (0, 9) and job.get("trainer.use_v1") and job.needs_critic and tokens not in (0, used):
        problem = f"is {tokens}, but verl reads {key} instead, which is {used}"
        yield about(f"critic.{TOKENS_NAME}", problem, f"set ++{key}={tokens}", WARNING)


BATCH_RULES = (
    *(batch_size_findings, generated_batch_findings, mini_batch_findings, micro_batch_findings),
    *(dynamic_batch_findings, critic_token_findings),
)
