# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verl's releases name differently, from 0.5 to 0.9: one table, read in the configs and the code of all of them.

All of it is pure. A release from 0.5.0 to 0.9.1 that renames a setting either refuses the old name after minutes, or
keeps it and no longer reads it: custom_reward_function in 0.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SFT, GRPO, PPO = "sft", "grpo", "ppo"
RL_WORKLOADS = (PPO, GRPO)
Release = tuple[int, int, int]
OLDEST: Release = (0, 5, 0)
# The first release that nobody has read.
UNREAD: Release = (0, 10, 0)
KNOWN = "0.5 to 0.9"


@dataclass(frozen=True)
class Name:
    """A key, or the beginning of keys, and the releases that read it: from `since` on, before `until`."""

    key: str
    since: Release = OLDEST
    until: Release = UNREAD

    def is_read_by(self, release: Release) -> bool:
        return self.since <= release < self.until

    def rest_of(self, key: str) -> str | None:
        """What follows this name in a key: nothing, or what begins with a dot; None for another key."""
        if key == self.key or key.startswith(f"{self.key}."):
            return key[len(self.key) :]
        return None


def never(key: str) -> Name:
    """A name that another trainer of verl reads, and none of those that are run here."""
    return Name(key, until=OLDEST)


@dataclass(frozen=True)
class Setting:
    """One setting under all its names, in the order in which they came.

    hint: what to do in the releases that read none of them.
    """

    names: tuple[Name, ...]
    hint: str = "leave it out"

    def name_in(self, release: Release) -> str | None:
        """The newest name that this release reads."""
        return next((name.key for name in reversed(self.names) if name.is_read_by(release)), None)


def setting(*names: Name, hint: str = "leave it out") -> Setting:
    return Setting(names, hint)


def renamed(old: str, since: Release, new: str, until: Release | None = None) -> Setting:
    """`old`, which since a release is `new`; with `until`, both were read for a while."""
    return Setting((Name(old, until=until or since), Name(new, since=since)))


