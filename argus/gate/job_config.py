# SPDX-License-Identifier: Apache-2.0
"""The composed configuration of a job, as rules read it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..checks.configuration import Configuration
from ..common.findings import Finding
from ..jobspec.owned import ESTIMATOR

# The keys with the number of GPUs that share a sequence.
SFT_SEQUENCE_KEY = "engine.ulysses_sequence_parallel_size"
CRITIC_SEQUENCE_KEY = "critic.fsdp.ulysses_sequence_parallel_size"
ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
FSDP = ("fsdp", "fsdp2")
Findings = Iterator[Finding]


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
