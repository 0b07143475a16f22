from __future__ import annotations

import pytest
from composed_config import ROLLOUT, Wrong, check, found, told

from argus.gate.numbers import config_findings

WRONG: list[Wrong] = [
    ("grpo", {f"{ROLLOUT}.name": "???"}, "error", ""),
    ("grpo", {"reward.reward_model.enable": True}, "error reward.reward_model.rollout.name", ""),
    ("grpo", {"trainer.total_training_steps": 0}, "error", ""),
    ("grpo", {"trainer.save_freq": -1}, "warning", ""),
    ("grpo", {"trainer.save_freq": 0}, "warning", ""),
    ("grpo", {"trainer.resume_mode": "yes"}, "error", ""),
    ("grpo", {"trainer.resume_mode": "resume_path"}, "error trainer.resume_from_path", ""),
    ("grpo", {"trainer.logger": ["console", "wandb"]}, "warning", ""),
    ("grpo", {"trainer.logger": "tracking"}, "warning", ""),
    ("sft", {"trainer.total_epochs": 0}, "error", ""),
    ("sft", {"trainer.save_freq": -1}, "warning", ""),
    ("sft", {"trainer.save_freq": 0}, "error", ""),
    ("sft", {"trainer.test_freq": 0}, "error", ""),
    ("grpo", {"trainer.total_epochs": 0}, "error", ""),
    ("sft", {"trainer.logger": ["swanlab"]}, "warning", ""),
    ("sft", {"trainer.logger": ["clearml"]}, "warning", ""),
    ("sft", {"trainer.logger": ["vemlp_wandb"]}, "warning", ""),
    (
        "grpo",
        {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/x/step_3"},
        "error trainer.resume_from_path",
        "",
    ),
]


@pytest.mark.parametrize("row", WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_wrong_settings(row: Wrong) -> None:
    check(row)


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_the_settings_of_a_job_are_right(workload: str) -> None:
    assert found(workload, {}) == []


def test_parts_that_are_disabled_need_no_values() -> None:
    assert found("grpo", {"reward.reward_model": {"enabled": False, "path": "???"}}) == []
    assert len(found("grpo", {"reward.reward_model": {"enabled": True, "path": "???"}})) == 1


def test_loggers_whose_account_the_job_has() -> None:
    environment = {"WANDB_API_KEY": "", "SWANLAB_MODE": "local"}
    assert found("grpo", {"trainer.logger": ["wandb", "swanlab", "console"]}, environment=environment) == []
    assert len(found("grpo", {"trainer.logger": ["wandb", "swanlab"]}, environment={"OTHER": "1"})) == 2


def test_resuming() -> None:
    path = "/private/jobs/a/checkpoints/global_step_3"
    assert found("sft", {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": path}) == []
    assert found("sft", {"trainer.resume_mode": "disable", "trainer.resume_from_path": "/x"}) == []


def test_lengths_of_training() -> None:
    assert found("grpo", {"trainer.total_training_steps": 1}) == []
    # SFT ends after its first step.
    assert told("sft", {"trainer.total_training_steps": 0}) == ["warning trainer.total_training_steps"]


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_unknown_settings_are_not_judged(workload: str) -> None:
    """The configuration of another trainer, or of a version with other names."""
    assert config_findings({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}}, workload, 2, 4) == []
