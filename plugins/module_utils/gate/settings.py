# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verl would refuse in a composed configuration only after minutes, or would take and not do.

All of it is pure, and needs no other file of the collection. Each rule was read in verl 0.9.1 and names the file and
the function, below verl/; `since` is the first release that has it too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "???"
ACTOR, ROLLOUT, REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"


class Values:
    """A configuration by dotted keys; what is not in it, or not given, is None."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config

    def __call__(self, key: str) -> Any:
        node: Any = self.config
        for part in key.split("."):
            if not isinstance(node, Mapping):
                return None
            node = node.get(part)
        return None if node == MISSING else node

    def number(self, key: str, default: int = 0) -> int:
        """A whole number; the default where there is none, so that a rule does not speak of it."""
        value = self(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default


@dataclass(frozen=True)
class Job:
    """What the rules ask of."""

    get: Values
    workload: str
    nnodes: int
    gpus_per_node: int
    release: tuple[int, ...]
    environment: Mapping[str, str]

    @property
    def gpus(self) -> int:
        return self.nnodes * self.gpus_per_node

    @property
    def megatron(self) -> bool:
        return bool(self.get(f"{ACTOR}.strategy") == "megatron")

    @property
    def model_of_megatron(self) -> int:
        """The GPUs that hold one model."""
        sizes = (f"{ACTOR}.megatron.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))
        return math.prod(self.get.number(key, 1) for key in sizes)

    @property
    def sequence(self) -> tuple[str, int]:
        """The GPUs that share a sequence of the actor, and the key that says so."""
        # workers/config/actor.py:FSDPActorConfig.__post_init__ lets the old name win; before 0.8 it is the only one.
        old, new = f"{ACTOR}.ulysses_sequence_parallel_size", f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"
        if self.release < (0, 8) or self.get.number(old, 1) > 1:
            return old, max(self.get.number(old, 1), 1)
        return new, max(self.get.number(new, 1), 1)

    @property
    def sequence_of_critic(self) -> str:
        return f"critic{'.fsdp' if self.release >= (0, 8) else ''}.ulysses_sequence_parallel_size"


@dataclass(frozen=True)
class Problem:
    where: str
    what: str
    todo: str
    severity: str = "error"


Found = Iterator[Problem]


def not_whole(number: int, parts: int) -> bool:
    """Whether a number cannot be divided; of what is not known, nothing is said."""
    return number > 0 and parts > 0 and number % parts != 0


def by(ranks: int) -> str:
    return f"give a multiple of {ranks}"


def sequence_parallel(job: Job, key: str, remove_padding: str) -> Found:
    sequence = job.get.number(key, 1)
    # workers/engine/fsdp/transformer_impl.py:_init_device_mesh: a mesh of (dp, sp)
    if not_whole(job.gpus, sequence):
        yield Problem(key, f"is {sequence}, which does not divide the job's {job.gpus} GPUs", "give a divisor")
    # workers/config/actor.py:FSDPActorConfig.validate, workers/engine/fsdp/transformer_impl.py:FSDPEngine.__init__
    if sequence > 1 and job.get(remove_padding) is False:
        yield Problem(remove_padding, f"is false, and {key} is {sequence}", f"set {remove_padding}=True")
