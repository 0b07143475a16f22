# SPDX-License-Identifier: Apache-2.0
"""The rules of PPO and GRPO. Each was read in verl 0.9.1 and names its source, a file and a function below verl/."""

from __future__ import annotations

import math

from ..archive.archive import ENGINE_ADDRESSES
from ..archive.plan import VAL_ONLY
from ..common.findings import WARNING, about
from ..jobspec.owned import ESTIMATOR
from .config import ACTOR, FSDP, REF, ROLLOUT, Findings, JobConfig, indivisible, multiple_of, sequence_parallel

# Estimators that compare the answers to one prompt.
BASELINES = ("optimal_token_baseline", "tir_optimal_token_baseline")
GROUPED = (
    "grpo",
    "grpo_vectorized",
    "gdpo",
    "rloo",
    "rloo_vectorized",
    "opo",
    "reinforce_plus_plus_baseline",
    *BASELINES,
)
TOKENS = "ppo_max_token_len_per_gpu"
CRITIC_SEQUENCE = "critic.fsdp.ulysses_sequence_parallel_size"
PROMETHEUS = f"{ROLLOUT}.prometheus"


def needs_critic(job: JobConfig) -> bool:
    # trainer/ppo/utils.py:need_critic
    enabled = job.get("critic.enable")
    return bool(enabled) if enabled is not None else job.get(ESTIMATOR) == "gae"


def needs_reference(job: JobConfig) -> bool:
    # trainer/ppo/utils.py:need_reference_policy
    return bool(job.get("algorithm.use_kl_in_reward") or job.get(f"{ACTOR}.use_kl_loss"))


def absent_parts(job: JobConfig) -> dict[str, str]:
    """The sections of parts that a job does not have, with the reason."""
    if job.workload == "sft":
        return {}
    reasons = {}
    if not needs_critic(job):
        reasons["critic."] = "the job has no critic"
    if not needs_reference(job):
        reasons[f"{REF}."] = f"the job has no reference model without {ACTOR}.use_kl_loss or algorithm.use_kl_in_reward"
    for section, switch in (("reward.reward_model", "enable"), ("distillation", "enabled")):
        if not job.get(f"{section}.{switch}"):
            reasons[f"{section}."] = f"{section}.{switch} is false"
    return reasons


def longest_sample(job: JobConfig) -> int:
    return job.number("data.max_prompt_length") + job.number("data.max_response_length")


def data_parallel(job: JobConfig) -> int:
    """The number of ranks that share a batch of the actor; 0 if that is unknown."""
    if job.is_megatron:
        together = job.megatron_gpus
    elif job.get(f"{ACTOR}.strategy") in FSDP:
        together = job.actor_sequence
    else:
        return 0
    return job.gpus // together if together and job.gpus % together == 0 else 0


