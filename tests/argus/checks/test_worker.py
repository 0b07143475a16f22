from __future__ import annotations

from pathlib import Path

import pytest
from checked_job import facts, found

from argus.checks.common import Configuration


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


# --- Configuration ----------------------------------------------------------------------------------------------------


def test_values_of_a_configuration() -> None:
    config = Configuration({"a": {"b": {"c": 1, "d": False}, "t": "text"}, "e": None, "f": "???", "g": "${a.t}"})
    assert [config.get(key) for key in ("a.b.c", "a.b.d", "a.t")] == [1, False, "text"]
    for key in ("e", "f", "g", "h", "a.x", "a.t.x", "a.b.c.x"):
        assert config.get(key) is None, key
        assert config.get(key, 5) == 5, key


def test_numbers_of_a_configuration() -> None:
    config = Configuration({"a": 3, "b": True, "c": "4", "d": 0.5, "e": 0})
    assert [config.number(key, 7) for key in "abcdef"] == [3, 7, 7, 7, 0, 7]
    assert config.number("f") == 0
