"""Warnings from what metrics, log and checkpoints of an attempt show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from argus.archive import metrics
from argus.archive.job_warnings import (
    ExceptionCount,
    LogSummary,
    MetricsSummary,
    Settings,
    WarningInputs,
    find,
)
from argus.io.output import MAX_LENGTH

GRPO = Settings.of(
    [
        "data.train_batch_size=8",
        "actor_rollout_ref.rollout.n=4",
        "data.max_prompt_length=64",
        "data.max_response_length=32",
        "trainer.save_freq=2",
        "trainer.test_freq=-1",
    ]
)
NAN = float("nan")


def seen(*steps: Mapping[str, Any], first: int = 1) -> MetricsSummary:
    found = MetricsSummary()
    for number, data in enumerate(steps, first):
        step = metrics.step_of(json.dumps({"step": number, "data": data}).encode() + b"\n")
        assert step
        found.add(step)
    return found


def kinds(
    settings: Settings, found: MetricsSummary, over: bool = True, saved: Sequence[int] = (), **logged: Any
) -> list[str]:
    return [warning.kind for warning in find(WarningInputs(settings, found, LogSummary(**logged), saved, over))]


def text(settings: Settings, found: MetricsSummary, **logged: Any) -> str:
    (warning,) = find(WarningInputs(settings, found, LogSummary(**logged), (), True))
    return warning.text


def test_a_healthy_job_has_no_warnings() -> None:
    steps = [
        {
            "critic/score/mean": 0.1 * step,
            "critic/score/min": 0.0,
            "critic/score/max": 0.5,
            "actor/grad_norm": 0.0 if step == 1 else 1.0,
            "actor/lr": 0.0 if step == 1 else 1e-3,
            "actor/loss": 0.0,
            "actor/pg_loss": 0.0,
            "prompt_length/min": 20.0,
            "prompt_length/max": 64.0,
            "response_length/max": 31.0,
            "response_length/clip_ratio": 1.0,
        }
        for step in range(1, 7)
    ]
    assert kinds(GRPO, seen(*steps), saved=(4, 6)) == []
    assert kinds(GRPO, MetricsSummary()) == []


def test_rewards_that_raise() -> None:
    raised = ExceptionCount(11, "ValueError: no\n  answer (/private/user/code/r.py, line 7)")
    steps = seen(*[{"actor/lr": 1.0}] * 10)
    # More than there are: those of a validation are among them.
    assert "11 samples" in text(Settings(samples_of_step=1), steps, rollout=raised)
    (warning,) = find(WarningInputs(Settings(samples_of_step=32), steps, LogSummary(reward=raised)))
    assert (warning.kind, warning.count, warning.of) == ("reward_raises", 11, 320)
    assert "ValueError: no answer (/private/user/code/r.py, line 7)" in warning.text
    (warning,) = find(WarningInputs(Settings(), steps, LogSummary(reward=ExceptionCount(1, "x" * 1000))))
    assert len(warning.text) == MAX_LENGTH and warning.text.endswith("x …")


@pytest.mark.parametrize(
    ("steps", "over", "found"), [(4, False, False), (5, False, True), (1, True, False), (2, True, True)]
)
def test_a_reward_that_never_changes(steps: int, over: bool, found: bool) -> None:
    always = {"critic/score/mean": 0.5, "critic/score/min": 0.5, "critic/score/max": 0.5}
    assert kinds(Settings(), seen(*[always] * steps), over) == ["reward_constant"] * found
    for change in ({"critic/score/max": 0.6}, {"critic/score/min": 0.4}):
        assert kinds(Settings(), seen(*[always] * steps, always | change), over) == []


@pytest.mark.parametrize(
    ("metric", "kind"),
    [
        ("critic/score/mean", "reward_nan"),
        ("actor/grad_norm", "gradient_nan"),
        ("train/grad_norm", "gradient_nan"),
        ("train/loss", "loss_nan"),
    ],
)
@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_what_is_not_a_number(metric: str, kind: str, value: float) -> None:
    found = seen({metric: 1.0}, {metric: value}, {metric: 2.0})
    assert kinds(Settings(), found) == [kind]
    assert "in 1 of 3 steps" in text(Settings(), found)


@pytest.mark.parametrize("value", [NAN, None])
def test_validation_loss_that_is_not_a_number(value: float | None) -> None:
    """As with fewer rows than one batch."""
    found = seen({"train/loss": 1.0}, {"val/loss": value}, {"train/loss": 2.0}, {"val/loss": 2.0})
    assert kinds(Settings(), found) == ["loss_nan"]
    assert "in 1 of 2 validations (val/loss)" in text(Settings(), found)


@pytest.mark.parametrize(("zeros", "found"), [(2, False), (3, True), (6, True)])
def test_gradients_of_zero(zeros: int, found: bool) -> None:
    values = [0.0] * zeros + [1.0] * (6 - zeros)
    steps = seen(*({"train/grad_norm": value} for value in values))
    assert kinds(Settings(), steps) == ["gradient_zero"] * found


def test_a_loss_that_never_moves() -> None:
    assert text(Settings(), seen(*[{"train/loss": 5.5}] * 3)) == "the loss was 5.5 in all 3 steps (train/loss)"
    assert kinds(Settings(), seen({"train/loss": 5.5}, {"train/loss": 5.4})) == []
    assert kinds(Settings(), seen({"train/loss": 5.5})) == []
    assert kinds(Settings(), seen({"train/lr": 0.0}, {"train/lr": 0.0})) == ["loss_constant"]
    assert kinds(Settings(), seen({"train/lr": 0.0}, {"train/lr": 1e-9})) == []


def test_prompts_that_were_cut_or_dropped() -> None:
    steps = seen(*[{"prompt_length/min": 64.0, "prompt_length/max": 64.0}] * 10)
    assert "320 of 320" in text(Settings(max_prompt_length=64, samples_of_step=32), steps, cut=320, longest=70)
    assert kinds(Settings(max_prompt_length=64), steps) == ["prompts_cut"]
    assert kinds(Settings(max_prompt_length=65), steps) == []
    assert "28 of 144" in text(Settings(), MetricsSummary(), dropped=28, rows=144)


@pytest.mark.parametrize(("longest", "ratio", "found"), [(32.0, 0.5, True), (32.0, 0.49, False), (31.0, 1.0, False)])
def test_responses_that_were_cut(longest: float, ratio: float, found: bool) -> None:
    step = {"response_length/max": longest, "response_length/clip_ratio": ratio}
    assert kinds(Settings(max_response_length=32), seen(step, step)) == ["responses_cut"] * found
    assert kinds(Settings(), seen(step, step)) == []


@pytest.mark.parametrize(
    ("settings", "last", "over", "found"),
    [
        (Settings(test_freq=4), 4, True, True),
        (Settings(test_freq=4), 4, False, False),
        (Settings(test_freq=4), 5, False, True),
        (Settings(test_freq=-1), 9, True, False),
        (Settings(val_before_train=True), 1, False, True),
    ],
)
def test_a_validation_that_never_ran(settings: Settings, last: int, over: bool, found: bool) -> None:
    steps: list[dict[str, float]] = [{"train/lr": 1.0}] * last
    assert kinds(settings, seen(*steps), over) == ["no_validation"] * found
    validated = seen({"val-core/gsm8k/acc": 0.1}, *steps, first=0)
    assert kinds(settings, validated, over) == []


@pytest.mark.parametrize(
    ("first", "last", "saved", "over", "found"),
    [
        (1, 4, (4,), True, False),
        (1, 4, (2,), True, True),
        (1, 4, (2,), False, False),
        (1, 5, (2,), False, True),
        (1, 2, (), True, True),
        # It resumed after the step that had one.
        (5, 5, (), True, False),
    ],
)
def test_checkpoints_that_were_due(first: int, last: int, saved: tuple[int, ...], over: bool, found: bool) -> None:
    steps = seen(*[{"train/lr": 1.0}] * (last - first + 1), first=first)
    assert kinds(Settings(save_freq=2), steps, over, saved) == ["no_checkpoint"] * found
    assert kinds(Settings(save_freq=-1), steps, over, saved) == []


@pytest.mark.parametrize(
    ("settings", "saved", "free", "over", "found"),
    [
        (Settings(save_freq=2), (2,), 9, False, True),
        (Settings(save_freq=2), (2,), 10, False, False),
        (Settings(save_freq=2), (2,), 9, True, False),
        (Settings(save_freq=-1), (2,), 9, False, False),
        (Settings(save_freq=2, kept=2), (2,), 9, False, True),
        # verl removes the oldest one first.
        (Settings(save_freq=2, kept=2), (2, 4), 9, False, False),
    ],
)
def test_room_for_the_next_checkpoint(
    settings: Settings, saved: tuple[int, ...], free: int, over: bool, found: bool
) -> None:
    given = WarningInputs(settings, seen({"train/lr": 1.0}), saved=saved, saved_bytes=10, free_bytes=free, over=over)
    assert [warning.kind for warning in find(given)] == ["no_space"] * found