def estimator(job: JobConfig) -> Findings:
    name, n = job.get(ESTIMATOR), f"{ROLLOUT}.n"
    answers = job.number(n, 2)
    # trainer/ppo/core_algos.py: compute_grpo_passk_outcome_advantage raises; in the others, a group of one has mean 0
    # and deviation 1, or is its own baseline
    if name == "grpo_passk" and answers == 1:
        yield about(n, "is 1, but grpo_passk compares the best two answers of a prompt", "set it to 2 or more")
    elif name in GROUPED and answers == 1:
        problem = "is 1: a single answer has nothing to be compared with, so its advantage is its reward"
        yield about(n, problem, "set it to 2 or more", WARNING)
    # trainer/ppo/ray_trainer.py:compute_advantage: values=data.batch["values"]
    if name == "gae" and not needs_critic(job):
        remedy = f"remove it, or choose workload: grpo without {ESTIMATOR}=gae"
        yield about("critic.enable", "is false, but gae needs the values of a critic", remedy)
    elif job.workload == "grpo" and needs_critic(job):
        # Its model is verl's own example otherwise.
        yield about(ESTIMATOR, f"is {name} with a critic, but workload: grpo has none", "choose workload: ppo")
    elif job.workload == "ppo" and name and not needs_critic(job):
        problem = f"is {name}, so the job has no critic: verl makes one for gae, or with critic.enable=True"
        yield about(ESTIMATOR, problem, "choose workload: grpo", WARNING)
    # trainer/ppo/v1/trainer_base.py:_compute_advantage
    if job.get("trainer.use_v1") and name in ("remax", "gdpo", *BASELINES):
        problem = f"is {name}, which needs more of a step than verl {'.'.join(map(str, job.release))} gives it"
        yield about(ESTIMATOR, problem, "set trainer.use_v1=False, for verl's older trainer")
    if name in BASELINES and not job.get(f"{ACTOR}.calculate_sum_pi_squared"):
        key = f"{ACTOR}.calculate_sum_pi_squared"
        yield about(key, f"is false, but {name} needs the sums", f"set {key}=True")
    if name == "gdpo" and not job.get("algorithm.gdpo_reward_keys"):
        remedy = "set it to names of the values that the reward function returns: ++algorithm.gdpo_reward_keys=[a,b]"
        yield about("algorithm.gdpo_reward_keys", "has no value, but gdpo needs it", remedy)


def batch(job: JobConfig) -> Findings:
    size, answers = job.number("data.train_batch_size"), job.number(f"{ROLLOUT}.n", 1)
    if job.is_megatron:
        # utils/config.py:validate_config
        if indivisible(job.gpus, job.megatron_gpus):
            problem = f"puts a model on {job.megatron_gpus} GPUs, which do not divide the job's {job.gpus} GPUs"
            remedy = "choose tensor, pipeline and context parallel sizes whose product does"
            yield about(f"{ACTOR}.megatron", problem, remedy)
    # utils/config.py:validate_config
    elif job.get(f"{ACTOR}.use_dynamic_bsz") is False and indivisible(size * answers, job.gpus):
        problem = f"is {size}: with {answers} answers each, {size * answers} is not a multiple of {job.gpus} GPUs"
        yield about("data.train_batch_size", problem, multiple_of(job.gpus))


