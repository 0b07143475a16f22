# SPDX-License-Identifier: Apache-2.0
"""The default Hydra overrides of a job, by workload and accelerator, and the checks of batches in overrides."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..archive.archive import ENGINE_ADDRESSES
from ..archive.checkpoints import Checkpoint
from ..archive.plan import TORCHRUN, VAL_ONLY
from ..archive.samples import raw_directory
from ..common.findings import NOTE, WARNING, Finding
from ..common.shared_root import archive_path
from ..io.hydra import hydra_value, is_true, override_key, override_text
from ..queue.demand import UNITS_KEY
from .capacity import Cluster, JobSize, pool_overrides, pools_of, size_of
from .owned import about_override
from .spec import Inputs, JobSpec
from .verl_releases import EVAL, GRPO, PER_GPU, PPO, REWARD_FUNCTION, SFT, Profile

# Hydra's directory in the archive.
HYDRA_DIRECTORY = "config/hydra"
# The default number of TransferQueue's storage units, each with a CPU: trainer/config/ppo_trainer.yaml
VERL_UNITS = 8
# The settings that determine the tokens of a step, with the defaults of verl or of this file.
STEP_TOKENS = {"data.train_batch_size": 1024, "actor_rollout_ref.rollout.n": 5, "data.max_response_length": 512}
# Samples of steps with more tokens are not kept: the trainer would wait for a process of verl that decodes one to three
# million tokens a second.
MAX_SAMPLED_TOKENS = 8_000_000
# verl's own default is [console,wandb], which fails without an account.
LOGGER_KEY = "trainer.logger"
DEFAULT_LOGGERS, TENSORBOARD_LOGGERS = f"{LOGGER_KEY}=[console,file]", f"{LOGGER_KEY}=[console,file,tensorboard]"
# A setting with so many digits exceeds the limit without the others.
TOO_MANY_DIGITS = 8
# The overrides that the CPU test backend needs; see docs/cpu_backend.md.
CPU_RL = [
    "trainer.device=cpu",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "++actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    f"{UNITS_KEY}=1",
]
# This rollout loads whole weights, no adapter of LoRA.
CPU_TRANSFORMERS = ["actor_rollout_ref.rollout.name=hf_cpu", "actor_rollout_ref.model.lora.merge=True"]
# vLLM's CPU backend has no compiler and no sleep mode, and its cache is not a share of the machine's memory.
CPU_VLLM = [
    "actor_rollout_ref.rollout.enforce_eager=True",
    "+actor_rollout_ref.rollout.enable_sleep_mode=False",
    "actor_rollout_ref.rollout.free_cache_engine=False",
    f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={2**28}",
    "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16",
]
CPU_CRITIC = [
    "critic.strategy=fsdp2",
    "critic.model.use_remove_padding=False",
    "++critic.model.override_config.attn_implementation=eager",
    "critic.fsdp.use_torch_compile=False",
]
CPU_SFT = [
    "data.num_workers=0",
    "model.use_remove_padding=False",
    "++model.override_config.attn_implementation=eager",
    "engine.strategy=fsdp2",
    "engine.use_torch_compile=False",
]
# For rollouts on workers of their own: verl's way to send them weights needs GPUs.
CPU_WEIGHTS = [
    "actor_rollout_ref.rollout.checkpoint_engine.backend=ray_cpu",
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module=verl_cpu.weights",
]


def default_overrides(
    spec: JobSpec,
    cluster: Cluster,
    submission_id: str,
    profile: Profile,
    checkpoint: Checkpoint | None,
    has_validation_data: bool = True,
) -> list[str]:
    """The overrides of a job without those of its JobSpec. checkpoint: the one to resume from."""
    workload, inputs = spec.workload, spec.inputs
    size, archive = size_of(spec, cluster), archive_path(spec.shared_root, submission_id)
    overrides = [f"--config-name={spec.config_name}"] if spec.config_name else []
    overrides += common_overrides(workload, size, submission_id, archive)
    overrides += [f"{key}={value}" for key, value in pool_overrides(pools_of(spec, size)).items()]
    if workload == SFT:
        # With Ray, the driver only computes statistics, and has no GPU.
        device = profile.sft_device
        if spec.launcher == TORCHRUN:
            device = "cpu" if cluster.accelerator == "cpu" else "cuda"
        overrides += sft_overrides(inputs, device, has_validation_data)
    else:
        overrides += rl_overrides(spec, profile) + sample_overrides(spec.trainer_overrides, archive)
        if is_true(spec.trainer_overrides, f"{ROLLOUT}.prometheus.enable"):
            # By default, engines count nothing, and all jobs of a node share one file.
            overrides += [f"{ROLLOUT}.disable_log_stats=False"]
            overrides += [f"{ROLLOUT}.prometheus.file={hydra_value(f'{archive}/{ENGINE_ADDRESSES}')}"]
    engine = settings_of(spec).get(f"{ROLLOUT}.name", "")
    overrides += batch_overrides(spec)
    overrides += accelerator_overrides(workload, cluster.accelerator, size.gpus_per_node, spec.pools, engine)
    if checkpoint:
        path = hydra_value(str(checkpoint.path))
        overrides += ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={path}"]
    if workload != SFT and profile.transfer_queue:
        overrides += storage_overrides(size, cluster, spec.entrypoint_num_cpus, set(map(override_key, overrides)))
    return overrides


def common_overrides(workload: str, size: JobSize, submission_id: str, archive: str) -> list[str]:
    return [
        f"trainer.nnodes={size.nnodes}",
        f"trainer.n_gpus_per_node={size.gpus_per_node}",
        f"trainer.default_local_dir={hydra_value(f'{archive}/checkpoints')}",
        f"trainer.project_name={workload}",
        f"trainer.experiment_name={hydra_value(submission_id)}",
        # The gate adds TensorBoard if the nodes can write its files.
        DEFAULT_LOGGERS,
        "trainer.total_epochs=1",
        "trainer.save_freq=10",
        # Hydra writes the composed configuration and all overrides there.
        f"hydra.run.dir={hydra_value(f'{archive}/{HYDRA_DIRECTORY}')}",
        "hydra.output_subdir=.",
    ]


def sft_overrides(inputs: Inputs, device: str, has_validation_data: bool = True) -> list[str]:
    return [
        *data_overrides(inputs, has_validation_data),
        f"model.path={hydra_value(inputs.model)}",
        f"trainer.device={device}",
        "trainer.max_ckpt_to_keep=3",
    ]


def data_overrides(inputs: Inputs, has_validation_data: bool = True, is_trained: bool = True) -> list[str]:
    val = hydra_value(f"{inputs.dataset}/val.parquet" if has_validation_data else None)
    # verl opens the training data even if the job only validates.
    train = hydra_value(f"{inputs.dataset}/train.parquet") if is_trained else val
    return [f"data.train_files={train}", f"data.val_files={val}"]


def rl_overrides(spec: JobSpec, profile: Profile) -> list[str]:
    inputs = spec.inputs
    overrides = [
        *data_overrides(inputs, is_trained=spec.workload != EVAL),
        f"actor_rollout_ref.model.path={hydra_value(inputs.model)}",
        # verl reads val_only only if it validates before the training.
        *([] if only_validates(spec) else ["trainer.val_before_train=False"]),
        "trainer.max_actor_ckpt_to_keep=3",
        "trainer.max_critic_ckpt_to_keep=3",
    ]
    if profile.transfer_queue:
        # TransferQueue pins a storage unit to every node that is alive, and the head has no CPUs for one.
        overrides.append("++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node")
    if inputs.reward:
        overrides += [
            f"{REWARD_FUNCTION}.path={hydra_value(inputs.reward.path)}",
            f"{REWARD_FUNCTION}.name={hydra_value(inputs.reward.name)}",
        ]
    if spec.workload == EVAL:
        # verl prepares to train even if it only validates, so this is the smallest training.
        overrides += [f"{VAL_ONLY}=True", "algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=1"]
        overrides += ["data.train_batch_size=1", "trainer.total_training_steps=1"]
    elif spec.workload == GRPO:
        overrides += [
            "algorithm.adv_estimator=grpo",
            # An advantage is relative to the other answers in its group, so a group needs several answers.
            "actor_rollout_ref.rollout.n=5",
            "actor_rollout_ref.actor.use_kl_loss=True",
        ]
    else:
        overrides += ["algorithm.adv_estimator=gae", f"critic.model.path={hydra_value(inputs.model)}"]
    return overrides


def only_validates(spec: JobSpec) -> bool:
    return spec.workload == EVAL or is_true(spec.trainer_overrides, VAL_ONLY)


def sample_overrides(overrides: Iterable[str], archive: str) -> list[str]:
    """The directories for the samples of validations, and for those of steps if these have few enough tokens.

    overrides: those of the JobSpec.
    """
    values = {override_key(override): override_text(override) for override in overrides}
    sizes = [values.get(key, str(default)) for key, default in STEP_TOKENS.items()]
    is_known = all(size.isdecimal() and len(size) < TOO_MANY_DIGITS for size in sizes)
    is_small = is_known and math.prod(map(int, sizes)) <= MAX_SAMPLED_TOKENS
    kinds = {"validation_data_dir": "validation", **({"rollout_data_dir": "rollouts"} if is_small else {})}
    return [f"trainer.{key}={hydra_value(raw_directory(archive, kind))}" for key, kind in kinds.items()]


def storage_overrides(size: JobSize, cluster: Cluster, driver_cpus: float, keys: Collection[str]) -> list[str]:
    """Fewer storage units of TransferQueue, if the CPUs do not suffice for verl's default number.

    keys: those of the other overrides; if one of them sets the number, it remains.
    """
    max_units = size.max_storage_units(cluster, driver_cpus)
    return [] if UNITS_KEY in keys or max_units >= VERL_UNITS else [f"{UNITS_KEY}={max(1, max_units)}"]


def accelerator_overrides(
    workload: str, accelerator: str, gpus: int, pools: Collection[str] = (), engine: str = ""
) -> list[str]:
    """The overrides that the accelerator needs. engine: the rollout that the JobSpec names; "" for none."""
    if accelerator == "cpu":
        if workload == SFT:
            return CPU_SFT
        rollout = CPU_VLLM if engine == "vllm" else CPU_TRANSFORMERS
        critic = CPU_CRITIC if workload == PPO else []
        return [*CPU_RL, *rollout, *critic, *(CPU_WEIGHTS if "rollout" in pools else [])]
    if workload == SFT:
        return []
    parallel = ["actor_rollout_ref.rollout.tensor_model_parallel_size=1"] if gpus == 1 else []
    return ["actor_rollout_ref.rollout.name=vllm", *parallel]


@dataclass(frozen=True)
class BatchKeys:
    """The keys of the settings of a part of the trainer that has batches of its own."""

    switch: str  # makes the batches dynamic
    sizes: tuple[str, ...]  # of fixed batches, over all GPUs; those for one GPU end in PER_GPU
    tokens: tuple[str, ...]  # of dynamic batches

    def sizes_in(self, settings: Mapping[str, str]) -> list[str]:
        """The keys of sizes that a JobSpec sets. settings: those of the JobSpec."""
        return [key for size in self.sizes for key in (size, size + PER_GPU) if settings.get(key, "null") != "null"]

    def is_fixed(self, settings: Mapping[str, str]) -> bool:
        """Whether batches have a fixed size: by the switch, or because a size is set."""
        return settings[self.switch].lower() == "false" if self.switch in settings else bool(self.sizes_in(settings))


ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
# workers/engine_workers.py:init_model: both are dynamic or both are fixed, and fixed ones both need a size.
POLICY = BatchKeys(
    f"{ACTOR}.use_dynamic_bsz",
    (f"{ACTOR}.ppo_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size"),
    (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
)
REFERENCE = BatchKeys(
    f"{REF}.log_prob_use_dynamic_bsz", (f"{REF}.log_prob_micro_batch_size",), (f"{REF}.log_prob_max_token_len_per_gpu",)
)
CRITIC = BatchKeys("critic.use_dynamic_bsz", ("critic.ppo_micro_batch_size",), ("critic.ppo_max_token_len_per_gpu",))
DATA = BatchKeys("data.use_dynamic_bsz", ("data.micro_batch_size",), ("data.max_token_len_per_gpu",))


def settings_of(spec: JobSpec) -> dict[str, str]:
    """The values of a JobSpec's overrides, by their keys."""
    return {override_key(item): override_text(item) for item in spec.trainer_overrides if "=" in item}


