# SPDX-License-Identifier: Apache-2.0
"""The rules of PPO and GRPO, but for those about batches.

Each rule was read in verl 0.9.1 and names its source, a file and a function below verl/.
"""

from __future__ import annotations

import math

from ..archive.archive import ENGINE_ADDRESSES
from ..archive.plan import VAL_ONLY
from ..common.findings import WARNING, about
from ..jobspec.owned import ESTIMATOR
from .config import (
    ACTOR,
    CRITIC_SEQUENCE_KEY,
    FSDP,
    REF,
    ROLLOUT,
    Findings,
    JobConfig,
    is_indivisible,
    sequence_parallel_findings,
)
from .config_batches import BATCH_RULES

# Estimators of advantages: those with baselines for tokens, and all that compare the answers to one prompt.
TOKEN_BASELINES = ("optimal_token_baseline", "tir_optimal_token_baseline")
GROUP_ESTIMATORS = (
    "grpo",
    "grpo_vectorized",
    "gdpo",
    "rloo",
    "rloo_vectorized",
    "opo",
    "reinforce_plus_plus_baseline",
    *TOKEN_BASELINES,
)
PROMETHEUS_SECTION = f"{ROLLOUT}.prometheus"


def absent_parts(job: JobConfig) -> dict[str, str]:
    """The prefixes of the keys of parts that the job does not have, each with the reason."""
    if job.workload == "sft":
        return {}
    reasons = {}
    if not job.needs_critic:
        reasons["critic."] = "the job has no critic"
    if not job.needs_reference:
        reasons[f"{REF}."] = f"the job has no reference model without {ACTOR}.use_kl_loss or algorithm.use_kl_in_reward"
    for section, switch in (("reward.reward_model", "enable"), ("distillation", "enabled")):
        if not job.get(f"{section}.{switch}"):
            reasons[f"{section}."] = f"{section}.{switch} is false"
    return reasons


def estimator_findings(job: JobConfig) -> Findings:
    name, n = job.get(ESTIMATOR), f"{ROLLOUT}.n"
    answers = job.number(n, 2)
    # trainer/ppo/core_algos.py: compute_grpo_passk_outcome_advantage raises; in the others, a group of one has mean 0
    # and deviation 1, or is its own baseline
    if name == "grpo_passk" and answers == 1:
        yield about(n, "is 1, but grpo_passk compares the best two answers of a prompt", "set it to 2 or more")
    elif name in GROUP_ESTIMATORS and answers == 1:
        problem = "is 1: a single answer has nothing to be compared with, so its advantage is its reward"
        yield about(n, problem, "set it to 2 or more", WARNING)
    # trainer/ppo/ray_trainer.py:compute_advantage: values=data.batch["values"]
    if name == "gae" and not job.needs_critic:
        remedy = f"remove it, or choose workload: grpo without {ESTIMATOR}=gae"
        yield about("critic.enable", "is false, but gae needs the values of a critic", remedy)
    elif job.workload == "grpo" and job.needs_critic:
        # Its model is verl's own example otherwise.
        yield about(ESTIMATOR, f"is {name} with a critic, but workload: grpo has none", "choose workload: ppo")
    elif job.workload == "ppo" and name and not job.needs_critic:
        problem = f"is {name}, so the job has no critic: verl makes one for gae, or with critic.enable=True"
        yield about(ESTIMATOR, problem, "choose workload: grpo", WARNING)
    # trainer/ppo/v1/trainer_base.py:_compute_advantage
    if job.get("trainer.use_v1") and name in ("remax", "gdpo", *TOKEN_BASELINES):
        problem = f"is {name}, which needs more of a step than verl {'.'.join(map(str, job.release))} gives it"
        yield about(ESTIMATOR, problem, "set trainer.use_v1=False, for verl's older trainer")
    if name in TOKEN_BASELINES and not job.get(f"{ACTOR}.calculate_sum_pi_squared"):
        key = f"{ACTOR}.calculate_sum_pi_squared"
        yield about(key, f"is false, but {name} needs the sums", f"set {key}=True")
    if name == "gdpo" and not job.get("algorithm.gdpo_reward_keys"):
        remedy = "set it to names of the values that the reward function returns: ++algorithm.gdpo_reward_keys=[a,b]"
        yield about("algorithm.gdpo_reward_keys", "has no value, but gdpo needs it", remedy)


def parallelism_findings(job: JobConfig) -> Findings:
    if job.get(f"{ACTOR}.strategy") in FSDP:
        yield from sequence_parallel_findings(job, job.actor_sequence_key, "actor_rollout_ref.model.use_remove_padding")
    if job.needs_critic and job.get("critic.strategy") in FSDP:
        yield from sequence_parallel_findings(job, CRITIC_SEQUENCE_KEY, "critic.model.use_remove_padding")


def engine_findings(job: JobConfig) -> Findings:
    """The GPUs of an inference engine, by the product of its parallel sizes."""
    # workers/engine_workers.py:init_model
    key, pipeline_key = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.pipeline_model_parallel_size"
    tensor, pipeline = job.number(key, 1), job.number(pipeline_key, 1)
    tensor_data = tensor * job.number(f"{ROLLOUT}.data_parallel_size", 1)
    replica = tensor_data * pipeline
    engine = f"puts an engine on {replica} GPUs"
    if replica > job.gpus:
        yield about(key, f"{engine}, but the job has {job.gpus}", f"set it to {job.gpus} or less")
    elif is_indivisible(job.gpus, replica):
        yield about(key, f"{engine}, which do not divide the job's {job.gpus} GPUs", "set it to a divisor")
    # workers/rollout/replica.py:RolloutReplica.__init__
    elif is_indivisible(replica, min(job.gpus_per_node, replica)):
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