def generated_batch(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:_next_train_batch
    size, generated = job.number("data.train_batch_size"), job.number("data.gen_batch_size")
    is_used = job.get("trainer.v1.trainer_mode") == "sync" and not job.get("algorithm.filter_groups.enable")
    if job.release >= (0, 9) and is_used and indivisible(size, generated):
        problem = f"is {generated}, which does not divide data.train_batch_size, {size}"
        yield about("data.gen_batch_size", problem, "set it to a divisor, or remove it")


def mini_batches(job: JobConfig) -> Findings:
    size, answers = job.number("data.train_batch_size"), job.number(f"{ROLLOUT}.n", 1)
    for section in trained_sections(job):
        key = f"{section}.ppo_mini_batch_size"
        mini = job.number(key)
        ranks = data_parallel(job) if section == ACTOR else 0
        # workers/config/actor.py:ActorConfig.validate, workers/config/critic.py:CriticConfig.validate
        if job.get(f"{section}.use_dynamic_bsz") is False and 0 < size < mini:
            yield about(key, f"is {mini}, more than data.train_batch_size, {size}", f"set it to {size} or less")
        elif is_padded(job) and indivisible(size, mini):
            added = added_samples(job)
            text = f"is {mini}: verl adds {added} empty samples of 128 tokens to the {size * answers} of a step"
            yield about(key, f"{text}, and computes those as well", f"set {batches(size, answers, ranks)}", WARNING)
        # utils/tensordict_utils.py:make_iterator
        elif not is_padded(job) and indivisible(size, mini):
            text = f"is {mini}, which does not divide data.train_batch_size, {size}: the job ends at its first update"
            yield about(key, text, f"set {batches(size, answers, ranks)}")
        # workers/engine_workers.py:train_mini_batch
        if indivisible(mini * answers, ranks):
            text = f"is {mini}: with {answers} answers each, {mini * answers} is not a multiple of {ranks} ranks"
            hint = f"set {batches(size, answers, ranks)}" if indivisible(size * answers, ranks) else multiple_of(ranks)
            yield about(key, text, hint)


def is_padded(job: JobConfig) -> bool:
    """Whether verl completes a batch that its mini-batches do not divide."""
    return job.release >= (0, 9) and bool(job.get("trainer.use_v1"))


def trained_sections(job: JobConfig) -> list[str]:
    return [ACTOR, "critic"] if needs_critic(job) else [ACTOR]


def added_samples(job: JobConfig) -> int:
    """How many samples verl adds to those of a step, so that all mini-batches and all ranks are full."""
    # trainer/ppo/v1/trainer_base.py:_get_required_batch_multiple, padding_utils.py:upsample_batch_to_divisible_size
    answers = job.number(f"{ROLLOUT}.n", 1)
    minis = [job.number(f"{section}.ppo_mini_batch_size") * answers for section in trained_sections(job)]
    multiple = math.lcm(data_parallel(job) or 1, *minis) if is_padded(job) else 0
    return -job.number("data.train_batch_size") * answers % multiple if multiple else 0


def batches(size: int, answers: int, ranks: int) -> str:
    """A mini-batch that divides the batch and fills all ranks; both change if there is none for this batch."""
    if not indivisible(size * answers, ranks):
        return f"it to a divisor of data.train_batch_size, {size}"
    least = ranks // math.gcd(ranks, answers)
    return f"it and data.train_batch_size to the same multiple of {least}, such as {-(-size // least) * least}"


def micro_batches(job: JobConfig) -> Findings:
    kinds = [(ACTOR, "ppo_micro_batch_size", ACTOR)]
    kinds += [("critic", "ppo_micro_batch_size", "critic")] if needs_critic(job) else []
    kinds += [(REF, "log_prob_micro_batch_size", ACTOR)] if needs_reference(job) else []
    kinds += [(ROLLOUT, "log_prob_micro_batch_size", ACTOR)]
    for section, name, owner in kinds:
        if job.get(f"{owner}.use_dynamic_bsz") is False:
            yield from micro_batch(job, section, f"{section}.{name}", f"{owner}.use_dynamic_bsz")
        elif section == REF and job.get(f"{REF}.log_prob_use_dynamic_bsz") is False:
            yield from micro_batch(job, section, f"{section}.{name}", f"{REF}.log_prob_use_dynamic_bsz")


def micro_batch(job: JobConfig, section: str, deprecated_key: str, dynamic: str) -> Findings:
    """The micro-batch of a section. `old` is the deprecated key, the size over all GPUs."""
    # workers/config/actor.py:__post_init__, workers/config/critic.py:__post_init__, utils/config.py:validate_config
    key = f"{deprecated_key}_per_gpu"
    size = job.get(key)
    if job.get(deprecated_key) is None and size is None:
        yield about(key, f"has no value, but {dynamic} is false", f"set {key}")
    elif job.get(deprecated_key) is not None and size is not None:
        yield about(deprecated_key, f"is set, and so is {key}", f"remove {deprecated_key}")
    # workers/engine/utils.py:prepare_micro_batches
    answers, ranks = job.number(f"{ROLLOUT}.n", 1), data_parallel(job)
    samples, owner = job.number(f"{ACTOR}.ppo_mini_batch_size") * answers, "a rank's mini-batch"
    if section in (ROLLOUT, REF):
        samples, owner = job.number("data.train_batch_size") * answers + added_samples(job), "a rank"
    elif section != ACTOR:
        return
    if ranks and samples % ranks == 0 and indivisible(samples // ranks, job.number(key)):
        problem = f"is {size}, which does not divide the {samples // ranks} samples of {owner}"
        yield about(key, problem, f"set it to a divisor, or set {dynamic}=True")


def dynamic_batches(job: JobConfig) -> Findings:
    # workers/engine_workers.py:init_model: actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    actor, rollout = job.get(f"{ACTOR}.use_dynamic_bsz"), job.get(f"{ROLLOUT}.log_prob_use_dynamic_bsz")
    if None not in (actor, rollout) and bool(actor) != bool(rollout):
        problem = f"is {rollout}, but {ACTOR}.use_dynamic_bsz is {actor}"
        yield about(f"{ROLLOUT}.log_prob_use_dynamic_bsz", problem, "remove it: it follows the actor's")
    if job.is_megatron:
        return
    # utils/seqlen_balancing.py:rearrange_micro_batches
    longest = longest_sample(job)
    kinds = [(f"{ACTOR}.{TOKENS}", actor, job.actor_sequence)]
    kinds += [(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", actor, job.actor_sequence)]
    if needs_critic(job) and job.release < (0, 9):
        kinds.append((f"critic.{TOKENS}", job.get("critic.use_dynamic_bsz"), job.number(CRITIC_SEQUENCE, 1)))
    for key, dynamic, sequence in kinds:
        tokens = job.number(key) * sequence
        if dynamic and 0 < tokens < longest:
            problem = (
                f"allows {tokens} tokens, but prompt and response may have {longest}: one of that length ends the job"
            )
            yield about(key, problem, f"set it to {longest} or more", WARNING)


def critic_tokens(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:_setup takes ppo_infer_max_token_len_per_gpu for both; the default is
    # that of workers/config/critic.py:CriticConfig.
    tokens, key = job.number(f"critic.{TOKENS}"), "critic.ppo_infer_max_token_len_per_gpu"
    used = job.number(key, 32768)
    if job.release >= (0, 9) and job.get("trainer.use_v1") and needs_critic(job) and tokens not in (0, used):
        problem = f"is {tokens}, but verl reads {key} instead, which is {used}"
        yield about(f"critic.{TOKENS}", problem, f"set ++{key}={tokens}", WARNING)


def parallelism(job: JobConfig) -> Findings:
    if job.get(f"{ACTOR}.strategy") in FSDP:
        yield from sequence_parallel(job, job.actor_sequence_key, "actor_rollout_ref.model.use_remove_padding")
    if needs_critic(job) and job.get("critic.strategy") in FSDP:
        yield from sequence_parallel(job, CRITIC_SEQUENCE, "critic.model.use_remove_padding")


def engines(job: JobConfig) -> Findings:
    """The GPUs of an inference engine, by the product of its parallel sizes."""
    # workers/engine_workers.py:init_model
    key, pipeline_key = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.pipeline_model_parallel_size"
    tensor, pipeline = job.number(key, 1), job.number(pipeline_key, 1)
    tensor_data = tensor * job.number(f"{ROLLOUT}.data_parallel_size", 1)
    replica = tensor_data * pipeline
    engine = f"puts an engine on {replica} GPUs"
    if replica > job.gpus:
        yield about(key, f"{engine}, but the job has {job.gpus}", f"set it to {job.gpus} or less")
    elif indivisible(job.gpus, replica):
        yield about(key, f"{engine}, which do not divide the job's {job.gpus} GPUs", "set it to a divisor")
    # workers/rollout/replica.py:RolloutReplica.__init__
    elif indivisible(replica, min(job.gpus_per_node, replica)):
        problem = f"{engine}, which do not fill nodes of {job.gpus_per_node} GPUs"
        yield about(key, problem, f"set it to a multiple of {job.gpus_per_node}, or to a size that fits in a node")
    # workers/config/rollout.py:RolloutConfig.__post_init__
    name = job.get(f"{ROLLOUT}.name")
    if pipeline > 1 and name in ("vllm", "sglang", "trtllm"):
        yield about(pipeline_key, f"is {pipeline}, which verl does not support with {name} yet", "set it to 1")
    expert_key = f"{ROLLOUT}.expert_parallel_size"
    expert = job.number(expert_key, 1)
    if expert > 1 and name != "trtllm" and expert != tensor_data:
        problem = f"is {expert}, but must be tensor_model_parallel_size times data_parallel_size, {tensor_data}"
        yield about(expert_key, problem, f"set it to {tensor_data}, or to 1")


def separate(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_separate_async.py:PPOTrainerSeparateAsync.__init__
    if job.get("trainer.v1.trainer_mode") != "separate_async":
        return
    size, mini = job.number("data.train_batch_size"), job.number(f"{ACTOR}.ppo_mini_batch_size")
    key = "trainer.v1.separate_async.parameter_sync_step"
    steps = job.number(key, 1)
    if size != steps * mini:
        problem = f"is {size}, but {key} is {steps} and {ACTOR}.ppo_mini_batch_size {mini}: it has to be their product"
        yield about("data.train_batch_size", problem, f"set it to {steps * mini}, or the other two")
    if min(job.number(f"{ROLLOUT}.nnodes"), job.number(f"{ROLLOUT}.n_gpus_per_node")) < 1:
        problem = "is 0, but separate_async has rollouts on workers of their own"
        yield about(f"{ROLLOUT}.nnodes", problem, "set resources.pools.rollout: {nnodes: N}")
    key = f"{ROLLOUT}.checkpoint_engine.backend"
    if job.get(key) == "naive":
        yield about(key, "is naive, which sends no weights to other workers", "set it to nccl, or another backend")
    key = "reward.reward_model.enable_resource_pool"
    if job.get("reward.reward_model.enable") and not job.get(key):
        problem = "is false, but the rollouts of separate_async never leave their GPUs to a reward model"
        yield about(key, problem, "set resources.pools.reward: {nnodes: N}")
    # In the same function: logger.info(…, flush=True)
    key = "actor_rollout_ref.hybrid_engine"
    if job.get(key) is False and job.release == (0, 9, 1):
        yield about(key, "is false: verl 0.9.1 then fails when it prints so", "remove it, or use a corrected snapshot")


def replicas(job: JobConfig) -> Findings:
    # workers/rollout/replica.py:RolloutReplica.__init__, llm_server.py:_initialize_llm_servers
    sizes = ("tensor_model", "data", "pipeline_model")
    for section, is_used in (
        (ROLLOUT, job.get("trainer.v1.trainer_mode") == "separate_async"),
        ("reward.reward_model", job.get("reward.reward_model.enable_resource_pool")),
    ):
        engine = ROLLOUT if section == ROLLOUT else f"{section}.rollout"
        size = math.prod(job.number(f"{engine}.{name}_parallel_size", 1) for name in sizes)
        nodes, gpus = job.number(f"{section}.nnodes"), job.number(f"{section}.n_gpus_per_node")
        if is_used and (indivisible(nodes * gpus, size) or indivisible(size, min(gpus, size))):
            problem = f"is {gpus}, on {nodes} workers, which engines of {size} GPUs do not fill"
            yield about(f"{section}.n_gpus_per_node", problem, f"choose sizes in resources.pools that {size} divides")


def validation(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:fit
    if job.get(VAL_ONLY) and not job.get("trainer.val_before_train"):
        problem = "is true, but verl reads it only with trainer.val_before_train=True: the job would train"
        yield about(VAL_ONLY, problem, "remove trainer.val_before_train")


def generation(job: JobConfig) -> Findings:
    # workers/config/rollout.py:RolloutConfig.__post_init__
    if job.get(f"{ROLLOUT}.mode") == "sync":
        yield about(f"{ROLLOUT}.mode", "is sync, which verl no longer supports", "remove it")
    # utils/config.py:validate_config
    temperature = job.get(f"{ROLLOUT}.temperature")
    if job.get(f"{ROLLOUT}.val_kwargs.do_sample") and isinstance(temperature, (int, float)) and temperature <= 0:
        problem = f"is {temperature}, but {ROLLOUT}.val_kwargs.do_sample is true"
        yield about(f"{ROLLOUT}.temperature", problem, "set it to more than 0")
    # workers/rollout/vllm_rollout/vllm_async_server.py:generate
    longest, limit = longest_sample(job), job.number(f"{ROLLOUT}.max_model_len")
    if 0 < limit < longest:
        problem = f"is {limit}, but prompt and response may have {longest} tokens: the end is cut off"
        yield about(f"{ROLLOUT}.max_model_len", problem, f"set it to {longest}, or remove it", WARNING)
    # vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len. Without chunks, verl may raise the tokens itself.
    key, sequences = f"{ROLLOUT}.max_num_batched_tokens", job.number(f"{ROLLOUT}.max_num_seqs")
    is_chunked = job.get(f"{ROLLOUT}.name") == "vllm" and job.get(f"{ROLLOUT}.enable_chunked_prefill")
    if is_chunked and 0 < job.number(key) < sequences:
        problem = f"is {job.number(key)}, less than {ROLLOUT}.max_num_seqs, {sequences}: vLLM refuses it"
        yield about(key, problem, f"set it to {sequences} or more, or lower {ROLLOUT}.max_num_seqs")


def lora(job: JobConfig) -> Findings:
    # images/cpu/verl_cpu/rollout.py: HFServer.update_weights loads whole weights. An engine of verl loads the adapter:
    # workers/engine_workers.py:update_weights
    key = "actor_rollout_ref.model.lora.merge"
    is_lora = job.number("actor_rollout_ref.model.lora_rank") > 0
    if job.get(f"{ROLLOUT}.name") == "hf_cpu" and is_lora and not job.get(key):
        yield about(key, "is false, but the rollout hf_cpu loads whole weights, no adapter of LoRA", f"set {key}=True")


def allocator(job: JobConfig) -> Findings:
    # vllm/device_allocator/cumem.py: CuMemAllocator.__init__, of an engine that sleeps while the trainer works
    sleeps = job.get(f"{ROLLOUT}.enable_sleep_mode", job.get(f"{ROLLOUT}.free_cache_engine", True))
    name = "PYTORCH_CUDA_ALLOC_CONF"
    if "expandable_segments:True" in job.environment.get(name, "") and sleeps and job.get(f"{ROLLOUT}.name") == "vllm":
        text = "has expandable_segments:True, which vLLM refuses in its sleep mode (pytorch#147851)"
        yield about(f"env_vars.{name}", text, "remove it: the trainer switches it on itself, while the engine sleeps")


def prometheus(job: JobConfig) -> Findings:
    if not job.get(f"{PROMETHEUS}.enable"):
        return
    # workers/rollout/llm_server.py:_initialize_llm_servers
    if job.get(key := f"{ROLLOUT}.disable_log_stats"):
        yield about(key, f"is true, but {PROMETHEUS}.enable needs what the engines count", f"remove {key}")
    # workers/rollout/utils.py:update_prometheus_config
    file = str(job.get(f"{PROMETHEUS}.file"))
    if not file.endswith(f"/{ENGINE_ADDRESSES}"):
        problem = f"is {file}, which verl then replaces on every node of the cluster"
        yield about(f"{PROMETHEUS}.file", problem, "remove it: the file is then one of the job's archive", WARNING)


# The rules that also apply to a job that only validates.
EVAL_RULES = (parallelism, engines, replicas, validation, generation, lora, allocator, prometheus)
RL_RULES = (
    *(estimator, separate, batch, generated_batch, mini_batches, micro_batches, dynamic_batches, critic_tokens),
    *EVAL_RULES,
)
