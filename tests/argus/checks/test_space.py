from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checked_job import checked, facts, found, keys

from argus.checks.common import Configuration

# The tiny model's 24 parameters: 4 bytes each for the model and for each of Adam's two moments.
CHECKPOINT = 24 * 12


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_a_good_job(root: Path, workload: str) -> None:
    assert keys(root, workload=workload) == keys(root, workload=workload, config=None) == []


def test_the_facts(root: Path) -> None:
    known = facts(root, workload="ppo")
    assert known.pop("free_bytes") > 0
    assert {"paths", "dataset", "shared_root"} < set(known.pop("seconds"))
    assert known == {
        "train_rows": 128,
        "val_rows": 16,
        "data_sources": ["openai/gsm8k"],
        "model_bytes": (root / "common/models/tiny/model.safetensors").stat().st_size,
        "parameters": 24,
        "critic_parameters": 24,
        "versions": {"numpy": "2.4.6", "tensordict": "0.10.0", "wandb": None, "pybind11": None},
        "steps": 16,
        "checkpoint_bytes": CHECKPOINT * 2,
        "checkpoints_kept": 2,
        "checkpoint_space": CHECKPOINT * 4,
    }


def test_a_check_that_fails_does_not_stop_the_job(root: Path) -> None:
    ((key, what, severity),) = found(root, settings={"actor_rollout_ref.model.lora_rank": "eight"})
    assert (key, severity) == ("shared_root", "warning") and what.startswith("could not be checked: TypeError")


def test_values_of_a_configuration() -> None:
    config = Configuration({"a": {"b": {"c": 1, "d": False}, "t": "x"}, "e": None, "f": "???", "g": "${a.t}", "h": 0.5})
    assert [config.get(key) for key in ("a.b.c", "a.b.d", "a.t")] == [1, False, "x"]
    assert [config.get(key, 5) for key in ("e", "f", "g", "i", "a.x", "a.t.x")] == [5] * 6
    assert [config.number(key, 7) for key in ("a.b.c", "a.b.d", "a.t", "h", "i")] == [1, 7, 7, 7, 7]
    assert config.number("i") == 0


# --- Space for checkpoints --------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def free(blocks: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=blocks, f_frsize=2))

    return free


def test_too_little_space(root: Path, free: Callable[[int], None]) -> None:
    for blocks, severity in ((CHECKPOINT * 5 // 4 + 1, ""), (CHECKPOINT, "warning"), (CHECKPOINT - 1, "error")):
        free(blocks)
        assert keys(root) == ([("shared_root", severity)] if severity else [])
        assert facts(root)["free_bytes"] == 2 * blocks
    assert "actor: 2 of 2 at a time, 288 bytes each" in checked(root)[0].problem
    assert keys(root, accept=["space"]) == [("shared_root", "warning")]
    # What other strategies write has not been measured.
    assert keys(root, settings={"actor_rollout_ref.actor.strategy": "veomni"}) == [("shared_root", "warning")]
    settings = {"trainer.save_freq": 4, "trainer.max_actor_ckpt_to_keep": 3, "trainer.max_critic_ckpt_to_keep": 1}
    (finding,) = checked(root, workload="ppo", settings=settings)
    assert "actor: 3 of 4 at a time" in finding.problem and "critic: 2 of 4 at a time" in finding.problem


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


ACTOR, LORA = "actor_rollout_ref.actor", {"actor_rollout_ref.model.lora_rank": 8}


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({f"{ACTOR}.checkpoint.save_contents": ["model"]}, 4),
        ({f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"]}, 16),
        ({f"{ACTOR}.fsdp_config.model_dtype": "bf16"}, 6),
        (LORA, 4),
        ({"actor_rollout_ref.model.lora.rank": 8}, 4),
        ({f"{ACTOR}.checkpoint.save_lora_only": True}, 12),
        ({f"{ACTOR}.checkpoint.save_lora_only": True, **LORA}, 0),
        ({"data.train_batch_size": "ten"}, 0),
        ({"trainer.total_epochs": "ten"}, 0),
        ({"trainer.total_training_steps": "ten"}, 0),
    ],
)
def test_what_a_checkpoint_holds(root: Path, settings: dict[str, Any], items: int) -> None:
    assert facts(root, settings=settings).get("checkpoint_bytes", 0) == 24 * items
    assert keys(root, settings=settings) == []


def test_samples_in_flight_are_saved_as_well(root: Path) -> None:
    lengths = {"data.max_prompt_length": 6, "data.max_response_length": 4, "actor_rollout_ref.rollout.n": 2}
    sizes = facts(root, settings={**lengths, "trainer.v1.trainer_mode": "colocate_async"})
    queue = sizes["checkpoint_bytes"] - CHECKPOINT
    assert queue > 0 and queue % (8 * 2 * 10) == 0
    assert sizes["checkpoint_space"] == facts(root, settings=lengths)["checkpoint_space"] + 2 * queue


@pytest.mark.parametrize(
    ("workload", "epochs", "asked", "step", "expected"),
    [
        # Steps that do not come.
        ("grpo", 1, 40, 0, [("trainer_overrides", "warning")]),
        ("grpo", 1, 10, 9, []),
        ("grpo", 1, 10, 10, [("resume_from", "error")]),
        ("grpo", 1, None, 15, []),
        ("grpo", 1, None, 16, [("resume_from", "error")]),
        # At the end of an epoch.
        ("sft", 3, None, 16, [("resume_from", "warning")]),
        ("sft", 3, None, 17, []),
        ("sft", 4, 48, 16, []),
        ("sft", 4, 49, 16, [("resume_from", "warning")]),
        ("sft", 3, None, 32, [("resume_from", "warning")]),
        # verl's other trainer is not known to skip the next one.
        ("grpo", 3, None, 16, []),
    ],
)
def test_what_is_left_to_train(
    root: Path, workload: str, epochs: int, asked: int | None, step: int, expected: list[tuple[str, str]]
) -> None:
    # The name of the job has no part in it.
    path = f"{root}/jobs/global_step-1/checkpoints/global_step_{step}" if step else None
    settings = {"trainer.total_epochs": epochs, "trainer.total_training_steps": asked, "trainer.resume_from_path": path}
    findings = found(root, workload=workload, settings=settings)
    assert [(key, severity) for key, _what, severity in findings] == expected
    if expected == [("resume_from", "warning")]:
        assert f"{16 * (epochs - 1)} of {asked or 16 * epochs}" in findings[0][1]
    if not step:
        assert facts(root, settings=settings)["checkpoints_kept"] == 1