RL_SETTINGS = (
    # main_ppo.py:run_ppo
    renamed("ray_init.num_cpus", (0, 6, 0), "ray_kwargs.ray_init.num_cpus"),
    renamed("ray_init.timeline_json_file", (0, 6, 0), "ray_kwargs.timeline_json_file"),
    # reward_loop.py:migrate_legacy_reward_impl takes the old names along in 0.7.1 and 0.8; in 0.9 main_ppo.py no longer
    # calls it, and the old names are still in the config (legacy_reward_impl.yaml).
    renamed("custom_reward_function", (0, 7, 1), "reward.custom_reward_function", until=(0, 9, 0)),
    setting(
        Name("reward_model.reward_manager", until=(0, 9, 0)),
        Name("reward_manager.name", since=(0, 7, 0), until=(0, 7, 1)),
        Name("reward.reward_manager.name", since=(0, 7, 1)),
    ),
    setting(
        Name("reward_model.reward_loop_source", since=(0, 7, 0), until=(0, 9, 0)),
        Name("reward_manager.source", since=(0, 7, 0), until=(0, 7, 1)),
        Name("reward.reward_manager.source", since=(0, 7, 1)),
    ),
    setting(
        Name("reward_model.reward_loop_module_path", since=(0, 7, 0), until=(0, 9, 0)),
        Name("reward_manager.module.path", since=(0, 7, 0), until=(0, 7, 1)),
        Name("reward.reward_manager.module.path", since=(0, 7, 1)),
    ),
    setting(
        Name("reward_model.reward_loop_class_name", since=(0, 7, 0), until=(0, 9, 0)),
        Name("reward_manager.module.name", since=(0, 7, 0), until=(0, 7, 1)),
        Name("reward.reward_manager.module.name", since=(0, 7, 1)),
    ),
    renamed("reward_model.reward_kwargs", (0, 7, 1), "reward.reward_kwargs", until=(0, 9, 0)),
    setting(
        Name("reward_model.num_workers", since=(0, 7, 0), until=(0, 9, 0)),
        Name("reward.num_workers", since=(0, 7, 1)),
    ),
    renamed("reward_model.enable", (0, 7, 1), "reward.reward_model.enable", until=(0, 9, 0)),
    *(
        setting(
            Name(f"reward_model.{name}", since=(0, 6, 0), until=(0, 9, 0)),
            Name(f"reward.reward_model.{name}", since=(0, 7, 1)),
        )
        for name in ("enable_resource_pool", "n_gpus_per_node", "nnodes")
    ),
    renamed("reward_model.model.path", (0, 7, 1), "reward.reward_model.model_path", until=(0, 9, 0)),
    setting(
        Name("reward_model.rollout", since=(0, 7, 0), until=(0, 9, 0)),
        Name("reward.reward_model.rollout", since=(0, 7, 1)),
    ),
    setting(
        Name("reward_model.sandbox_fusion", until=(0, 7, 1)),
        Name("sandbox_fusion", since=(0, 7, 1), until=(0, 9, 0)),
        Name("reward.sandbox_fusion", since=(0, 7, 1)),
    ),
    # All that is left of the reward model as a worker of its own.
    setting(Name("reward_model", until=(0, 7, 1)), hint="leave it out; a reward model is under reward.reward_model"),
    # workers/config/critic.py:FSDPCriticConfig
    renamed("critic.model.fsdp_config", (0, 8, 0), "critic.fsdp"),
    renamed("critic.ulysses_sequence_parallel_size", (0, 8, 0), "critic.fsdp.ulysses_sequence_parallel_size"),
    renamed(
        "actor_rollout_ref.rollout.update_weights_bucket_megabytes",
        (0, 7, 1),
        "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes",
    ),
    # In 0.9 ppo/v1/replay_buffer.py asks for rollout_tq.
    setting(
        Name("actor_rollout_ref.rollout.skip_rollout", since=(0, 6, 0), until=(0, 8, 0)),
        Name("actor_rollout_ref.rollout.skip.enable", since=(0, 8, 0), until=(0, 9, 0)),
        Name("skip.rollout_tq.enable", since=(0, 9, 0)),
    ),
    setting(
        Name("actor_rollout_ref.rollout.skip_dump_dir", since=(0, 6, 0), until=(0, 8, 0)),
        Name("actor_rollout_ref.rollout.skip.dump_dir", since=(0, 8, 0), until=(0, 9, 0)),
        Name("skip.rollout_tq.dump_dir", since=(0, 9, 0)),
    ),
    setting(
        Name("actor_rollout_ref.actor.router_replay", since=(0, 7, 0), until=(0, 9, 1)),
        Name("actor_rollout_ref.actor.megatron.router_replay", since=(0, 9, 1)),
    ),
    *(
        setting(
            Name(f"algorithm.{name}", since=(0, 6, 0), until=(0, 6, 1)),
            Name(f"algorithm.rollout_correction.{name}", since=(0, 6, 1)),
        )
        for name in ("rollout_is", "rollout_is_threshold")
    ),
    renamed("trainer.profile_steps", (0, 6, 0), "global_profiler.steps"),
    renamed(
        "trainer.controller_nsight_options",
        (0, 6, 0),
        "global_profiler.global_tool_config.nsys.controller_nsight_options",
    ),
    renamed(
        "trainer.worker_nsight_options", (0, 6, 0), "global_profiler.global_tool_config.nsys.worker_nsight_options"
    ),
    renamed("actor_rollout_ref.profiler", (0, 6, 0), "actor_rollout_ref.actor.profiler"),
    # main_ppo.py:TaskRunnerV1.run sets it.
    setting(Name("transfer_queue.enable", since=(0, 6, 1), until=(0, 9, 0)), hint="leave it out: verl always uses it"),
    setting(Name("trainer.use_legacy_worker_impl", until=(0, 8, 0)), hint="leave it out: there is one implementation"),
    # main_ppo.py:create_rl_sampler, create_rl_dataset
    setting(Name("data.sampler", until=(0, 8, 0))),
    setting(Name("data.datagen", until=(0, 8, 0))),
    setting(Name("actor_rollout_ref.rollout.multi_turn.interaction_config_path", until=(0, 8, 0))),
    setting(Name("actor_rollout_ref.rollout.multi_turn.completion_callback", until=(0, 6, 0))),
    # What SFT names otherwise.
    setting(never("trainer.max_ckpt_to_keep"), Name("trainer.max_actor_ckpt_to_keep")),
)
# fsdp_sft_trainer.py, in releases before 0.7.1, has names of its own; it knows no Ray, and is not run here.
SFT_SETTINGS = (
    setting(never("model.partial_pretrain"), Name("model.path")),
    setting(never("model.fsdp_config"), Name("engine")),
    setting(never("model.strategy"), Name("engine.strategy")),
    setting(never("ulysses_sequence_parallel_size"), Name("engine.ulysses_sequence_parallel_size")),
    setting(never("use_remove_padding"), Name("model.use_remove_padding")),
    # utils/dataset/multiturn_sft_dataset.py reads conversations, and no pairs of prompt and response.
    setting(never("data.prompt_key"), never("data.response_key"), Name("data.messages_key")),
    setting(never("data.prompt_dict_keys"), never("data.response_dict_keys"), Name("data.messages_key")),
    setting(never("data.multiturn.messages_key"), Name("data.messages_key")),
    setting(never("data.multiturn.tools_key"), Name("data.tools_key")),
    setting(never("data.multiturn.enable_thinking_key"), Name("data.enable_thinking_key")),
    setting(never("data.multiturn"), hint="leave it out: all data are conversations, see data.messages_key"),
    setting(never("data.micro_batch_size"), Name("data.micro_batch_size_per_gpu")),
    setting(never("data.chat_template"), Name("model.custom_chat_template")),
    # In the config of every release, and in no code.
    setting(never("data.balance_dp_token"), Name("trainer.balance_batch", since=(0, 8, 0))),
    setting(never("optim.lr_scheduler"), Name("optim.lr_scheduler_type")),
    setting(never("optim.warmup_steps_ratio"), Name("optim.lr_warmup_steps_ratio")),
    setting(never("trainer.checkpoint"), Name("checkpoint")),
    # What PPO and GRPO name otherwise.
    setting(never("trainer.max_actor_ckpt_to_keep"), Name("trainer.max_ckpt_to_keep")),
    setting(never("trainer.val_before_train")),
    setting(never("actor_rollout_ref.model.path"), Name("model.path")),
)


