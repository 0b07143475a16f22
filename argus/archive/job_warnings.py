# SPDX-License-Identifier: Apache-2.0
"""Warnings about a job that looks successful but is not. docs/warnings.md has a row for each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..io.hydra import override_key, override_text
from ..io.output import one_line
from .checkpoints import KEEP_SETTINGS
from .metrics import Step

# The maximum number of warnings in a status; there are fewer kinds.
MAX_WARNINGS = 50
# The number of steps after which a value counts as constant: while the job runs, and at its end.
MIN_STEPS, MIN_STEPS_AT_END = 5, 2
# The share of responses at the length limit, or of steps with a zero gradient, that causes a warning.
MIN_SHARE = 0.5


class WarningKind(StrEnum):
    REWARD_RAISES = "reward_raises"
    ROLLOUT_RAISES = "rollout_raises"
    REWARD_CONSTANT = "reward_constant"
    REWARD_NAN = "reward_nan"
    PROMPTS_CUT = "prompts_cut"
    PROMPTS_DROPPED = "prompts_dropped"
    RESPONSES_CUT = "responses_cut"
    GRADIENT_NAN = "gradient_nan"
    GRADIENT_ZERO = "gradient_zero"
    LOSS_NAN = "loss_nan"
    LOSS_CONSTANT = "loss_constant"
    NO_VALIDATION = "no_validation"
    NO_CHECKPOINT = "no_checkpoint"
    NO_SPACE = "no_space"
    MEMORY_GROWS = "memory_grows"
    GPUS_IDLE = "gpus_idle"
    TIME_LIMIT = "time_limit"


# These kinds stay true in later attempts; the other kinds describe the metrics of one attempt.
JOB_WIDE_KINDS = (
    *(WarningKind.REWARD_RAISES, WarningKind.ROLLOUT_RAISES, WarningKind.REWARD_NAN, WarningKind.GRADIENT_NAN),
    *(WarningKind.LOSS_NAN, WarningKind.PROMPTS_CUT, WarningKind.PROMPTS_DROPPED),
)
SCORES = ("critic/score/min", "critic/score/max")
GRADIENTS = ("actor/grad_norm", "critic/grad_norm", "train/grad_norm")
LOSSES = ("train/loss", "actor/loss", "actor/pg_loss", "critic/vf_loss", "val/loss")
# Losses that must change. The actor's loss may be 0 in every step, because advantages add up to 0.
CHANGING_LOSSES = ("train/loss", "critic/vf_loss")
LEARNING_RATES = ("train/lr", "actor/lr", "critic/lr")
LENGTHS = (*("prompt_length/min", "prompt_length/max"), *("response_length/max", "response_length/clip_ratio"))
WATCHED_METRICS = frozenset(("critic/score/mean", *SCORES, *GRADIENTS, *LOSSES, *LEARNING_RATES, *LENGTHS))


@dataclass(frozen=True)
class JobWarning:
    """One warning, on one line.

    kind: a WarningKind, or one of another version of this collection.
    count: how many samples, prompts or steps are affected, of how many in all; 0 if that is not known.
    """

    kind: str
    text: str = ""
    count: int = 0
    of: int = 0


@dataclass(frozen=True)
class Settings:
    """The settings in a job's overrides; None if verl or an interpolation decides."""

    save_freq: int | None = None
    test_freq: int | None = None
    val_before_train: bool = False
    max_prompt_length: int | None = None
    max_response_length: int | None = None
    # The number of responses in a step of reinforcement learning.
    samples_of_step: int | None = None
    # The number of checkpoints to keep; None for all.
    kept: int | None = None

    @classmethod
    def of(cls, overrides: Iterable[str]) -> Settings:
        values = {override_key(override): override_text(override) for override in overrides}
        batch, group = integer(values, "data.train_batch_size"), integer(values, "actor_rollout_ref.rollout.n")
        return cls(
            save_freq=integer(values, "trainer.save_freq"),
            kept=min(filter(None, (integer(values, key) for key in KEEP_SETTINGS.values())), default=None),
            test_freq=integer(values, "trainer.test_freq"),
            val_before_train=values.get("trainer.val_before_train", "").lower() == "true",
            max_prompt_length=integer(values, "data.max_prompt_length"),
            max_response_length=integer(values, "data.max_response_length"),
            samples_of_step=batch * group if batch and group else None,
        )


def integer(values: Mapping[str, str], key: str) -> int | None:
    try:
        return int(values[key])
    except (KeyError, ValueError):
        return None


class MetricValues:
    """The values of one metric over the steps of an attempt."""

    def __init__(self) -> None:
        self.count = 0
        # Not a number, or infinite.
        self.bad = 0
        self.zeros = 0
        self.low, self.high, self.total = math.inf, -math.inf, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        if not math.isfinite(value):
            self.bad += 1
            return
        self.zeros += value == 0
        self.low, self.high = min(self.low, value), max(self.high, value)
        self.total += value

    @property
    def never_moves(self) -> bool:
        return self.low == self.high and not self.bad


