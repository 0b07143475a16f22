from __future__ import annotations

from pathlib import Path

import pytest
from checked_job import facts, found


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_a_good_job(root: Path, workload: str) -> None:
    assert found(root, workload=workload) == []
    assert found(root, workload=workload, config=None) == []


def test_the_facts(root: Path) -> None:
    known = facts(root, workload="ppo")
    assert known.pop("free_bytes") > 0
    assert set(known.pop("seconds")) == {
        *(
            "paths",
            "dataset",
            "model",
            "prompts",
            "reward_fn_path",
            "code_path",
            "debugger",
            "shared_root",
        )
    }
    assert known == {
        "train_rows": 128,
        "val_rows": 16,
        "data_sources": ["openai/gsm8k"],
        "model_bytes": (root / "common/models/tiny/model.safetensors").stat().st_size,
        "parameters": 24,
        "critic_parameters": 24,
        "versions": {"numpy": "2.4.6", "tensordict": "0.10.0", "wandb": None, "pybind11": None},
        "steps": 16,
        "checkpoint_bytes": 24 * 12 * 2,
        "checkpoints_kept": 2,
        "checkpoint_space": 24 * 12 * 4,
    }


def test_a_check_that_fails_does_not_stop_the_job(root: Path) -> None:
    assert found(root, settings={"actor_rollout_ref.model.lora_rank": "eight"})[0] == (
        "shared_root",
        "could not be checked: TypeError: '>' not supported between instances of 'str' and 'int'",
        "warning",
    )