@dataclass(frozen=True)
class Profile:
    """One release of verl, as far as it differs from others."""

    version: str
    release: Release

    def name(self, key: str) -> str:
        """What this release calls a setting of PPO and GRPO that has this name in another one."""
        found = _longest(RL_SETTINGS, key)
        if found is None:
            return key
        known = found[0].name_in(self.release)
        if known is None:
            raise ValueError(f"verl {self.version} has nothing like {key}")
        return known + found[1]

    def misnamed(self, workload: str, key: str) -> str | None:
        """What to do about a key that this release does not read, if it is known that it does not."""
        found = _longest(RL_SETTINGS if workload in RL_WORKLOADS else SFT_SETTINGS, key)
        if found is None:
            return None
        setting_, rest = found
        if any(name.is_read_by(self.release) and name.rest_of(key) is not None for name in setting_.names):
            return None
        known = setting_.name_in(self.release)
        return f"say {known}{rest}" if known else setting_.hint

    def module(self, workload: str) -> str | None:
        """The trainer's module; None where this release has none that knows Ray."""
        if workload in RL_WORKLOADS:
            return "verl.trainer.main_ppo"
        return "verl.trainer.sft_trainer_ray" if self.release >= (0, 7, 0) else None

    @property
    def loggers(self) -> tuple[str, ...]:
        """utils/tracking.py:Tracking.supported_backend; "tracking" is an old name of wandb."""
        known = ["console", "wandb", "tracking", "mlflow", "swanlab", "vemlp_wandb", "tensorboard", "clearml"]
        if self.release >= (0, 6, 0):
            known += ["file", "trackio"]
        if self.release >= (0, 9, 0):
            known.append("rl_insight")
        return tuple(known)

    @property
    def transfer_queue(self) -> bool:
        """Whether main_ppo keeps its samples in TransferQueue, which pins a storage unit to every node alive."""
        return self.release >= (0, 9, 0)

    @property
    def sft_device(self) -> str:
        """The device of SFT's driver, which only computes statistics.

        Before 0.9, single_controller/ray/base.py:get_placement_groups asks Ray for a resource of that name beside each
        process, and for "cpu", which no node has, the job waits for ever.
        """
        return "cpu" if self.release >= (0, 9, 0) else "cuda"

    def driver_environment(self, workload: str) -> dict[str, str]:
        """What the trainer's own process needs: to see a GPU where its device is one, which Ray hides from drivers."""
        return {"CUDA_VISIBLE_DEVICES": "0"} if workload == SFT and self.sft_device == "cuda" else {}

    @property
    def cpu_backend(self) -> bool:
        """Whether it can train without a GPU: only 0.9 loads plug-ins (verl/__init__.py), and one of them does that."""
        return self.release >= (0, 9, 0)


def _longest(settings: tuple[Setting, ...], key: str) -> tuple[Setting, str] | None:
    """The setting of a key, by its longest name that the key is or begins with, and what follows in the key."""
    matches = [
        (len(name.key), setting_, rest)
        for setting_ in settings
        for name in setting_.names
        if (rest := name.rest_of(key)) is not None
    ]
    if not matches:
        return None
    _dummy, found, rest = max(matches, key=lambda match: match[0])
    return found, rest


def release_of(version: str) -> Release | None:
    """The numbers of a version; what follows them (.dev0, .post1, +mine) is left out."""
    match = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?(?![0-9])", version)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def profile_of(version: str) -> Profile | None:
    """The profile of a version of verl; None for one that nobody has read."""
    release = release_of(version)
    return Profile(version, release) if release and OLDEST <= release < UNREAD else None


def refusal(version: str) -> str:
    """What to do about a version without a profile."""
    release = release_of(version)
    if release is None:
        return f"use a snapshot of verl {KNOWN}, with its version in verl/version/version"
    if release < OLDEST:
        return f"use a snapshot of verl {KNOWN}: older ones name their settings differently"
    return f"use a snapshot of verl {KNOWN}: how newer ones name their settings is not known here"
