# SPDX-License-Identifier: Apache-2.0
"""The composed configuration of a job, as rules read it; the rules for all workloads, and those for SFT.

A rule is a function with findings about settings that verl refuses only after minutes, or accepts and does not apply.
Everything here is pure. Each rule was read in verl 0.9.1 and names its source, a file and a function below verl/.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..checks.request import OMEGACONF_MISSING, Configuration, flatten
from ..common.findings import WARNING, Finding, about
from ..jobspec.owned import ESTIMATOR

# The keys with the number of GPUs that share a sequence.
SFT_SEQUENCE_KEY = "engine.ulysses_sequence_parallel_size"
CRITIC_SEQUENCE_KEY = "critic.fsdp.ulysses_sequence_parallel_size"
ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
FSDP = ("fsdp", "fsdp2")
Findings = Iterator[Finding]
NOTHING_TRAINED = "is below 1: the job would train nothing and succeed"
NO_PROMPT = "would ask for an account, and no one can answer"
# By logger: environment variables, one of them required for the job, and the consequence without them.
# utils/tracking.py:Tracking.__init__
ACCOUNTS = {
    "wandb": (("WANDB_API_KEY", "WANDB_MODE"), f"wandb {NO_PROMPT}"),
    "swanlab": (("SWANLAB_API_KEY", "SWANLAB_MODE"), f"swanlab {NO_PROMPT}"),
    "clearml": (("CLEARML_API_ACCESS_KEY", "CLEARML_CONFIG_FILE"), "clearml has no server to report to"),
    "vemlp_wandb": (("VOLC_ACCESS_KEY_ID",), "vemlp_wandb ends the job"),
}


@dataclass(frozen=True)
class JobConfig(Configuration):
    """The composed configuration of a job, with the facts about the job that rules need."""

    workload: str
    nnodes: int
    gpus_per_node: int
    release: tuple[int, ...]  # of verl, such as (0, 9, 1); empty if it is unknown
    environment: Mapping[str, str] = field(default_factory=dict)  # with the names of the job's secrets

    @property
    def gpus(self) -> int:
        return self.nnodes * self.gpus_per_node

    @property
    def is_megatron(self) -> bool:
        return bool(self.get(f"{ACTOR}.strategy") == "megatron")

    @property
    def megatron_model_gpus(self) -> int:
        """The number of GPUs that hold one model of Megatron."""
        sizes = (f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
        return math.prod(self.number(key, 1) for key in sizes)

    @property
    def actor_sequence_key(self) -> str:
        """The key with the number of GPUs that share a sequence of the actor."""
        # workers/config/actor.py:FSDPActorConfig.__post_init__ prefers the old name.
        old, new = f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"
        return old if self.number(old, 1) > 1 else new

    @property
    def actor_sequence_gpus(self) -> int:
        """The number of GPUs that share a sequence of the actor."""
        return max(self.number(self.actor_sequence_key, 1), 1)

    @property
    def data_parallel_size(self) -> int:
        """The number of ranks that share a batch of the actor; 0 if that is unknown."""
        if self.is_megatron:
            gpus_per_model = self.megatron_model_gpus
        elif self.get(f"{ACTOR}.strategy") in FSDP:
            gpus_per_model = self.actor_sequence_gpus
        else:
            return 0
        return self.gpus // gpus_per_model if gpus_per_model and self.gpus % gpus_per_model == 0 else 0

    @property
    def max_sample_tokens(self) -> int:
        """The tokens of the longest prompt with the longest response, of PPO and GRPO."""
        return self.number("data.max_prompt_length") + self.number("data.max_response_length")

    @property
    def needs_critic(self) -> bool:
        # trainer/ppo/utils.py:need_critic
        enabled = self.get("critic.enable")
        return bool(enabled) if enabled is not None else self.get(ESTIMATOR) == "gae"

    @property
    def needs_reference(self) -> bool:
        # trainer/ppo/utils.py:need_reference_policy
        return bool(self.get("algorithm.use_kl_in_reward") or self.get(f"{ACTOR}.use_kl_loss"))


def is_indivisible(number: int, parts: int) -> bool:
    """Whether a number cannot be divided into equal parts; False if one of the two is unknown, which is 0."""
    return number > 0 and parts > 0 and number % parts != 0


def multiple_remedy(ranks: int) -> str:
    return f"set it to a multiple of {ranks}"


def sequence_parallel_findings(job: JobConfig, key: str, remove_padding: str) -> Findings:
    """Findings about GPUs that share a sequence. key: the setting of their number. remove_padding: that for padding."""
    sequence = job.number(key, 1)
    # workers/engine/fsdp/transformer_impl.py:_init_device_mesh: a mesh of (dp, sp)
    if is_indivisible(job.gpus, sequence):
        yield about(key, f"is {sequence}, which does not divide the job's {job.gpus} GPUs", "set it to a divisor")
    # workers/config/actor.py:FSDPActorConfig.validate, workers/engine/fsdp/transformer_impl.py:FSDPEngine.__init__
    if sequence > 1 and job.get(remove_padding) is False:
        yield about(remove_padding, f"is false, but {key} is {sequence}", f"set {remove_padding}=True")


def missing_value_findings(job: JobConfig) -> Findings:
    # omegaconf: MissingMandatoryValue, when verl reads it.
    for key, value in flatten(job.values):
        if value == OMEGACONF_MISSING:
            yield about(key, "has no value, and verl has no default for it", f"set {key}")


def training_length_findings(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:fit, trainer/sft_trainer_ray.py:fit: range(…, total_epochs)
    if job.number("trainer.total_epochs", 1) < 1:
        yield about("trainer.total_epochs", NOTHING_TRAINED, "set it to 1 or more")
    # trainer/ppo/v1/trainer_base.py:fit: while self.global_steps <= self.total_training_steps
    if job.workload != "sft" and job.number("trainer.total_training_steps", 1) < 1:
        yield about("trainer.total_training_steps", NOTHING_TRAINED, "set it to 1 or more, or to null for all epochs")


def saving_findings(job: JobConfig) -> Findings:
    save_freq = job.get("trainer.save_freq")
    remedy = "set it to a number of steps"
    if job.workload == "sft":
        # trainer/sft_trainer_ray.py:fit: global_step % self.save_freq
        for key in ("trainer.save_freq", "trainer.test_freq"):
            if job.get(key) == 0:
                text = "is 0: the job ends with ZeroDivisionError after its first step"
                yield about(key, text, "set it to -1 for never")
        # trainer/sft_trainer_ray.py:fit: is_last_step or (self.save_freq > 0 and is_save_step)
        if isinstance(save_freq, int) and save_freq < 0:
            text = "only the last step is saved, so a job that fails earlier has nothing to resume from"
            yield about("trainer.save_freq", f"is {save_freq}: {text}", remedy, WARNING)
    # trainer/ppo/v1/trainer_base.py:fit: self.config.trainer.save_freq > 0 and (is_last_step or …)
    elif isinstance(save_freq, int) and save_freq <= 0:
        yield about("trainer.save_freq", f"is {save_freq}: nothing is saved, not even the last step", remedy, WARNING)
    # trainer/ppo/v1/trainer_base.py:_save_checkpoint leaves it to the checkpoint manager, and only Megatron's does it.
    key = f"{ACTOR}.checkpoint.async_save"
    if job.workload != "sft" and job.get(key) and not job.is_megatron:
        text = "is true, which only Megatron does: verl would record no checkpoint as finished, so nothing could resume"
        yield about(key, text, "remove it")


def logger_findings(job: JobConfig) -> Findings:
    configured = job.get("trainer.logger") or []
    for logger in [configured] if isinstance(configured, str) else configured:
        variables, consequence = ACCOUNTS.get("wandb" if logger == "tracking" else logger, ((), ""))
        if not variables or not job.environment.keys().isdisjoint(variables):
            continue
        names = " or ".join(variables)
        problem = f"contains {logger}, but the job's environment has no {names}: {consequence}"
        yield about("trainer.logger", problem, f"set {names} for the job, or remove {logger}", WARNING)


def resume_mode_findings(job: JobConfig) -> Findings:
    # trainer/ppo/v1/trainer_base.py:_load_checkpoint, utils/checkpoint/checkpoint_handler.py:_determine_resume_path
    mode, path = job.get("trainer.resume_mode"), job.get("trainer.resume_from_path")
    if mode not in (None, "auto", "disable", "resume_path"):
        yield about("trainer.resume_mode", f"is {mode}", "set it to auto, disable or resume_path")
    if mode == "resume_path" and not (isinstance(path, str) and "global_step_" in path):
        problem = f"is {path}, but trainer.resume_mode is resume_path"
        yield about("trainer.resume_from_path", problem, "set it to the path of a directory global_step_<number>")


def sft_batch_findings(job: JobConfig) -> Findings:
    if job.get("engine.strategy") not in (*FSDP, None):
        return
    yield from sequence_parallel_findings(job, SFT_SEQUENCE_KEY, "model.use_remove_padding")
    # workers/engine/fsdp/transformer_impl.py:prepare_model_inputs
    pad_mode = job.get("data.pad_mode")
    if pad_mode not in ("no_padding", None):
        yield about("data.pad_mode", f"is {pad_mode}, but the FSDP engine supports no_padding only", "remove it")
    # utils/seqlen_balancing.py:get_seqlen_balanced_partitions, which sft_trainer_ray.py:fit calls with equal_size
    batch, ranks = job.number("data.train_batch_size"), max(job.gpus // max(job.number(SFT_SEQUENCE_KEY, 1), 1), 1)
    if is_indivisible(batch, ranks):
        problem = f"is {batch}, not a multiple of the {ranks} ranks that share it"
        yield about("data.train_batch_size", problem, multiple_remedy(ranks))
        return
    # workers/engine/utils.py:prepare_micro_batches
    micro = job.number("data.micro_batch_size_per_gpu")
    if job.get("data.use_dynamic_bsz") is False and is_indivisible(batch // ranks, micro):
        problem = f"is {micro}, which does not divide the {batch // ranks} samples of a rank"
        remedy = "set it to a divisor, or set data.use_dynamic_bsz=True"
        yield about("data.micro_batch_size_per_gpu", problem, remedy)


def sft_length_findings(job: JobConfig) -> Findings:
    # utils/seqlen_balancing.py:rearrange_micro_batches
    tokens = job.number("data.max_token_len_per_gpu") * job.number(SFT_SEQUENCE_KEY, 1)
    longest = job.number("data.max_length")
    if job.get("data.use_dynamic_bsz") and 0 < tokens < longest:
        problem = f"allows {tokens} tokens, but data.max_length is {longest}: a sample of that length ends the job"
        yield about("data.max_token_len_per_gpu", problem, f"set it to {longest} or more", WARNING)


def sft_validation_findings(job: JobConfig) -> Findings:
    # trainer/sft_trainer_ray.py:fit iterates over val_dataloader, which is None without data.
    test_freq = job.number("trainer.test_freq")
    if test_freq > 0 and not job.get("data.val_files"):
        end = f"it would end with TypeError after step {test_freq}"
        problem = f"is {test_freq}, but the job has no data for validation: {end}"
        yield about("trainer.test_freq", problem, "set trainer.test_freq=-1, or stage a val.parquet")


SFT_RULES = (sft_batch_findings, sft_length_findings, sft_validation_findings)
RULES = (missing_value_findings, training_length_findings, saving_findings, logger_findings, resume_mode_findings)