class MetricsSummary:
    def __init__(self) -> None:
        self.steps = 0
        self.first = self.last = 0
        self.validated = False
        self.values: dict[str, MetricValues] = {}

    def add(self, step: Step) -> None:
        # The trainers write the validation of a step as a line of its own, and that before the first step as step 0.
        if any(name.startswith("val") for name in step.metrics):
            self.validated = True
        watched = WATCHED_METRICS.intersection(step.metrics)
        for name in watched:
            # The file logger writes null for what is not a number.
            value = math.nan if step.metrics[name] is None else step.value(name)
            if value is not None:
                self.values.setdefault(name, MetricValues()).add(value)
        if any(not name.startswith("val") for name in watched) and step.step > self.last:
            self.steps += 1
            self.first = self.first or step.step
            self.last = step.step

    def of(self, name: str) -> MetricValues:
        return self.values.get(name) or MetricValues()


@dataclass(frozen=True)
class ExceptionCount:
    """The number of exceptions, and the first one with its line in the code."""

    count: int = 0
    cause: str = ""


@dataclass(frozen=True)
class LogSummary:
    """The findings in the log of an attempt so far.

    cut: how many prompts were cut, and the length of the longest. dropped: how many rows of the datasets were dropped
    because they are too long, of how many.
    """

    reward: ExceptionCount = ExceptionCount()
    rollout: ExceptionCount = ExceptionCount()
    cut: int = 0
    longest: int = 0
    dropped: int = 0
    rows: int = 0


