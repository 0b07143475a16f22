# SPDX-License-Identifier: Apache-2.0
"""The rules for the configuration of all workloads, and those for SFT.

A rule is a function with findings about settings that verl refuses only after minutes, or accepts and does not apply.
Everything here is pure. Each rule was read in verl 0.9.1 and names its source, a file and a function below verl/.
"""

from __future__ import annotations

from ..checks.configuration import OMEGACONF_MISSING, flatten
from ..common.findings import WARNING, about
from .job_config import ACTOR, FSDP, SFT_SEQUENCE_KEY, Findings, JobConfig, is_indivisible, multiple_remedy

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
                yield about(
                    key, "is 0: the job ends with ZeroDivisionError after its first step", "set it to -1 for never"
                )
        # trainer/sft_trainer_ray.py:fit: is_last_step or (self.save_freq > 0 and is_save_step)
        if isinstance(save_freq, int) and save_freq < 0:
            text = (
                f"is {save_freq}: only the last step is saved, so a job that fails earlier has nothing to resume from"
            )
            yield about("trainer.save_freq", text, remedy, WARNING)
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
