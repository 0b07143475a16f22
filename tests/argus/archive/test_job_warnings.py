"""Warnings from what metrics, log and checkpoints of an attempt show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from argus.archive import metrics
from argus.archive.job_warnings import all_warnings
from argus.archive.warning_inputs import ExceptionCount, LogSummary, MetricsSummary, Settings, WarningInputs
from argus.io.output import MAX_REASON_CHARS

GRPO = Settings.of(
    [
        *("data.train_batch_size=8", "actor_rollout_ref.rollout.n=4", "data.max_prompt_length=64"),
        *("data.max_response_length=32", "trainer.save_freq=2", "trainer.test_freq=-1"),
    ]
)
NAN = float("nan")


def summary_of(*steps: Mapping[str, Any], first: int = 1) -> MetricsSummary:
    summary = MetricsSummary()
    for number, data in enumerate(steps, first):
        step = metrics.parse_step(json.dumps({"step": number, "data": data}).encode() + b"\n")
        assert step
        summary.add(step)
    return summary


def kinds(settings: Settings, summary: MetricsSummary, over: bool = True, **more: Any) -> list[str]:
    return [warning.kind for warning in all_warnings(WarningInputs(settings, summary, has_succeeded=over, **more))]


def text(settings: Settings, summary: MetricsSummary, **logged: Any) -> str:
    (warning,) = all_warnings(WarningInputs(settings, summary, LogSummary(**logged), (), True))
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
    assert kinds(GRPO, summary_of(*steps), saved_steps=(4, 6)) == kinds(GRPO, MetricsSummary()) == []


def test_rewards_that_raise() -> None:
    raised = ExceptionCount(11, "ValueError: no\n  answer (/private/user/code/r.py, line 7)")
    steps = summary_of(*[{"actor/lr": 1.0}] * 10)
    # More than there are: those of a validation are among them.
    assert "11 samples" in text(Settings(samples_per_step=1), steps, rollout_exceptions=raised)
    (warning,) = all_warnings(WarningInputs(Settings(samples_per_step=32), steps, LogSummary(reward_exceptions=raised)))
    assert (warning.kind, warning.count, warning.of) == ("reward_raises", 11, 320)
    assert "ValueError: no answer (/private/user/code/r.py, line 7)" in warning.text
    assert len(text(Settings(), steps, reward_exceptions=ExceptionCount(1, "x" * 1000))) == MAX_REASON_CHARS


ALWAYS = {"critic/score/mean": 0.5, "critic/score/min": 0.5, "critic/score/max": 0.5}
LR, LOSS = {"train/lr": 1.0}, {"train/loss": 5.5}
FLAT, STEEP = {"train/grad_norm": 0.0}, {"train/grad_norm": 1.0}
CUT, LONG = ({"response_length/max": 32.0, "response_length/clip_ratio": ratio} for ratio in (0.5, 0.49))
BELOW = {"response_length/max": 31.0, "response_length/clip_ratio": 1.0}


@pytest.mark.parametrize(
    ("kind", "settings", "steps", "over", "is_warned"),
    [
        *(
            ("reward_constant", {}, [ALWAYS] * steps, over, is_warned)
            for steps, over, is_warned in ((4, False, False), (5, False, True), (1, True, False), (2, True, True))
        ),
        *(
            ("reward_constant", {}, [ALWAYS, ALWAYS | change], True, False)
            for change in ({"critic/score/max": 0.6}, {"critic/score/min": 0.4})
        ),
        *(("gradient_zero", {}, [FLAT] * zeros + [STEEP] * (6 - zeros), True, zeros > 2) for zeros in (2, 3, 6)),
        *(("loss_constant", {}, [LOSS, *more], True, False) for more in ([], [{"train/loss": 5.4}])),
        ("loss_constant", {}, [LOSS] * 3, True, True),
        ("loss_constant", {}, [{"train/lr": 0.0}] * 2, True, True),
        ("loss_constant", {}, [{"train/lr": 0.0}, {"train/lr": 1e-9}], True, False),
        ("responses_cut", {"max_response_length": 32}, [CUT] * 2, True, True),
        ("responses_cut", {"max_response_length": 32}, [LONG] * 2, True, False),
        ("responses_cut", {"max_response_length": 32}, [BELOW] * 2, True, False),
        ("responses_cut", {}, [CUT] * 2, True, False),
        ("no_validation", {"test_freq": 4}, [LR] * 4, True, True),
        ("no_validation", {"test_freq": 4}, [LR] * 4, False, False),
        ("no_validation", {"test_freq": 4}, [LR] * 5, False, True),
        ("no_validation", {"test_freq": 4}, [{"val-core/gsm8k/acc": 0.1}, *[LR] * 4], True, False),
        ("no_validation", {"test_freq": -1}, [LR] * 9, True, False),
        ("no_validation", {"val_before_train": True}, [LR], False, True),
    ],
)
def test_what_the_metrics_show(
    kind: str, settings: dict[str, Any], steps: list[dict[str, float]], over: bool, is_warned: bool
) -> None:
    assert kinds(Settings(**settings), summary_of(*steps), over) == [kind] * is_warned


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
    summary = summary_of({metric: 1.0}, {metric: value}, {metric: 2.0})
    assert kinds(Settings(), summary) == [kind]
    assert "in 1 of 3 steps" in text(Settings(), summary)


@pytest.mark.parametrize("value", [NAN, None])
def test_validation_loss_that_is_not_a_number(value: float | None) -> None:
    """verl logs it if there are fewer rows than one batch has."""
    summary = summary_of({"train/loss": 1.0}, {"val/loss": value}, {"train/loss": 2.0}, {"val/loss": 2.0})
    assert kinds(Settings(), summary) == ["loss_nan"]
    assert "in 1 of 2 validations (val/loss)" in text(Settings(), summary)


def test_prompts_that_were_cut_or_dropped() -> None:
    steps = summary_of(*[{"prompt_length/min": 64.0, "prompt_length/max": 64.0}] * 10)
    cut = {"cut_prompt_count": 320, "longest_cut_prompt_tokens": 70}
    assert "320 of 320" in text(Settings(max_prompt_length=64, samples_per_step=32), steps, **cut)
    assert [kinds(Settings(max_prompt_length=limit), steps) for limit in (64, 65)] == [["prompts_cut"], []]
    assert "28 of 144" in text(Settings(), MetricsSummary(), dropped_row_count=28, row_count=144)


@pytest.mark.parametrize(
    ("first", "last", "saved", "over", "is_warned"),
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
def test_checkpoints_that_were_due(first: int, last: int, saved: tuple[int, ...], over: bool, is_warned: bool) -> None:
    steps = summary_of(*[LR] * (last - first + 1), first=first)
    assert kinds(Settings(save_freq=2), steps, over, saved_steps=saved) == ["no_checkpoint"] * is_warned
    assert kinds(Settings(save_freq=-1), steps, over, saved_steps=saved) == []


@pytest.mark.parametrize(
    ("freq", "kept", "saved", "free", "over", "is_warned"),
    [
        (2, None, (2,), 9, False, True),
        (2, None, (2,), 10, False, False),
        (2, None, (2,), 9, True, False),
        (-1, None, (2,), 9, False, False),
        (2, 2, (2,), 9, False, True),
        # verl removes the oldest one first.
        (2, 2, (2, 4), 9, False, False),
    ],
)
def test_room_for_the_next_checkpoint(
    freq: int, kept: int | None, saved: tuple[int, ...], free: int, over: bool, is_warned: bool
) -> None:
    settings = Settings(save_freq=freq, max_checkpoints=kept)
    space = {"saved_steps": saved, "checkpoint_bytes": 10, "free_bytes": free}
    assert kinds(settings, summary_of(LR), over, **space) == ["no_space"] * is_warned
