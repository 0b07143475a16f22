# SPDX-License-Identifier: GPL-3.0-or-later
"""How the releases of verl from 0.5 to 0.9 differ: names of settings, trainers, loggers and devices.

The tables were compiled from the configurations and the code of every release from 0.5.0 to 0.9.1. When a release
renames a setting, it either rejects the old name minutes after the start, or still accepts it and silently ignores it
(custom_reward_function in 0.9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..archive.plan import RAY, TORCHRUN

SFT, GRPO, PPO = "sft", "grpo", "ppo"
RL_WORKLOADS = (PPO, GRPO)
Release = tuple[int, int, int]
OLDEST: Release = (0, 5, 0)
# The first release whose names of settings are not in the tables below.
FIRST_UNKNOWN: Release = (0, 10, 0)
KNOWN = "0.5 to 0.9"


def release_of(version: str) -> Release | None:
    """The release numbers of a version, without suffixes such as .dev0, .post1 and +mine."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?![0-9])", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


@dataclass(frozen=True)
class Name:
    """A key or the prefix of keys, and the releases that read it: from `since` up to, but not including, `until`."""

    key: str
    since: Release = OLDEST
    until: Release = FIRST_UNKNOWN

    @classmethod
    def of(cls, text: str) -> Name:
        """From ``KEY``, ``KEY SINCE..UNTIL``, where one of them may be left out, or ``KEY unread``.

        The last is a name that only another trainer of verl reads.
        """
        key, _dummy, releases = text.partition(" ")
        if releases == "unread":
            return cls(key, until=OLDEST)
        since, _dummy, until = releases.partition("..")
        return cls(key, release_of(since) or OLDEST, release_of(until) or FIRST_UNKNOWN)

    def is_read_by(self, release: Release) -> bool:
        return self.since <= release < self.until

    def rest_of(self, key: str) -> str | None:
        """The rest of a key after this name, empty or with a leading dot; None if the key is a different one."""
        is_name = key == self.key or key.startswith(f"{self.key}.")
        return key.removeprefix(self.key) if is_name else None


@dataclass(frozen=True)
class Setting:
    """One setting with all its names, oldest first.

    hint: what to do about it in a release that reads none of the names.
    """

    names: tuple[Name, ...]
    hint: str


def setting(*names: str, hint: str = "remove it") -> Setting:
    return Setting(tuple(map(Name.of, names)), hint)


