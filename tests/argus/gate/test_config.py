from __future__ import annotations

from typing import Any

import pytest
from composed_config import GRPO, ROLLOUT, found, put

from argus.common.findings import Finding
from argus.gate.numbers import config_findings

WRONG: list[tuple[str, dict[str, Any], str]] = [
    # The workload, the changes, and the only finding.
    (
        "grpo",
        {f"{ROLLOUT}.name": "???"},
        (f"error {ROLLOUT}.name has no value, and verl has no default for it: set {ROLLOUT}.name"),
    ),
    (
        "grpo",
        {"reward.reward_model.enable": True},
        (
            "error reward.reward_model.rollout.name has no value, and verl has no default for it: set "
            "reward.reward_model.rollout.name"
        ),
    ),
    (
        "grpo",
        {"trainer.total_training_steps": 0},
        (
            "error trainer.total_training_steps is below 1: the job would train nothing and succeed: "
            "set it to 1 or more, or to null for all epochs"
        ),
    ),
    (
        "grpo",
        {"trainer.save_freq": -1},
        ("warning trainer.save_freq is -1: nothing is saved, not even the last step: set it to a number of steps"),
    ),
    (
        "grpo",
        {"trainer.save_freq": 0},
        ("warning trainer.save_freq is 0: nothing is saved, not even the last step: set it to a number of steps"),
    ),
    (
        "grpo",
        {"trainer.resume_mode": "yes"},
        "error trainer.resume_mode is yes: set it to auto, disable or resume_path",
    ),
    (
        "grpo",
        {"trainer.resume_mode": "resume_path"},
        (
            "error trainer.resume_from_path is None, but trainer.resume_mode is resume_path: set it to "
            "the path of a directory global_step_<number>"
        ),
    ),
    (
        "grpo",
        {"trainer.logger": ["console", "wandb"]},
        (
            "warning trainer.logger contains wandb, but the job's environment has no WANDB_API_KEY or "
            "WANDB_MODE: wandb would ask for an account, and no one can answer: set WANDB_API_KEY or "
            "WANDB_MODE for the job, or remove wandb"
        ),
    ),
    (
        "grpo",
        {"trainer.logger": "tracking"},
        (
            "warning trainer.logger contains tracking, but the job's environment has no WANDB_API_KEY "
            "or WANDB_MODE: wandb would ask for an account, and no one can answer: set WANDB_API_KEY or"
            " WANDB_MODE for the job, or remove tracking"
        ),
    ),
    (
        "sft",
        {"trainer.total_epochs": 0},
        ("error trainer.total_epochs is below 1: the job would train nothing and succeed: set it to 1 or more"),
    ),
    (
        "sft",
        {"trainer.save_freq": -1},
        (
            "warning trainer.save_freq is -1: only the last step is saved, so a job that fails earlier "
            "has nothing to resume from: set it to a number of steps"
        ),
    ),
    (
        "sft",
        {"trainer.save_freq": 0},
        (
            "error trainer.save_freq is 0: the job ends with ZeroDivisionError after its first step: "
            "set it to -1 for never"
        ),
    ),
    (
        "sft",
        {"trainer.test_freq": 0},
        (
            "error trainer.test_freq is 0: the job ends with ZeroDivisionError after its first step: "
            "set it to -1 for never"
        ),
    ),
    (
        "grpo",
        {"trainer.total_epochs": 0},
        ("error trainer.total_epochs is below 1: the job would train nothing and succeed: set it to 1 or more"),
    ),
    (
        "sft",
        {"trainer.logger": ["swanlab"]},
        (
            "warning trainer.logger contains swanlab, but the job's environment has no SWANLAB_API_KEY "
            "or SWANLAB_MODE: swanlab would ask for an account, and no one can answer: set "
            "SWANLAB_API_KEY or SWANLAB_MODE for the job, or remove swanlab"
        ),
    ),
    (
        "sft",
        {"trainer.logger": ["clearml"]},
        (
            "warning trainer.logger contains clearml, but the job's environment has no "
            "CLEARML_API_ACCESS_KEY or CLEARML_CONFIG_FILE: clearml has no server to report to: set "
            "CLEARML_API_ACCESS_KEY or CLEARML_CONFIG_FILE for the job, or remove clearml"
        ),
    ),
    (
        "sft",
        {"trainer.logger": ["vemlp_wandb"]},
        (
            "warning trainer.logger contains vemlp_wandb, but the job's environment has no "
            "VOLC_ACCESS_KEY_ID: vemlp_wandb ends the job: set VOLC_ACCESS_KEY_ID for the job, or "
            "remove vemlp_wandb"
        ),
    ),
    (
        "grpo",
        {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": "/x/step_3"},
        (
            "error trainer.resume_from_path is /x/step_3, but trainer.resume_mode is resume_path: set "
            "it to the path of a directory global_step_<number>"
        ),
    ),
]


@pytest.mark.parametrize(("workload", "changes", "expected"), WRONG, ids=[str(row[1])[:70] for row in WRONG])
def test_wrong_settings(workload: str, changes: dict[str, Any], expected: str) -> None:
    assert found(workload, changes) == [expected]


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_the_settings_of_a_job_are_right(workload: str) -> None:
    assert found(workload, {}) == []


def test_a_finding_names_its_key() -> None:
    what = "is below 1: the job would train nothing and succeed"
    assert config_findings(put(GRPO, {"trainer.total_epochs": 0}), "grpo", 2, 4) == [
        Finding("trainer.total_epochs", what, "set it to 1 or more", key="trainer.total_epochs")
    ]


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
    (warning,) = found("sft", {"trainer.total_training_steps": 0})
    assert warning.startswith(
        "warning trainer.total_training_steps is 0, but must be an integer of 1 or more: verl ends"
    )


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_unknown_settings_are_not_judged(workload: str) -> None:
    """The configuration of another trainer, or of a version with other names."""
    assert config_findings({"trainer": {"nnodes": 2, "n_gpus_per_node": 4}}, workload, 2, 4) == []
