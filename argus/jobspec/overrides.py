# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The default Hydra overrides of a job, by workload and accelerator. A JobSpec can replace most of them."""

from __future__ import annotations

from collections.abc import Collection

from ..launcher.hydra import hydra_value
from ..launcher.room import UNITS_KEY
from .capacity import Cluster, JobSize
from .spec import Inputs
from .verl_releases import GRPO, PPO, SFT, Profile

# Hydra's directory in the archive, and the setting that names the file of the reward function.
HYDRA_DIRECTORY = "config/hydra"
REWARD_PATH = "reward.custom_reward_function.path"
# trainer/config/ppo_trainer.yaml: the number of storage units, each with a CPU.
VERL_UNITS = 8


def common_overrides(workload: str, size: JobSize, submission_id: str, archive: str, profile: Profile) -> list[str]:
    # The configuration of SFT has no size before 0.7; torchrun is what knows it there.
    new = "++" if workload == SFT and profile.release < (0, 7, 0) else ""
    return [
        f"{new}trainer.nnodes={size.nnodes}",
        f"{new}trainer.n_gpus_per_node={size.gpus_per_node}",
        f"trainer.default_local_dir={hydra_value(f'{archive}/checkpoints')}",
        f"trainer.project_name={workload}",
        f"trainer.experiment_name={hydra_value(submission_id)}",
        # verl's default is [console,wandb], which fails without an account.
        "trainer.logger=[console,file]" if "file" in profile.loggers else "trainer.logger=[console]",
        "trainer.total_epochs=1",
        "trainer.save_freq=10",
        # Hydra writes the composed configuration and all overrides there.
        f"hydra.run.dir={hydra_value(f'{archive}/{HYDRA_DIRECTORY}')}",
        "hydra.output_subdir=.",
    ]


def data_overrides(inputs: Inputs, validates: bool = True) -> list[str]:
    val = hydra_value(f"{inputs.dataset}/val.parquet" if validates else None)
    return [f"data.train_files={hydra_value(f'{inputs.dataset}/train.parquet')}", f"data.val_files={val}"]


def sft_overrides(inputs: Inputs, device: str, validates: bool = True) -> list[str]:
    return [
        *data_overrides(inputs, validates),
        f"model.path={hydra_value(inputs.model)}",
        f"trainer.device={device}",
        "trainer.max_ckpt_to_keep=3",
    ]


def rl_overrides(workload: str, inputs: Inputs, profile: Profile) -> list[str]:
    overrides = [
        *data_overrides(inputs),
        f"actor_rollout_ref.model.path={hydra_value(inputs.model)}",
        "trainer.val_before_train=False",
        "trainer.max_actor_ckpt_to_keep=3",
        "trainer.max_critic_ckpt_to_keep=3",
    ]
    if profile.transfer_queue:
        # TransferQueue pins a storage unit to every node that is alive, and the head has no CPUs for one.
        overrides.append("++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node")
    if inputs.reward:
        overrides += [
            f"{profile.name(REWARD_PATH)}={hydra_value(inputs.reward.path)}",
            f"{profile.name('reward.custom_reward_function.name')}={hydra_value(inputs.reward.name)}",
        ]
    if workload == GRPO:
        overrides += [
            "algorithm.adv_estimator=grpo",
            # An advantage is relative to the other answers in its group, so a group needs several answers.
            "actor_rollout_ref.rollout.n=5",
            "actor_rollout_ref.actor.use_kl_loss=True",
        ]
    else:
        overrides += ["algorithm.adv_estimator=gae", f"critic.model.path={hydra_value(inputs.model)}"]
    return overrides


def storage_overrides(size: JobSize, cluster: Cluster, driver_cpus: float, known: Collection[str]) -> list[str]:
    """Fewer storage units of TransferQueue where verl's own number of them would wait for CPUs for ever.

    known: the keys of other overrides, which decide if one of them sets the number.
    """
    most = size.most_storage_units(cluster, driver_cpus)
    return [] if UNITS_KEY in known or most >= VERL_UNITS else [f"{UNITS_KEY}={max(1, most)}"]


# Settings that the CPU test backend needs; see docs/cpu_backend.md.
CPU_RL = [
    "trainer.device=cpu",
    "data.dataloader_num_workers=0",
    "actor_rollout_ref.model.use_remove_padding=False",
    "++actor_rollout_ref.model.override_config.attn_implementation=eager",
    "actor_rollout_ref.actor.strategy=fsdp2",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile=False",
    "actor_rollout_ref.rollout.name=hf_cpu",
    "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    f"{UNITS_KEY}=1",
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


def accelerator_overrides(workload: str, accelerator: str, gpus: int) -> list[str]:
    if accelerator == "cpu":
        return {SFT: CPU_SFT, GRPO: CPU_RL, PPO: CPU_RL + CPU_CRITIC}[workload]
    if workload == SFT:
        return []
    parallel = ["actor_rollout_ref.rollout.tensor_model_parallel_size=1"] if gpus == 1 else []
    return ["actor_rollout_ref.rollout.name=vllm", *parallel]