def batch_overrides(spec: JobSpec) -> list[str]:
    """The default overrides of the switches, and of sizes that verl requires besides those of the JobSpec."""
    settings = settings_of(spec)
    if spec.workload == SFT:
        return [f"{DATA.switch}=False"] if DATA.sizes_in(settings) else []
    is_fixed = POLICY.is_fixed(settings)
    # Without dynamic batches, verl requires sizes of four kinds.
    overrides = [f"{POLICY.switch}={not is_fixed}"]
    if is_fixed and (sizes := POLICY.sizes_in(settings)):
        suffix = PER_GPU if sizes[0].endswith(PER_GPU) else ""
        # utils/config.py:validate_config requires the size of the reference as well, even if its batches are dynamic.
        missing = [key for key in (*POLICY.sizes, *REFERENCE.sizes) if settings.keys().isdisjoint((key, key + PER_GPU))]
        overrides += [f"{key}{suffix}={settings[sizes[0]]}" for key in missing]
    elif REFERENCE.sizes_in(settings):
        overrides.append(f"{REFERENCE.switch}=False")
    if spec.workload == PPO and (is_fixed or CRITIC.sizes_in(settings)):
        overrides.append(f"{CRITIC.switch}={not CRITIC.sizes_in(settings)}")
    return overrides