ROLLOUT = "actor_rollout_ref.rollout"
# The end of the newer names of sizes of batches.
PER_GPU = "_per_gpu"
PER_GPU_SIZE = "it is the size for one GPU, so divide by the number of the job's GPUs"
RL_SETTINGS = (
    # reward_loop.py:migrate_legacy_reward_impl copies the old names in 0.7.1 and 0.8. In 0.9 main_ppo.py does not call
    # it any more, but the configuration still contains the old names (legacy_reward_impl.yaml).
    setting("custom_reward_function ..0.9", "reward.custom_reward_function 0.7.1.."),
    *(
        setting(
            f"reward_model.{old} {since}..0.9",
            f"reward_manager.{new} 0.7.0..0.7.1",
            f"reward.reward_manager.{new} 0.7.1..",
        )
        for old, since, new in (
            ("reward_manager", "", "name"),
            ("reward_loop_source", "0.7", "source"),
            ("reward_loop_module_path", "0.7", "module.path"),
            ("reward_loop_class_name", "0.7", "module.name"),
        )
    ),
    setting("reward_model.reward_kwargs ..0.9", "reward.reward_kwargs 0.7.1.."),
    setting("reward_model.num_workers 0.7..0.9", "reward.num_workers 0.7.1.."),
    setting("reward_model.enable ..0.9", "reward.reward_model.enable 0.7.1.."),
    setting("reward_model.enable_resource_pool 0.6..0.9", "reward.reward_model.enable_resource_pool 0.7.1.."),
    setting("reward_model.n_gpus_per_node 0.6..0.9", "reward.reward_model.n_gpus_per_node 0.7.1.."),
    setting("reward_model.nnodes 0.6..0.9", "reward.reward_model.nnodes 0.7.1.."),
    setting("reward_model.model.path ..0.9", "reward.reward_model.model_path 0.7.1.."),
    setting("reward_model.rollout 0.7..0.9", "reward.reward_model.rollout 0.7.1.."),
    setting("reward_model.sandbox_fusion ..0.7.1", "sandbox_fusion 0.7.1..0.9", "reward.sandbox_fusion 0.7.1.."),
    # The other settings of the former reward model worker.
    setting("reward_model ..0.7.1", hint="remove it: a reward model is configured with reward.reward_model"),
    # workers/config/critic.py:FSDPCriticConfig
    setting("critic.model.fsdp_config ..0.8", "critic.fsdp 0.8.."),
    setting("critic.ulysses_sequence_parallel_size ..0.8", "critic.fsdp.ulysses_sequence_parallel_size 0.8.."),
    setting(
        f"{ROLLOUT}.update_weights_bucket_megabytes ..0.7.1",
        f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes 0.7.1..",
    ),
    # In 0.9 ppo/v1/replay_buffer.py reads rollout_tq.
    setting(f"{ROLLOUT}.skip_rollout 0.6..0.8", f"{ROLLOUT}.skip.enable 0.8..0.9", "skip.rollout_tq.enable 0.9.."),
    setting(f"{ROLLOUT}.skip_dump_dir 0.6..0.8", f"{ROLLOUT}.skip.dump_dir 0.8..0.9", "skip.rollout_tq.dump_dir 0.9.."),
    setting(
        "actor_rollout_ref.actor.router_replay 0.7..0.9.1", "actor_rollout_ref.actor.megatron.router_replay 0.9.1.."
    ),
    setting("trainer.profile_steps ..0.6", "global_profiler.steps 0.6.."),
    # workers/engine_workers.py:init_model
    *(
        setting(f"actor_rollout_ref.{name} ..0.8", f"actor_rollout_ref.{name}_per_gpu")
        for name in ("actor.ppo_micro_batch_size", "rollout.log_prob_micro_batch_size", "ref.log_prob_micro_batch_size")
    ),
    # workers/config/critic.py: the newer setting follows it, and verl refuses both.
    setting("critic.ppo_micro_batch_size unread", "critic.ppo_micro_batch_size_per_gpu"),
    # main_ppo.py:TaskRunnerV1.run sets it.
    setting("transfer_queue.enable 0.6.1..0.9", hint="remove it: verl always uses TransferQueue"),
    setting("trainer.use_legacy_worker_impl ..0.8", hint="remove it: verl has only one implementation"),
    # main_ppo.py:create_rl_sampler, create_rl_dataset
    setting("data.sampler ..0.8"),
    setting("data.datagen ..0.8"),
    setting(f"{ROLLOUT}.multi_turn.interaction_config_path ..0.8"),
    # The name in SFT.
    setting("trainer.max_ckpt_to_keep unread", "trainer.max_actor_ckpt_to_keep"),
)
# fsdp_sft_trainer.py, in releases before 0.7.1, has its own names; it does not use Ray, and no job runs it.
SFT_SETTINGS = (
    setting("model.partial_pretrain unread", "model.path"),
    setting("model.fsdp_config unread", "engine"),
    setting("model.strategy unread", "engine.strategy"),
    setting("ulysses_sequence_parallel_size unread", "engine.ulysses_sequence_parallel_size"),
    setting("use_remove_padding unread", "model.use_remove_padding"),
    # utils/dataset/multiturn_sft_dataset.py reads conversations, not pairs of prompt and response.
    setting("data.prompt_key unread", "data.response_key unread", "data.messages_key"),
    setting("data.prompt_dict_keys unread", "data.response_dict_keys unread", "data.messages_key"),
    setting("data.multiturn.messages_key unread", "data.messages_key"),
    setting("data.multiturn.tools_key unread", "data.tools_key"),
    setting("data.multiturn.enable_thinking_key unread", "data.enable_thinking_key"),
    setting("data.multiturn unread", hint="remove it: all datasets are conversations, see data.messages_key"),
    setting("data.micro_batch_size unread", "data.micro_batch_size_per_gpu"),
    setting("data.chat_template unread", "model.custom_chat_template"),
    # Every release has it in its configuration, and no code reads it.
    setting("data.balance_dp_token unread", "trainer.balance_batch 0.8.."),
    setting("optim.lr_scheduler unread", "optim.lr_scheduler_type"),
    setting("optim.warmup_steps_ratio unread", "optim.lr_warmup_steps_ratio"),
    setting("trainer.checkpoint unread", "checkpoint"),
    # The names in PPO and GRPO.
    setting("trainer.max_actor_ckpt_to_keep unread", "trainer.max_ckpt_to_keep"),
    setting("trainer.val_before_train unread"),
    setting("actor_rollout_ref.model.path unread", "model.path"),
)


