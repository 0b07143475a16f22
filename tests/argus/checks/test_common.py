from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checked_job import CODE, request, version

from argus.checks.common import Configuration, read_verl_version


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0.8.1", False), ("0.9.0", True), ("0.9.1.dev0", True), ("0.10.0", True), ("1.0", True), ("main", True)],
)
def test_releases(root: Path, text: str, expected: bool) -> None:
    version(root, text)
    assert request(root).is_since((0, 9)) is expected


def test_a_snapshot_without_a_version_counts_as_the_latest(root: Path) -> None:
    assert read_verl_version(root / CODE) is None
    assert request(root).is_since((0, 9))
    version(root, "0.8.0")
    assert read_verl_version(f"{root}/{CODE}") == "0.8.0"
    (root / CODE / "verl/version/version").write_bytes(b"\xff")
    assert read_verl_version(root / CODE) is None


@pytest.mark.parametrize(
    ("workload", "settings", "expected"),
    [
        ("ppo", {}, True),
        ("grpo", {}, False),
        ("ppo", {"critic.enable": False}, False),
        ("grpo", {"critic.enable": True}, True),
        ("sft", {"critic.enable": True}, False),
    ],
)
def test_jobs_with_a_critic(root: Path, workload: str, settings: dict[str, Any], expected: bool) -> None:
    assert request(root, workload=workload, settings=settings).has_critic is expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "naive"),
        ({"reward.reward_manager.name": "dapo"}, "dapo"),
        ({"reward_model.reward_manager": "gdpo", "reward.reward_manager.name": "dapo"}, "gdpo"),
        ({"reward_model.reward_manager": "prime"}, None),
        ({"reward.reward_manager.source": "importlib"}, None),
    ],
)
def test_reward_managers(root: Path, settings: dict[str, Any], expected: str | None) -> None:
    assert request(root, settings=settings).reward_manager == expected
    assert request(root, workload="sft", settings=settings).reward_manager is None


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
