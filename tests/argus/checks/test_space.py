from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checked_job import checked, facts, found

# The tiny model's 24 parameters: 4 bytes each for the model and for each of Adam's two moments.
CHECKPOINT = 24 * 12


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def free(size: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=size, f_frsize=1))

    return free


def test_too_little_space(root: Path, free: Callable[[int], None]) -> None:
    free(2 * CHECKPOINT - 1)
    (finding,) = checked(root)
    assert (finding.key, finding.severity) == ("shared_root", "error")
    assert "actor: 2 of 2 at a time, 288 bytes each" in finding.what
    assert [each[2] for each in found(root, accept=["space"])] == ["warning"]
    # What other strategies write has not been measured.
    assert [each[2] for each in found(root, settings={"actor_rollout_ref.actor.strategy": "veomni"})] == ["warning"]


def test_actor_and_critic(root: Path, free: Callable[[int], None]) -> None:
    free(0)
    settings = {"trainer.save_freq": 4, "trainer.max_actor_ckpt_to_keep": 3, "trainer.max_critic_ckpt_to_keep": 1}
    finding = checked(root, workload="ppo", settings=settings)[-1]
    for part, count in (("actor", 3), ("critic", 2)):
        assert f"{part}: {count} of 4 at a time" in finding.what
        assert f"trainer.max_{part}_ckpt_to_keep" in finding.todo


@pytest.mark.parametrize(
    ("workload", "settings", "steps", "kept"),
    [
        ("grpo", {}, 16, 2),
        ("grpo", {"trainer.save_freq": 8}, 16, 2),
        ("grpo", {"trainer.save_freq": -1}, 16, 0),
        ("grpo", {"trainer.total_training_steps": 4}, 4, 1),
        ("grpo", {"trainer.total_epochs": 3}, 48, 5),
        ("grpo", {"trainer.total_epochs": 3, "trainer.max_actor_ckpt_to_keep": 3}, 48, 3),
        ("grpo", {"trainer.total_epochs": 3, "trainer.max_actor_ckpt_to_keep": 1}, 48, 2),
        ("grpo", {"trainer.total_epochs": 3, "trainer.remove_previous_ckpt_in_save": True}, 48, 2),
        ("sft", {"trainer.save_freq": -1}, 16, 1),
        ("sft", {"trainer.save_freq": "after_each_epoch", "trainer.total_epochs": 2}, 32, 2),
        ("sft", {"trainer.save_freq": 1, "trainer.max_ckpt_to_keep": 4}, 16, 4),
    ],
)
def test_how_many_checkpoints(root: Path, workload: str, settings: dict[str, Any], steps: int, kept: int) -> None:
    reported = facts(root, workload=workload, settings=settings)
    assert (reported["steps"], reported["checkpoints_kept"]) == (steps, kept)
    assert reported["checkpoint_space"] == kept * CHECKPOINT


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({"actor_rollout_ref.actor.checkpoint.save_contents": ["model"]}, 4),
        ({"actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"]}, 16),
        ({"actor_rollout_ref.actor.fsdp_config.model_dtype": "bf16"}, 6),
        ({"actor_rollout_ref.model.lora_rank": 8}, 4),
        ({"actor_rollout_ref.model.lora.rank": 8}, 4),
    ],
)
def test_what_a_checkpoint_holds(root: Path, settings: dict[str, Any], items: int) -> None:
    assert facts(root, settings=settings)["checkpoint_bytes"] == 24 * items


def test_steps_that_do_not_come(root: Path) -> None:
    settings = {"trainer.total_training_steps": 40}
    ((key, what, severity),) = found(root, settings=settings)
    assert (key, severity, "16 steps" in what) == ("trainer_overrides", "warning", True)
    assert facts(root, settings=settings)["checkpoints_kept"] == 1


@pytest.mark.parametrize(
    ("asked", "step", "left"), [(10, 9, True), (10, 10, False), (None, 15, True), (None, 16, False)]
)
def test_checkpoint_that_leaves_nothing_to_train(root: Path, asked: int | None, step: int, left: bool) -> None:
    path = f"{root}/jobs/global_step-1/checkpoints/global_step_{step}"
    settings = {"trainer.total_training_steps": asked, "trainer.resume_from_path": path}
    steps = asked or 16
    text = f"its checkpoint is of step {step}, and the job has {steps} steps: nothing is left to train"
    assert found(root, settings=settings) == ([] if left else [("resume_from", text, "error")])


@pytest.mark.parametrize(
    ("epochs", "asked", "step", "skips"),
    [(3, None, 16, True), (3, None, 17, False), (4, 48, 16, False), (4, 49, 16, True), (3, None, 32, True)],
)
def test_sft_resumed_at_the_end_of_an_epoch(root: Path, epochs: int, asked: int | None, step: int, skips: bool) -> None:
    path = f"{root}/jobs/sft-1/checkpoints/global_step_{step}"
    settings = {"trainer.total_epochs": epochs, "trainer.total_training_steps": asked, "trainer.resume_from_path": path}
    found_here = [each for each in found(root, workload="sft", settings=settings) if each[0] == "resume_from"]
    assert [each[2] for each in found_here] == ["warning"] * skips
    assert all(f"{16 * (epochs - 1)} of {asked or 16 * epochs}" in each[1] for each in found_here)
    # verl's other trainer is not known to do so.
    assert "resume_from" not in [each[0] for each in found(root, settings=settings)]


@pytest.mark.parametrize("key", ["data.train_batch_size", "trainer.total_epochs", "trainer.total_training_steps"])
def test_a_number_of_the_wrong_type_is_left_to_other_checks(root: Path, key: str) -> None:
    assert found(root, settings={key: "ten"}) == []
    assert "checkpoint_space" not in facts(root, settings={key: "ten"})


def test_space_at_its_limits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def has(blocks: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=blocks, f_frsize=2))

    has(CHECKPOINT)
    assert [severity for *_rest, severity in found(root)] == ["warning"]
    assert facts(root)["free_bytes"] == 2 * CHECKPOINT
    has(CHECKPOINT - 1)
    assert [severity for *_rest, severity in found(root)] == ["error"]
    has(CHECKPOINT * 5 // 4 + 1)
    assert found(root) == []


def test_samples_in_flight_are_saved_as_well(root: Path) -> None:
    lengths = {"data.max_prompt_length": 6, "data.max_response_length": 4, "actor_rollout_ref.rollout.n": 2}
    of_sync = facts(root, settings=lengths)["checkpoint_space"]
    sizes = facts(root, settings={**lengths, "trainer.v1.trainer_mode": "colocate_async"})
    assert sizes["checkpoint_bytes"] > CHECKPOINT and sizes["checkpoint_space"] > of_sync


def test_checkpoints_of_lora(root: Path) -> None:
    settings = {"actor_rollout_ref.model.lora_rank": 8, "actor_rollout_ref.actor.checkpoint.save_lora_only": True}
    assert "checkpoint_bytes" not in facts(root, settings=settings)
    assert facts(root, settings={"actor_rollout_ref.actor.checkpoint.save_lora_only": True})["checkpoint_bytes"] == 288