def separate_async_findings(job: JobConfig) -> Findings:
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


def replica_findings(job: JobConfig) -> Findings:
    # workers/rollout/replica.py:RolloutReplica.__init__, llm_server.py:_initialize_llm_servers
    sizes = ("tensor_model", "data", "pipeline_model")
    for section, is_used in (
        (ROLLOUT, job.get("trainer.v1.trainer_mode") == "separate_async"),
        ("reward.reward_model", job.get("reward.reward_model.enable_resource_pool")),
    ):
        engine = ROLLOUT if section == ROLLOUT else f"{section}.rollout"
        size = math.prod(job.number(f"{engine}.{name}_parallel_size", 1) for name in sizes)
        nodes, gpus = job.number(f"{section}.nnodes"), job.number(f"{section}.n_gpus_per_node")
        if is_used and (is_indivisible(nodes * gpus, size) or is_indivisible(size, min(gpus, size))):
            problem = f"is {gpus}, on {nodes} workers, which engines of {size} GPUs do not fill"
            yield about(f"{section}.n_gpus_per_node", problem, f"choose sizes in resources.pools that {size} divides")


def validation_findings(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:fit
    if job.get(VAL_ONLY) and not job.get("trainer.val_before_train"):
        problem = "is true, but verl reads it only with trainer.val_before_train=True: the job would train"
        yield about(VAL_ONLY, problem, "remove trainer.val_before_train")


def generation_findings(job: JobConfig) -> Findings:
    # workers/config/rollout.py:RolloutConfig.__post_init__
    if job.get(f"{ROLLOUT}.mode") == "sync":
        yield about(f"{ROLLOUT}.mode", "is sync, which verl no longer supports", "remove it")
    # utils/config.py:validate_config
    temperature = job.get(f"{ROLLOUT}.temperature")
    if job.get(f"{ROLLOUT}.val_kwargs.do_sample") and isinstance(temperature, (int, float)) and temperature <= 0:
        problem = f"is {temperature}, but {ROLLOUT}.val_kwargs.do_sample is true"
        yield about(f"{ROLLOUT}.temperature", problem, "set it to more than 0")
    # workers/rollout/vllm_rollout/vllm_async_server.py:generate
    longest, limit = job.max_sample_tokens, job.number(f"{ROLLOUT}.max_model_len")
    if 0 < limit < longest:
        problem = f"is {limit}, but prompt and response may have {longest} tokens: the end is cut off"
        yield about(f"{ROLLOUT}.max_model_len", problem, f"set it to {longest}, or remove it", WARNING)
    # vllm/config/scheduler.py: SchedulerConfig.verify_max_model_len
    key, sequences = f"{ROLLOUT}.max_num_batched_tokens", job.number(f"{ROLLOUT}.max_num_seqs")
    if job.get(f"{ROLLOUT}.name") == "vllm" and 0 < job.number(key) < sequences:
        problem = f"is {job.number(key)}, less than {ROLLOUT}.max_num_seqs, {sequences}: vLLM refuses it"
        yield about(key, problem, f"set it to {sequences} or more, or lower {ROLLOUT}.max_num_seqs")


def allocator_findings(job: JobConfig) -> Findings:
    # vllm/device_allocator/cumem.py: CuMemAllocator.__init__, of an engine that sleeps while the trainer works
    sleeps = job.get(f"{ROLLOUT}.enable_sleep_mode", job.get(f"{ROLLOUT}.free_cache_engine", True))
    name = "PYTORCH_CUDA_ALLOC_CONF"
    if "expandable_segments:True" in job.environment.get(name, "") and sleeps and job.get(f"{ROLLOUT}.name") == "vllm":
        text = "has expandable_segments:True, which vLLM refuses in its sleep mode (pytorch#147851)"
        yield about(f"env_vars.{name}", text, "remove it: the trainer switches it on itself, while the engine sleeps")


def prometheus_findings(job: JobConfig) -> Findings:
    if not job.get(f"{PROMETHEUS_SECTION}.enable"):
        return
    # workers/rollout/llm_server.py:_initialize_llm_servers
    if job.get(key := f"{ROLLOUT}.disable_log_stats"):
        yield about(key, f"is true, but {PROMETHEUS_SECTION}.enable needs what the engines count", f"remove {key}")
    # workers/rollout/utils.py:update_prometheus_config
    file = str(job.get(f"{PROMETHEUS_SECTION}.file"))
    if not file.endswith(f"/{ENGINE_ADDRESSES}"):
        problem = f"is {file}, which verl then replaces on every node of the cluster"
        remedy = "remove it: the file is then one of the job's archive"
        yield about(f"{PROMETHEUS_SECTION}.file", problem, remedy, WARNING)


# The rules that also apply to a job that only validates.
EVAL_RULES = (
    parallelism_findings,
    engine_findings,
    replica_findings,
    validation_findings,
    generation_findings,
    allocator_findings,
    prometheus_findings,
)
RL_RULES = (estimator_findings, separate_async_findings, *BATCH_RULES, *EVAL_RULES)
