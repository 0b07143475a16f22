# SPDX-License-Identifier: Apache-2.0
"""Differences of the supported releases of verl, 0.8 and 0.9, and settings that only 0.8 or neither of them reads.

The tables were compiled from the configurations and the code of every release from 0.5.0 to 0.9.1. When a release
renames a setting, it either rejects the old name minutes after the start, or still accepts it and silently ignores it
(custom_reward_function in 0.9).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..archive.plan import RAY, TORCHRUN
from ..common.findings import ERROR, WARNING, Finding

SFT, GRPO, PPO, EVAL = "sft", "grpo", "ppo", "eval"
Release = tuple[int, int, int]
OLDEST: Release = (0, 8, 0)
NEWEST: Release = (0, 9, 1)
# The first release whose names of settings are not in the tables below. It is judged as NEWEST, with warnings.
FIRST_UNKNOWN: Release = (0, 10, 0)
SUPPORTED_TEXT = "0.8 or 0.9"
ROLLOUT = "actor_rollout_ref.rollout"
# The section with the path and the name of the reward function.
REWARD_FUNCTION = "reward.custom_reward_function"
# The end of the newer names of sizes of batches.
PER_GPU = "_per_gpu"
PER_GPU_SIZE = "it is the size for one GPU, so divide by the number of the job's GPUs"
REMOVE = "remove it"
# Each table below maps settings to their new names, or to another remedy. A name also stands for all keys below it,
# except those below a longer name.
#
# Settings that only 0.8 reads: reward_loop.py:migrate_legacy_reward_impl copies them. In 0.9 main_ppo.py does not call
# it any more, but the configuration still contains the old names (legacy_reward_impl.yaml).
RL_UNTIL_0_9 = {
    "custom_reward_function": REWARD_FUNCTION,
    "reward_model.reward_manager": "reward.reward_manager.name",
    "reward_model.reward_loop_source": "reward.reward_manager.source",
    "reward_model.reward_loop_module_path": "reward.reward_manager.module.path",
    "reward_model.reward_loop_class_name": "reward.reward_manager.module.name",
    "reward_model.reward_kwargs": "reward.reward_kwargs",
    "reward_model.num_workers": "reward.num_workers",
    "reward_model.enable": "reward.reward_model.enable",
    "reward_model.enable_resource_pool": "reward.reward_model.enable_resource_pool",
    "reward_model.n_gpus_per_node": "reward.reward_model.n_gpus_per_node",
    "reward_model.nnodes": "reward.reward_model.nnodes",
    "reward_model.model.path": "reward.reward_model.model_path",
    "reward_model.rollout": "reward.reward_model.rollout",
    "sandbox_fusion": "reward.sandbox_fusion",
    # In 0.9 ppo/v1/replay_buffer.py reads rollout_tq.
    f"{ROLLOUT}.skip.enable": "skip.rollout_tq.enable",
    f"{ROLLOUT}.skip.dump_dir": "skip.rollout_tq.dump_dir",
    # main_ppo.py:TaskRunnerV1.run sets it.
    "transfer_queue.enable": f"{REMOVE}: verl always uses TransferQueue",
}
# Settings that neither reads: names in scripts for older releases, and names of SFT.
RL_UNREAD = {
    "reward_model.sandbox_fusion": "reward.sandbox_fusion",
    # The other settings of the former reward model worker.
    "reward_model": f"{REMOVE}: a reward model is configured with reward.reward_model",
    # workers/config/critic.py:FSDPCriticConfig
    "critic.model.fsdp_config": "critic.fsdp",
    "critic.ulysses_sequence_parallel_size": "critic.fsdp.ulysses_sequence_parallel_size",
    f"{ROLLOUT}.update_weights_bucket_megabytes": f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes",
    "trainer.profile_steps": "global_profiler.steps",
    # workers/engine_workers.py:init_model
    "actor_rollout_ref.actor.ppo_micro_batch_size": "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    f"{ROLLOUT}.log_prob_micro_batch_size": f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size": "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    f"{ROLLOUT}.micro_batch_size": f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    # workers/config/critic.py: the newer setting follows it, and verl refuses both.
    "critic.ppo_micro_batch_size": "critic.ppo_micro_batch_size_per_gpu",
    "trainer.use_legacy_worker_impl": f"{REMOVE}: verl has only one implementation",
    "trainer.remove_previous_ckpt": "trainer.max_actor_ckpt_to_keep=1",
    "trainer.remove_previous_ckpt_in_save": "trainer.max_actor_ckpt_to_keep=1",
    "trainer.val_generations_to_log_to_wandb": "trainer.log_val_generations",
    "trainer.max_ckpt_to_keep": "trainer.max_actor_ckpt_to_keep",
}
# The same for SFT: names in scripts for the former fsdp_sft_trainer.py, and names of PPO and GRPO.
SFT_UNREAD = {
    "model.partial_pretrain": "model.path",
    "model.fsdp_config": "engine",
    "model.strategy": "engine.strategy",
    "ulysses_sequence_parallel_size": "engine.ulysses_sequence_parallel_size",
    "use_remove_padding": "model.use_remove_padding",
    # utils/dataset/multiturn_sft_dataset.py reads conversations, not pairs of prompt and response.
    "data.prompt_key": "data.messages_key",
    "data.response_key": "data.messages_key",
    "data.prompt_dict_keys": "data.messages_key",
    "data.response_dict_keys": "data.messages_key",
    "data.multiturn.messages_key": "data.messages_key",
    "data.multiturn.tools_key": "data.tools_key",
    "data.multiturn.enable_thinking_key": "data.enable_thinking_key",
    "data.multiturn": f"{REMOVE}: all datasets are conversations, see data.messages_key",
    "data.micro_batch_size": "data.micro_batch_size_per_gpu",
    "data.chat_template": "model.custom_chat_template",
    # Every release has it in its configuration, and no code reads it.
    "data.balance_dp_token": "trainer.balance_batch",
    "optim.lr_scheduler": "optim.lr_scheduler_type",
    "optim.warmup_steps_ratio": "optim.lr_warmup_steps_ratio",
    "trainer.checkpoint": "checkpoint",
    "trainer.max_actor_ckpt_to_keep": "trainer.max_ckpt_to_keep",
    "trainer.val_before_train": REMOVE,
    "actor_rollout_ref.model.path": "model.path",
}


def release_of(version: str) -> Release | None:
    """The release numbers of a version, without suffixes such as .dev0, .post1 and +mine."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?![0-9])", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def trainer_module(workload: str, launcher: str = RAY) -> str:
    """The Python module of the trainer."""
    if workload != SFT:
        return "verl.trainer.main_ppo"
    return "verl.trainer.sft_trainer" if launcher == TORCHRUN else "verl.trainer.sft_trainer_ray"


