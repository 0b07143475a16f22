# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A composed configuration with the size of its job, and what the rules of all workloads share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..checks.common import Configuration
from ..common.findings import Finding, about

ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
FSDP = ("fsdp", "fsdp2")
Found = Iterator[Finding]


@dataclass(frozen=True)
class JobConfig(Configuration):
    """What the rules judge.

    release: the release of verl.
    environment: the environment variables of the job, with the names of its secrets.
    """

    workload: str
    nnodes: int
    gpus_per_node: int
    release: tuple[int, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> int:
        return self.nnodes * self.gpus_per_node

    @property
    def is_megatron(self) -> bool:
        return bool(self.get(f"{ACTOR}.strategy") == "megatron")

    @property
    def megatron_gpus(self) -> int:
        """The number of GPUs that hold one model of Megatron."""
        sizes = (f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
        return math.prod(self.number(key, 1) for key in sizes)

    @property
    def actor_sequence_key(self) -> str:
        """The key with the number of GPUs that share a sequence of the actor."""
        # workers/config/actor.py:FSDPActorConfig.__post_init__ prefers the old name; before 0.8 it is the only one.
        old, new = f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"
        return old if self.release < (0, 8) or self.number(old, 1) > 1 else new

    @property
    def actor_sequence(self) -> int:
        """The number of GPUs that share a sequence of the actor."""
        return max(self.number(self.actor_sequence_key, 1), 1)

    @property
    def critic_sequence_key(self) -> str:
        return f"critic{'.fsdp' if self.release >= (0, 8) else ''}.ulysses_sequence_parallel_size"


def is_disabled(section: Mapping[str, Any]) -> bool:
    return section.get("enable") is False or section.get("enabled") is False


def indivisible(number: int, parts: int) -> bool:
    """Whether a number cannot be divided into equal parts; False if one of them is unknown."""
    return number > 0 and parts > 0 and number % parts != 0


def multiple_of(ranks: int) -> str:
    return f"set it to a multiple of {ranks}"


def sequence_parallel(job: JobConfig, key: str, remove_padding: str) -> Found:
    sequence = job.number(key, 1)
    # workers/engine/fsdp/transformer_impl.py:_init_device_mesh: a mesh of (dp, sp)
    if indivisible(job.gpus, sequence):
        yield about(key, f"is {sequence}, which does not divide the job's {job.gpus} GPUs", "set it to a divisor")
    # workers/config/actor.py:FSDPActorConfig.validate, workers/engine/fsdp/transformer_impl.py:FSDPEngine.__init__
    if sequence > 1 and job.get(remove_padding) is False:
        yield about(remove_padding, f"is false, but {key} is {sequence}", f"set {remove_padding}=True")
