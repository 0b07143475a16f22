# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verl would refuse in a composed configuration only after minutes, or would take and not do.

All of it is pure, and needs no other file of the collection. Each rule was read in verl 0.9.1 and names the file and
the function, below verl/; `since` is the first release that has it too.
"""

from __future__ import annotations

from .settings import ACTOR, REF, ROLLOUT, Found, Job, Problem, by, not_whole, sequence_parallel


def needs_critic(job: Job) -> bool:
    # trainer/ppo/utils.py:need_critic
    enabled = job.get("critic.enable")
    return bool(enabled) if enabled is not None else job.get("algorithm.adv_estimator") == "gae"


def needs_reference(job: Job) -> bool:
    # trainer/ppo/utils.py:need_reference_policy
    return bool(job.get("algorithm.use_kl_in_reward") or job.get(f"{ACTOR}.use_kl_loss"))


def data_parallel(job: Job) -> int:
    """The ranks that share a batch of the actor; 0 where that is not known here."""
    if job.megatron:
        together = job.model_of_megatron
    elif job.get(f"{ACTOR}.strategy") in ("fsdp", "fsdp2"):
        together = job.sequence[1]
    else:
        return 0
    return job.gpus // together if together and job.gpus % together == 0 else 0


def estimator(job: Job) -> Found:
    get = job.get
    # trainer/ppo/core_algos.py:compute_grpo_outcome_advantage: a group of one has mean 0 and deviation 1
    if get("algorithm.adv_estimator") == "grpo" and get.number(f"{ROLLOUT}.n", 2) < 2:
        what = "is 1: an answer alone has nothing to be compared with, and its advantage is its plain reward"
        yield Problem(f"{ROLLOUT}.n", what, "give 2 or more", "warning")
    # trainer/ppo/ray_trainer.py:compute_advantage: values=data.batch["values"]
    if get("algorithm.adv_estimator") == "gae" and not needs_critic(job):
        what = "is false, and gae needs the values of a critic"
        yield Problem("critic.enable", what, "leave it out, or choose workload: grpo")


def batch(job: Job) -> Found:
    get = job.get
    size, answers = get.number("data.train_batch_size"), get.number(f"{ROLLOUT}.n", 1)
    dynamic = get(f"{ACTOR}.use_dynamic_bsz")
    if job.megatron:
        # utils/config.py:validate_config
        model = job.model_of_megatron
        if not_whole(job.gpus, model):
            what = f"makes models of {model} GPUs, which do not divide the job's {job.gpus}"
            yield Problem(f"{ACTOR}.megatron", what, "give tensor, pipeline and context parallel sizes that do")
    # utils/config.py:validate_config; before 0.6 trainer/ppo/ray_trainer.py:_validate_config, whatever the batch is
    elif (dynamic is False or job.release < (0, 6)) and not_whole(size * answers, job.gpus):
        what = f"is {size}: with {answers} answers to each, {size * answers} is not a multiple of {job.gpus} GPUs"
        yield Problem("data.train_batch_size", what, by(job.gpus))
    # trainer/ppo/v1/trainer_base.py:_next_train_batch
    generated = get.number("data.gen_batch_size")
    if (
        job.release >= (0, 9)
        and get("trainer.v1.trainer_mode") == "sync"
        and not get("algorithm.filter_groups.enable")
        and not_whole(size, generated)
    ):
        what = f"is {generated}, which does not divide data.train_batch_size {size}"
        yield Problem("data.gen_batch_size", what, "give a divisor, or leave it out")


def mini_batches(job: Job) -> Found:
    get = job.get
    size, answers = get.number("data.train_batch_size"), get.number(f"{ROLLOUT}.n", 1)
    for section in [ACTOR, "critic"] if needs_critic(job) else [ACTOR]:
        mini, dynamic = get.number(f"{section}.ppo_mini_batch_size"), get(f"{section}.use_dynamic_bsz")
        where = f"{section}.ppo_mini_batch_size"
        # workers/config/actor.py:ActorConfig.validate, workers/config/critic.py:CriticConfig.validate
        if dynamic is False and 0 < size < mini:
            yield Problem(where, f"is {mini}, more than data.train_batch_size {size}", f"give {size} or less")
        # trainer/ppo/v1/trainer_base.py:_get_required_batch_multiple, padding_utils.py:upsample_batch_to_divisible_size
        elif job.release >= (0, 9) and get("trainer.use_v1") and not_whole(size, mini):
            filled = -(-size // mini) * mini
            what = f"is {mini}: {size} prompts are filled up with empty ones to {filled}, which are computed as well"
            yield Problem(where, what, f"give a divisor of data.train_batch_size {size}", "warning")
        ranks = data_parallel(job) if section == ACTOR else 0
        # workers/engine_workers.py:train_mini_batch
        if job.release >= (0, 8) and not_whole(mini * answers, ranks):
            what = f"is {mini}: with {answers} answers to each, {mini * answers} is not a multiple of {ranks} ranks"
            yield Problem(where, what, by(ranks))


def micro_batches(job: Job) -> Found:
    get = job.get
    kinds = [(ACTOR, "ppo_micro_batch_size", ACTOR)]
    kinds += [("critic", "ppo_micro_batch_size", "critic")] if needs_critic(job) else []
    kinds += [(REF, "log_prob_micro_batch_size", ACTOR)] if needs_reference(job) else []
    kinds += [(ROLLOUT, "log_prob_micro_batch_size", ACTOR)]
    for section, name, owner in kinds:
        if get(f"{owner}.use_dynamic_bsz") is not False:
            continue
        # workers/config/actor.py:__post_init__, workers/config/critic.py:__post_init__, utils/config.py:validate_config
        old, new = get(f"{section}.{name}"), get(f"{section}.{name}_per_gpu")
        where = f"{section}.{name}_per_gpu"
        if old is None and new is None:
            yield Problem(where, f"has no value, and {owner}.use_dynamic_bsz is false", "give one of the two")
        elif old is not None and new is not None:
            yield Problem(f"{section}.{name}", f"is set, and {where} as well", f"leave {section}.{name} out")
        # workers/engine/utils.py:prepare_micro_batches; before 0.8 workers/fsdp_workers.py:ActorRolloutRefWorker
        mini, ranks = get.number(f"{ACTOR}.ppo_mini_batch_size") * get.number(f"{ROLLOUT}.n", 1), data_parallel(job)
        if section == ACTOR and ranks and mini % ranks == 0 and not_whole(mini // ranks, get.number(where)):
            what = f"is {new}, which does not divide the {mini // ranks} samples of a rank's mini-batch"
            yield Problem(where, what, "give a divisor, or use_dynamic_bsz=True")


def dynamic_batches(job: Job) -> Found:
    get = job.get
    # workers/engine_workers.py:init_model: actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    actor, rollout = get(f"{ACTOR}.use_dynamic_bsz"), get(f"{ROLLOUT}.log_prob_use_dynamic_bsz")
    if job.release >= (0, 8) and None not in (actor, rollout) and bool(actor) != bool(rollout):
        what = f"is {rollout}, and {ACTOR}.use_dynamic_bsz is {actor}"
        yield Problem(f"{ROLLOUT}.log_prob_use_dynamic_bsz", what, "leave it out: it follows the actor's")
    # utils/seqlen_balancing.py:rearrange_micro_batches
    longest = get.number("data.max_prompt_length") + get.number("data.max_response_length")
    _dummy, sequence = job.sequence
    kinds = [(f"{ACTOR}.ppo_max_token_len_per_gpu", actor, sequence)]
    kinds += [(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", actor, sequence)]
    if needs_critic(job) and job.release < (0, 9):
        own = get.number(job.sequence_of_critic, 1)
        kinds.append(("critic.ppo_max_token_len_per_gpu", get("critic.use_dynamic_bsz"), own))
    for where, dynamic, parallel in [] if job.megatron else kinds:
        room = get.number(where) * parallel
        if dynamic and 0 < room < longest:
            what = f"gives room for {room} tokens, and prompt and response may have {longest}: one so long ends the job"
            yield Problem(where, what, f"give {longest} or more", "warning")


def critic_tokens(job: Job) -> Found:
    # trainer/ppo/v1/trainer_base.py:_setup takes ppo_infer_max_token_len_per_gpu for both; the default is
    # that of workers/config/critic.py:CriticConfig.
    get = job.get
    asked, read = get.number("critic.ppo_max_token_len_per_gpu"), "critic.ppo_infer_max_token_len_per_gpu"
    used = get.number(read, 32768)
    if job.release >= (0, 9) and get("trainer.use_v1") and needs_critic(job) and asked not in (0, used):
        what = f"is {asked}, which verl does not read: it reads {read}, {used}"
        yield Problem("critic.ppo_max_token_len_per_gpu", what, f"say ++{read}={asked}", "warning")


def parallelism(job: Job) -> Found:
    get = job.get
    if get(f"{ACTOR}.strategy") in ("fsdp", "fsdp2"):
        yield from sequence_parallel(job, job.sequence[0], "actor_rollout_ref.model.use_remove_padding")
    if needs_critic(job) and get("critic.strategy") in ("fsdp", "fsdp2"):
        yield from sequence_parallel(job, job.sequence_of_critic, "critic.model.use_remove_padding")
    # workers/engine_workers.py:init_model; before 0.8 workers/fsdp_workers.py:_build_rollout
    sizes = {
        name: get.number(f"{ROLLOUT}.{name}_parallel_size", 1) for name in ("tensor_model", "data", "pipeline_model")
    }
    tensor, data, pipeline = sizes.values()
    replica = tensor * data * pipeline
    where = f"{ROLLOUT}.tensor_model_parallel_size"
    if replica > job.gpus:
        yield Problem(where, f"makes engines of {replica} GPUs, and the job has {job.gpus}", f"give {job.gpus} or less")
    elif not_whole(job.gpus, replica):
        what = f"makes engines of {replica} GPUs, which do not divide the job's {job.gpus}"
        yield Problem(where, what, "give a divisor")
    # workers/rollout/replica.py:RolloutReplica.__init__
    elif job.release >= (0, 8) and not_whole(replica, min(job.gpus_per_node, replica)):
        what = f"makes engines of {replica} GPUs, which do not fill whole nodes of {job.gpus_per_node}"
        yield Problem(where, what, f"give a multiple of {job.gpus_per_node}, or one that fits into a node")
    engine = get(f"{ROLLOUT}.name")
    # workers/config/rollout.py:RolloutConfig.__post_init__
    if pipeline > 1 and engine in ("vllm", "sglang", "trtllm") and job.release >= (0, 6):
        what = f"is {pipeline}, which verl has not made for {engine} yet"
        yield Problem(f"{ROLLOUT}.pipeline_model_parallel_size", what, "give 1")
    expert = get.number(f"{ROLLOUT}.expert_parallel_size", 1)
    if expert > 1 and engine != "trtllm" and expert != tensor * data and job.release >= (0, 6):
        what = f"is {expert}, and has to be tensor_model_parallel_size times data_parallel_size, {tensor * data}"
        yield Problem(f"{ROLLOUT}.expert_parallel_size", what, f"give {tensor * data}, or 1")


def generation(job: Job) -> Found:
    get = job.get
    # workers/config/rollout.py:RolloutConfig.__post_init__
    if job.release >= (0, 7) and get(f"{ROLLOUT}.mode") == "sync":
        yield Problem(f"{ROLLOUT}.mode", "is sync, which verl has given up", "leave it out")
    # utils/config.py:validate_config
    temperature = get(f"{ROLLOUT}.temperature")
    if get(f"{ROLLOUT}.val_kwargs.do_sample") and isinstance(temperature, (int, float)) and temperature <= 0:
        what = f"is {temperature}, and val_kwargs.do_sample is true"
        yield Problem(f"{ROLLOUT}.temperature", what, "give more than 0")
    # workers/rollout/vllm_rollout/vllm_async_server.py:generate
    most = get.number("data.max_prompt_length") + get.number("data.max_response_length")
    room = get.number(f"{ROLLOUT}.max_model_len")
    if 0 < room < most:
        what = f"is {room}: of prompt and response, which may have {most} tokens, the end is cut off"
        yield Problem(f"{ROLLOUT}.max_model_len", what, f"give {most}, or leave it out", "warning")


RL_RULES = [estimator, batch, mini_batches, micro_batches, dynamic_batches, critic_tokens, parallelism, generation]