@dataclass(frozen=True)
class WarningInputs:
    """The data from which warnings are derived.

    saved: the steps that have a checkpoint. over: whether the attempt has ended without an error.
    saved_bytes: the size of the last checkpoint. free_bytes: what is free on the shared root.
    """

    settings: Settings
    metrics: MetricsSummary
    logged: LogSummary = LogSummary()
    saved: Sequence[int] = ()
    over: bool = False
    saved_bytes: int = 0
    free_bytes: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether there are enough steps to tell that something never changes."""
        return self.metrics.steps >= (MIN_STEPS_AT_END if self.over else MIN_STEPS)

    @property
    def samples(self) -> int:
        """The number of responses in the steps so far; 0 if unknown."""
        return (self.settings.samples_of_step or 0) * self.metrics.steps

    def due(self, freq: int | None) -> int:
        """The last step of this attempt for which something is due every `freq` steps; 0 without one."""
        # Metrics may be written before or after the checkpoint or validation of the same step.
        last = self.metrics.last if self.over else self.metrics.last - 1
        step = last - last % freq if freq and freq > 0 and last > 0 else 0
        return step if step >= self.metrics.first else 0


def all_warnings(inputs: WarningInputs) -> tuple[JobWarning, ...]:
    """The warnings about a job, the most serious first."""
    checks = (
        *(exception_warnings, reward_warnings, gradient_warnings, loss_warnings, prompt_warnings, response_warnings),
        *(validation_warnings, checkpoint_warnings, disk_space_warnings),
    )
    return tuple(warning for check in checks for warning in check(inputs))


def warning(kind: WarningKind, text: str, count: int = 0, of: int = 0) -> JobWarning:
    return JobWarning(kind, one_line(text), count, of)


def count_text(count: int, of: int, unit: str) -> str:
    """``11 of 320 samples``, or ``11 samples`` if it is not known how many there are."""
    return f"{count} of {of} {unit}" if of >= count > 0 else f"{count} {unit}"


def exception_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    of, logged = inputs.samples, inputs.logged
    for kind, part, exceptions in (
        (WarningKind.REWARD_RAISES, "reward function", logged.reward),
        (WarningKind.ROLLOUT_RAISES, "rollout", logged.rollout),
    ):
        if exceptions.count:
            cause = exceptions.cause or "the log has no traceback"
            text = f"the {part} raised for {count_text(exceptions.count, of, 'samples')}, which were left out: {cause}"
            yield warning(kind, text, exceptions.count, of)


def reward_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    metrics = inputs.metrics
    mean, low, high = metrics.of("critic/score/mean"), *map(metrics.of, SCORES)
    if mean.bad:
        text = f"the reward was not a number in {count_text(mean.bad, mean.count, 'steps')} (critic/score/mean)"
        yield warning(WarningKind.REWARD_NAN, text, mean.bad, mean.count)
    elif inputs.is_enough and low.count and low.low == high.high:
        text = f"the reward was {high.high:g} for every sample of all {metrics.steps} steps: there is nothing to learn"
        yield warning(WarningKind.REWARD_CONSTANT, text, metrics.steps, metrics.steps)


def gradient_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    for name in GRADIENTS:
        values = inputs.metrics.of(name)
        if values.bad:
            text = f"the gradient was not finite in {count_text(values.bad, values.count, 'steps')} ({name})"
            yield warning(WarningKind.GRADIENT_NAN, text, values.bad, values.count)
        if inputs.is_enough and values.zeros and values.zeros >= MIN_SHARE * values.count:
            text = f"the gradient was 0 in {count_text(values.zeros, values.count, 'steps')} ({name})"
            yield warning(WarningKind.GRADIENT_ZERO, text, values.zeros, values.count)


def loss_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    for name in LOSSES:
        values = inputs.metrics.of(name)
        if values.bad:
            unit = "validations" if name.startswith("val") else "steps"
            text = f"the loss was not a number in {count_text(values.bad, values.count, unit)} ({name})"
            yield warning(WarningKind.LOSS_NAN, text, values.bad, values.count)
        elif name in CHANGING_LOSSES and inputs.is_enough and values.count >= MIN_STEPS_AT_END and values.never_moves:
            text = f"the loss was {values.high:g} in all {values.count} steps ({name})"
            yield warning(WarningKind.LOSS_CONSTANT, text, values.count, values.count)
    for name in LEARNING_RATES:
        values = inputs.metrics.of(name)
        if inputs.is_enough and values.count >= MIN_STEPS_AT_END and values.zeros == values.count:
            text = f"the learning rate was 0 in all {values.count} steps ({name})"
            yield warning(WarningKind.LOSS_CONSTANT, text, values.count, values.count)


def prompt_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    logged, seen, limit = inputs.logged, inputs.metrics, inputs.settings.max_prompt_length
    if logged.cut:
        longest = f", the longest has {logged.longest}" if logged.longest else ""
        tokens = f"to {limit} tokens" if limit else "to data.max_prompt_length"
        count = count_text(logged.cut, inputs.samples, "prompts")
        text = f"{count} were cut from the left {tokens}{longest}: raise data.max_prompt_length"
        yield warning(WarningKind.PROMPTS_CUT, text, logged.cut, inputs.samples)
    elif inputs.is_enough and limit and seen.of("prompt_length/min").low == limit:
        text = f"every prompt has exactly data.max_prompt_length={limit} tokens: they were probably cut"
        yield warning(WarningKind.PROMPTS_CUT, text, inputs.samples, inputs.samples)
    if logged.dropped:
        count = count_text(logged.dropped, logged.rows, "rows of the datasets")
        text = f"{count} were dropped because their prompts are longer than data.max_prompt_length"
        yield warning(WarningKind.PROMPTS_DROPPED, text, logged.dropped, logged.rows)


def response_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    limit, clipped = inputs.settings.max_response_length, inputs.metrics.of("response_length/clip_ratio")
    # verl's ratio is that of responses as long as the longest of their step.
    if not limit or inputs.metrics.of("response_length/max").high < limit or not inputs.is_enough:
        return
    ratio = clipped.total / max(1, clipped.count)
    if ratio >= MIN_SHARE:
        text = f"{ratio:.0%} of the responses were cut at data.max_response_length={limit} tokens"
        yield warning(WarningKind.RESPONSES_CUT, text, round(ratio * inputs.samples), inputs.samples)


def validation_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    settings, due = inputs.settings, inputs.due(inputs.settings.test_freq)
    if inputs.metrics.validated or not inputs.metrics.steps:
        return
    if due:
        last = inputs.metrics.last
        text = f"there was no validation until step {last}, although trainer.test_freq={settings.test_freq}"
        yield warning(WarningKind.NO_VALIDATION, text)
    elif settings.val_before_train:
        yield warning(WarningKind.NO_VALIDATION, "there was no validation, although trainer.val_before_train=True")


def checkpoint_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    due, newest = inputs.due(inputs.settings.save_freq), max(inputs.saved, default=0)
    if newest < due:
        has = f"the newest is that of step {newest}" if newest else "there is none"
        text = f"no checkpoint of step {due}, although trainer.save_freq={inputs.settings.save_freq}: {has}"
        yield warning(WarningKind.NO_CHECKPOINT, text)


def disk_space_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    """Warns of a disk that is almost full, because a failed save ends the attempt."""
    settings, needed, free = inputs.settings, inputs.saved_bytes, inputs.free_bytes
    # checkpoint_manager.py: verl removes the oldest one before it saves, unless it is the only one.
    makes_room = settings.kept is not None and len(inputs.saved) >= settings.kept > 1
    if not inputs.over and (settings.save_freq or 0) > 0 and not makes_room and free < needed:
        sizes = f"{needed / 2**30:.3g} GiB, as the last one, and {free / 2**30:.3g} GiB are free"
        text = f"the next checkpoint needs about {sizes}"
        yield warning(WarningKind.NO_SPACE, text)
