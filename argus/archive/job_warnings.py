# SPDX-License-Identifier: Apache-2.0
"""Warnings about a job that looks successful but is not. docs/warnings.md has a row for each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ..io.output import one_line
from .warning_inputs import GRADIENTS, LEARNING_RATES, LOSSES, MIN_STEPS_AT_END, REWARD, REWARD_RANGE, WarningInputs

# The maximum number of warnings in a status; there are fewer kinds.
MAX_WARNINGS = 50
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
    LOSS_CONSTANT = "loss_constant"  # also for a learning rate of 0
    NO_VALIDATION = "no_validation"
    NO_CHECKPOINT = "no_checkpoint"
    NO_SPACE = "no_space"
    MEMORY_GROWS = "memory_grows"  # this and the next: evidence/hardware.py
    GPUS_IDLE = "gpus_idle"
    TIME_LIMIT = "time_limit"  # jobs/describe.py


# The kinds that stay true in later attempts. The other kinds describe the metrics of one attempt.
JOB_WIDE_KINDS = (
    *(WarningKind.REWARD_RAISES, WarningKind.ROLLOUT_RAISES, WarningKind.REWARD_NAN, WarningKind.GRADIENT_NAN),
    *(WarningKind.LOSS_NAN, WarningKind.PROMPTS_CUT, WarningKind.PROMPTS_DROPPED),
)
# Losses that must change. The actor's loss may be 0 in every step, because advantages add up to 0.
CHANGING_LOSSES = ("train/loss", "critic/vf_loss")


@dataclass(frozen=True)
class JobWarning:
    """One warning, as ``status.json`` has it."""

    # A WarningKind, or a kind that only another version of this collection has.
    kind: str
    text: str = ""
    # How many samples, prompts, rows or steps are affected, of how many in all; 0 if the number is unknown.
    count: int = 0
    of: int = 0


def all_warnings(inputs: WarningInputs) -> tuple[JobWarning, ...]:
    """The warnings from the log, the metrics and the checkpoints of a job, the most serious first."""
    checks = (
        *(exception_warnings, reward_warnings, gradient_warnings, loss_warnings, prompt_warnings, response_warnings),
        *(validation_warnings, checkpoint_warnings, disk_space_warnings),
    )
    return tuple(warning for check in checks for warning in check(inputs))


def make_warning(kind: WarningKind, text: str, count: int = 0, total: int = 0) -> JobWarning:
    return JobWarning(kind, one_line(text), count, total)


def count_text(count: int, total: int, unit: str) -> str:
    """``11 of 320 samples``, or ``11 samples`` if it is not known how many there are."""
    return f"{count} of {total} {unit}" if total >= count > 0 else f"{count} {unit}"


def exception_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    total, log = inputs.sample_count, inputs.log
    for kind, part, raised in (
        (WarningKind.REWARD_RAISES, "reward function", log.reward_exceptions),
        (WarningKind.ROLLOUT_RAISES, "rollout", log.rollout_exceptions),
    ):
        if raised.count:
            cause = raised.cause or "the log has no traceback"
            text = f"the {part} raised for {count_text(raised.count, total, 'samples')}, which were left out: {cause}"
            yield make_warning(kind, text, raised.count, total)


def reward_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    metrics = inputs.metrics
    mean, low, high = metrics.values_of(REWARD), *map(metrics.values_of, REWARD_RANGE)
    if mean.nonfinite_count:
        count = count_text(mean.nonfinite_count, mean.count, "steps")
        text = f"the reward was not a number in {count} ({REWARD})"
        yield make_warning(WarningKind.REWARD_NAN, text, mean.nonfinite_count, mean.count)
    elif inputs.has_enough_steps and low.count and low.min == high.max:
        steps = metrics.step_count
        text = f"the reward was {high.max:g} for every sample of all {steps} steps: there is nothing to learn"
        yield make_warning(WarningKind.REWARD_CONSTANT, text, steps, steps)


def gradient_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    for name in GRADIENTS:
        values = inputs.metrics.values_of(name)
        if values.nonfinite_count:
            count = count_text(values.nonfinite_count, values.count, "steps")
            text = f"the gradient was not finite in {count} ({name})"
            yield make_warning(WarningKind.GRADIENT_NAN, text, values.nonfinite_count, values.count)
        if inputs.has_enough_steps and values.zero_count and values.zero_count >= MIN_SHARE * values.count:
            text = f"the gradient was 0 in {count_text(values.zero_count, values.count, 'steps')} ({name})"
            yield make_warning(WarningKind.GRADIENT_ZERO, text, values.zero_count, values.count)


def loss_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    for name in LOSSES:
        values = inputs.metrics.values_of(name)
        is_stuck = name in CHANGING_LOSSES and values.is_constant
        if values.nonfinite_count:
            unit = "validations" if name.startswith("val") else "steps"
            text = f"the loss was not a number in {count_text(values.nonfinite_count, values.count, unit)} ({name})"
            yield make_warning(WarningKind.LOSS_NAN, text, values.nonfinite_count, values.count)
        elif inputs.has_enough_steps and values.count >= MIN_STEPS_AT_END and is_stuck:
            text = f"the loss was {values.max:g} in all {values.count} steps ({name})"
            yield make_warning(WarningKind.LOSS_CONSTANT, text, values.count, values.count)
    for name in LEARNING_RATES:
        values = inputs.metrics.values_of(name)
        if inputs.has_enough_steps and values.count >= MIN_STEPS_AT_END and values.zero_count == values.count:
            text = f"the learning rate was 0 in all {values.count} steps ({name})"
            yield make_warning(WarningKind.LOSS_CONSTANT, text, values.count, values.count)


def prompt_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    log, metrics, limit = inputs.log, inputs.metrics, inputs.settings.max_prompt_length
    if log.cut_prompt_count:
        longest = f", the longest has {log.longest_cut_prompt_tokens}" if log.longest_cut_prompt_tokens else ""
        tokens = f"to {limit} tokens" if limit else "to data.max_prompt_length"
        count = count_text(log.cut_prompt_count, inputs.sample_count, "prompts")
        text = f"{count} were cut from the left {tokens}{longest}: raise data.max_prompt_length"
        yield make_warning(WarningKind.PROMPTS_CUT, text, log.cut_prompt_count, inputs.sample_count)
    elif inputs.has_enough_steps and limit and metrics.values_of("prompt_length/min").min == limit:
        text = f"every prompt has exactly data.max_prompt_length={limit} tokens: they were probably cut"
        yield make_warning(WarningKind.PROMPTS_CUT, text, inputs.sample_count, inputs.sample_count)
    if log.dropped_row_count:
        count = count_text(log.dropped_row_count, log.row_count, "rows of the datasets")
        text = f"{count} were dropped because their prompts are longer than data.max_prompt_length"
        yield make_warning(WarningKind.PROMPTS_DROPPED, text, log.dropped_row_count, log.row_count)


def response_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    limit, clipped = inputs.settings.max_response_length, inputs.metrics.values_of("response_length/clip_ratio")
    # verl's ratio is that of responses as long as the longest of their step.
    if not limit or inputs.metrics.values_of("response_length/max").max < limit or not inputs.has_enough_steps:
        return
    ratio = clipped.sum / max(1, clipped.count)
    if ratio >= MIN_SHARE:
        text = f"{ratio:.0%} of the responses were cut at data.max_response_length={limit} tokens"
        yield make_warning(WarningKind.RESPONSES_CUT, text, round(ratio * inputs.sample_count), inputs.sample_count)


def validation_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    settings, due = inputs.settings, inputs.last_due_step(inputs.settings.test_freq)
    if inputs.metrics.has_validation or not inputs.metrics.step_count:
        return
    if due:
        last = inputs.metrics.last_step
        text = f"there was no validation until step {last}, although trainer.test_freq={settings.test_freq}"
        yield make_warning(WarningKind.NO_VALIDATION, text)
    elif settings.val_before_train:
        yield make_warning(WarningKind.NO_VALIDATION, "there was no validation, although trainer.val_before_train=True")


def checkpoint_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    due, newest = inputs.last_due_step(inputs.settings.save_freq), max(inputs.saved_steps, default=0)
    if newest < due:
        has = f"the newest is that of step {newest}" if newest else "there is none"
        text = f"no checkpoint of step {due}, although trainer.save_freq={inputs.settings.save_freq}: {has}"
        yield make_warning(WarningKind.NO_CHECKPOINT, text)


def disk_space_warnings(inputs: WarningInputs) -> Iterator[JobWarning]:
    """Warns of a disk that is almost full, because a failed save ends the attempt."""
    settings, needed, free = inputs.settings, inputs.checkpoint_bytes, inputs.free_bytes
    # checkpoint_manager.py: verl removes the oldest one before it saves, unless it is the only one.
    makes_room = settings.max_checkpoints is not None and len(inputs.saved_steps) >= settings.max_checkpoints > 1
    if not inputs.has_succeeded and (settings.save_freq or 0) > 0 and not makes_room and free < needed:
        sizes = f"{needed / 2**30:.3g} GiB, as the last one, and {free / 2**30:.3g} GiB are free"
        text = f"the next checkpoint needs about {sizes}"
        yield make_warning(WarningKind.NO_SPACE, text)
