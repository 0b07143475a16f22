# SPDX-License-Identifier: Apache-2.0
"""The facts about an attempt from which its warnings follow: the job's settings, its metrics, its log and its disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..io.hydra import override_key, override_text
from .checkpoints import KEEP_SETTINGS
from .metrics import Step

# The number of steps after which a value counts as constant: while the job runs, and at its end.
MIN_STEPS, MIN_STEPS_AT_END = 5, 2
REWARD = "critic/score/mean"
REWARD_RANGE = ("critic/score/min", "critic/score/max")
GRADIENTS = ("actor/grad_norm", "critic/grad_norm", "train/grad_norm")
LOSSES = ("train/loss", "actor/loss", "actor/pg_loss", "critic/vf_loss", "val/loss")
LEARNING_RATES = ("train/lr", "actor/lr", "critic/lr")
LENGTHS = ("prompt_length/min", "prompt_length/max", "response_length/max", "response_length/clip_ratio")
WATCHED_METRICS = frozenset((REWARD, *REWARD_RANGE, *GRADIENTS, *LOSSES, *LEARNING_RATES, *LENGTHS))


@dataclass(frozen=True)
class Settings:
    """Settings in a job's overrides; None if it does not set them, or if verl or an interpolation decides."""

    save_freq: int | None = None
    test_freq: int | None = None
    val_before_train: bool = False
    max_prompt_length: int | None = None
    max_response_length: int | None = None
    # The number of responses in a step of reinforcement learning.
    samples_per_step: int | None = None
    # How many checkpoints to keep; None for all.
    max_checkpoints: int | None = None

    @classmethod
    def of(cls, overrides: Iterable[str]) -> Settings:
        values = {override_key(override): override_text(override) for override in overrides}
        batch, group = integer(values, "data.train_batch_size"), integer(values, "actor_rollout_ref.rollout.n")
        return cls(
            save_freq=integer(values, "trainer.save_freq"),
            max_checkpoints=min(filter(None, (integer(values, key) for key in KEEP_SETTINGS.values())), default=None),
            test_freq=integer(values, "trainer.test_freq"),
            val_before_train=values.get("trainer.val_before_train", "").lower() == "true",
            max_prompt_length=integer(values, "data.max_prompt_length"),
            max_response_length=integer(values, "data.max_response_length"),
            samples_per_step=batch * group if batch and group else None,
        )


def integer(values: Mapping[str, str], key: str) -> int | None:
    try:
        return int(values[key])
    except (KeyError, ValueError):
        return None


class MetricValues:
    """What the values of one metric over the steps of an attempt amount to."""

    def __init__(self) -> None:
        self.count = 0
        # Values that are infinite or not a number. The attributes below leave them out.
        self.nonfinite_count = 0
        self.zero_count = 0
        self.min, self.max, self.sum = math.inf, -math.inf, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        if not math.isfinite(value):
            self.nonfinite_count += 1
            return
        self.zero_count += value == 0
        self.min, self.max = min(self.min, value), max(self.max, value)
        self.sum += value

    @property
    def is_constant(self) -> bool:
        return self.min == self.max and not self.nonfinite_count


class MetricsSummary:
    def __init__(self) -> None:
        self.step_count = 0
        self.first_step = self.last_step = 0
        self.has_validation = False
        self.values: dict[str, MetricValues] = {}

    def add(self, step: Step) -> None:
        # The trainers write the validation of a step as a line of its own, and that before the first step as step 0.
        if any(name.startswith("val") for name in step.metrics):
            self.has_validation = True
        watched = WATCHED_METRICS.intersection(step.metrics)
        for name in watched:
            # The file logger writes null for what is not a number.
            value = math.nan if step.metrics[name] is None else step.value(name)
            if value is not None:
                self.values.setdefault(name, MetricValues()).add(value)
        if any(not name.startswith("val") for name in watched) and step.number > self.last_step:
            self.step_count += 1
            self.first_step = self.first_step or step.number
            self.last_step = step.number

    def values_of(self, name: str) -> MetricValues:
        return self.values.get(name) or MetricValues()


@dataclass(frozen=True)
class ExceptionCount:
    """The number of exceptions, and the first one with its line in the code; "" if the log does not show it."""

    count: int = 0
    cause: str = ""


@dataclass(frozen=True)
class LogSummary:
    """What the log of an attempt contains so far."""

    # Samples for which the reward function raised, and samples whose rollout raised.
    reward_exceptions: ExceptionCount = ExceptionCount()
    rollout_exceptions: ExceptionCount = ExceptionCount()
    cut_prompt_count: int = 0
    longest_cut_prompt_tokens: int = 0
    # How many rows of the datasets verl dropped because their prompts are too long, and from how many.
    dropped_row_count: int = 0
    row_count: int = 0


@dataclass(frozen=True)
class WarningInputs:
    """All that the warnings about an attempt are derived from."""

    settings: Settings
    metrics: MetricsSummary
    log: LogSummary = LogSummary()
    saved_steps: Sequence[int] = ()
    # Whether the attempt has ended without an error.
    has_succeeded: bool = False
    # The size of the last checkpoint, and what is free on the shared root.
    checkpoint_bytes: int = 0
    free_bytes: int = 0

    @property
    def has_enough_steps(self) -> bool:
        """Whether there are enough steps to tell that something never changes."""
        return self.metrics.step_count >= (MIN_STEPS_AT_END if self.has_succeeded else MIN_STEPS)

    @property
    def sample_count(self) -> int:
        """The number of responses in the steps so far; 0 if unknown."""
        return (self.settings.samples_per_step or 0) * self.metrics.step_count

    def last_due_step(self, freq: int | None) -> int:
        """The last step of this attempt at which something is due that verl does every `freq` steps; 0 without one."""
        # Metrics may be written before or after the checkpoint or validation of the same step.
        last = self.metrics.last_step if self.has_succeeded else self.metrics.last_step - 1
        step = last - last % freq if freq and freq > 0 and last > 0 else 0
        return step if step >= self.metrics.first_step else 0