def batch_findings(spec: JobSpec, profile: Profile) -> Iterator[Finding]:
    """Notes on sizes that make batches fixed, and findings about settings of batches that verl would not read."""
    settings = settings_of(spec)
    parts = {SFT: (DATA,), PPO: (POLICY, REFERENCE, CRITIC)}.get(spec.workload, (POLICY, REFERENCE))
    for part in parts:
        sizes, is_fixed = part.sizes_in(settings), part.is_fixed(settings)
        if part is REFERENCE and part.switch not in settings:
            is_fixed = is_fixed or POLICY.is_fixed(settings)
        if part is CRITIC:
            yield from critic_findings(sizes, profile)
            continue
        if sizes and is_fixed and part.switch not in settings:
            yield about_override(sizes[0], f"makes batches fixed: {part.switch}=False", "", NOTE)
        unread = [key for key in part.tokens if key in settings] if is_fixed else sizes
        problem = f"is not read with {part.switch}={not is_fixed}"
        remedy = f"remove it, or set {part.switch}={is_fixed}"
        for key in unread:
            yield about_override(key, problem, remedy, WARNING)


def critic_findings(sizes: list[str], profile: Profile) -> Iterator[Finding]:
    """Findings about sizes of the critic's batches. These are always dynamic: its engine gets no use_dynamic_bsz."""
    # workers/config/engine.py:EngineConfig, trainer/ppo/v1/trainer_base.py:_setup
    tokens = "++critic.ppo_infer_max_token_len_per_gpu" if profile.is_0_9 else CRITIC.tokens[0]
    # Another finding reports the older form.
    for key in (key for key in sizes if key.endswith(PER_GPU)):
        yield about_override(key, f"is not read by verl {profile.version}", f"set {tokens} instead", WARNING)