@dataclass(frozen=True)
class Profile:
    """A release of verl: everything in which it differs from the others."""

    version: str  # as the snapshot declares it
    release: Release  # whose rules apply
    is_guess: bool = False  # whether the version is newer than all that are known

    @property
    def is_0_9(self) -> bool:
        return self.release >= (0, 9, 0)

    def unread_hint(self, workload: str, key: str) -> str | None:
        """The remedy for a setting that this release does not read according to the tables; None for others."""
        names = SFT_UNREAD if workload == SFT else RL_UNREAD | RL_UNTIL_0_9
        name = max((name for name in names if f"{key}.".startswith(f"{name}.")), key=len, default="")
        if not name or (name in RL_UNTIL_0_9 and workload != SFT and not self.is_0_9):
            return None
        new = names[name]
        if new.startswith(REMOVE):
            return new
        is_size = new.endswith(PER_GPU)
        return f"set {new}{key.removeprefix(name)} instead" + (f": {PER_GPU_SIZE}" if is_size else "")

    @property
    def loggers(self) -> tuple[str, ...]:
        """The loggers in utils/tracking.py:Tracking.supported_backend; "tracking" is an old name of wandb."""
        names = ("console", "wandb", "tracking", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "clearml")
        return (*names, "file", "trackio", *(["rl_insight"] if self.is_0_9 else []))

    @property
    def transfer_queue(self) -> bool:
        """Whether main_ppo keeps its samples in TransferQueue, which pins a storage unit to every live node."""
        return self.is_0_9

    @property
    def sft_device(self) -> str:
        """The device of SFT's driver, which only computes statistics.

        Before 0.9, single_controller/ray/base.py:get_placement_groups requests a resource of that name for each
        process. No node has a resource "cpu", so the job would wait forever.
        """
        return "cpu" if self.is_0_9 else "cuda"

    def driver_environment(self, workload: str, launcher: str = RAY) -> dict[str, str]:
        """Environment variables of the driver alone."""
        if launcher == TORCHRUN:
            # Without it, Ray shows a line that several ranks write only once.
            return {"RAY_DEDUP_LOGS": "0"}
        # Ray hides GPUs from drivers, and a driver on "cuda" must see one.
        return {"CUDA_VISIBLE_DEVICES": "0"} if workload == SFT and self.sft_device == "cuda" else {}

    def cpu_backend(self, workload: str) -> bool:
        """Whether jobs can run on the CPU test backend. Its rollouts are plug-ins of verl 0.9 (verl/plugin)."""
        return workload == SFT or self.is_0_9


def profile_of(version: str) -> Profile | None:
    """The profile of a version of verl; None if the tables do not cover it."""
    release = release_of(version)
    if release is None or release < OLDEST:
        return None
    return Profile(version, NEWEST, is_guess=True) if release >= FIRST_UNKNOWN else Profile(version, release)


def soften_unknown_release(version: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings of a version's rules; for a version newer than all known ones, errors become warnings."""
    profile = profile_of(version)
    is_guess = profile is not None and profile.is_guess
    return [replace(item, severity=WARNING) if is_guess and item.severity == ERROR else item for item in findings]


def unsupported_remedy(version: str) -> str:
    """The remedy for a version without a profile."""
    release = release_of(version)
    if release is None:
        return f"use a snapshot of verl {SUPPORTED_TEXT} that contains verl/version/version"
    return f"use a snapshot of verl {SUPPORTED_TEXT}: the names of settings in older versions differ"