@dataclass(frozen=True)
class Profile:
    """A release of verl: everything in which it differs from the others."""

    version: str
    release: Release

    @property
    def reward_function(self) -> str:
        """The section with the path and the name of the reward function."""
        return "reward.custom_reward_function" if self.release >= (0, 7, 1) else "custom_reward_function"

    def unread_hint(self, workload: str, key: str) -> str | None:
        """What to do about a key if this release is known not to read it; None otherwise."""
        settings = RL_SETTINGS if workload in RL_WORKLOADS else SFT_SETTINGS
        matches = [(one, rest) for one in settings for name in one.names if (rest := name.rest_of(key)) is not None]
        if not matches:
            return None
        # Of several names, the longest counts.
        found, rest = min(matches, key=lambda match: len(match[1]))
        read = [name for name in found.names if name.is_read_by(self.release)]
        if any(name.rest_of(key) is not None for name in read):
            return None
        if not read:
            return found.hint
        is_size = read[-1].key.endswith(PER_GPU) and not key.endswith(PER_GPU)
        return f"set {read[-1].key}{rest} instead" + (f": {PER_GPU_SIZE}" if is_size else "")

    def module(self, workload: str, launcher: str = RAY) -> str | None:
        """The Python module of the trainer; None if this release has none for this launcher."""
        if workload in RL_WORKLOADS:
            return "verl.trainer.main_ppo"
        if launcher == TORCHRUN:
            return "verl.trainer.sft_trainer" if self.release >= (0, 6, 1) else None
        return "verl.trainer.sft_trainer_ray" if self.release >= (0, 7, 0) else None

    @property
    def loggers(self) -> tuple[str, ...]:
        """The loggers in utils/tracking.py:Tracking.supported_backend; "tracking" is an old name of wandb."""
        known = ["console", "wandb", "tracking", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "clearml"]
        if self.release >= (0, 6, 0):
            known += ["file", "trackio"]
        if self.release >= (0, 9, 0):
            known.append("rl_insight")
        return tuple(known)

    @property
    def transfer_queue(self) -> bool:
        """Whether main_ppo keeps its samples in TransferQueue, which pins a storage unit to every live node."""
        return self.release >= (0, 9, 0)

    @property
    def reward_modules(self) -> bool:
        """Whether trainer/ppo/reward.py:get_custom_reward_fn imports a module by its name, ``pkg://NAME``."""
        return self.release >= (0, 7, 0)

    @property
    def sft_device(self) -> str:
        """The device of SFT's driver, which only computes statistics.

        Before 0.9, single_controller/ray/base.py:get_placement_groups requests a resource of that name for each
        process. No node has a resource "cpu", so the job would wait forever.
        """
        return "cpu" if self.release >= (0, 9, 0) else "cuda"

    def driver_environment(self, workload: str, launcher: str = RAY) -> dict[str, str]:
        """Environment of the driver alone. Ray hides GPUs from drivers, and a driver on "cuda" must see one."""
        if launcher == TORCHRUN:
            # Ray would show a line that several ranks write only once.
            return {"RAY_DEDUP_LOGS": "0"}
        return {"CUDA_VISIBLE_DEVICES": "0"} if workload == SFT and self.sft_device == "cuda" else {}

    def cpu_backend(self, workload: str) -> bool:
        """Whether the CPU test backend works. Its rollouts are plug-ins of verl 0.9 (verl/plugin)."""
        return self.release >= ((0, 8, 0) if workload == SFT else (0, 9, 0))


def profile_of(version: str) -> Profile | None:
    """The profile of a version of verl; None if the tables do not cover it."""
    release = release_of(version)
    return Profile(version, release) if release and OLDEST <= release < FIRST_UNKNOWN else None


def refusal(version: str) -> str:
    """What to do about a version that has no profile."""
    release = release_of(version)
    if release is None:
        return f"use a snapshot of verl {KNOWN} that contains verl/version/version"
    if release < OLDEST:
        return f"use a snapshot of verl {KNOWN}: the names of settings in older versions differ"
    return f"use a snapshot of verl {KNOWN}: the names of settings in newer versions are unknown"
