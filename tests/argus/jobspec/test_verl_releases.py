from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from jobs import RELEASES

from argus.jobspec.verl_releases import (
    FIRST_UNKNOWN,
    OLDEST,
    RL_SETTINGS,
    SFT_SETTINGS,
    Name,
    Profile,
    Setting,
    profile_of,
    refusal,
    release_of,
)

FIXTURES = Path(__file__).parents[2] / "unit" / "fixtures"


def profile(version: str) -> Profile:
    found = profile_of(version)
    assert found
    return found


@pytest.mark.parametrize(
    "version", ["0.5.0", "0.5", "0.6.1", "0.7.0.post1", "0.8.0.dev0", "0.9.1", "0.9.7", "0.9.1+ours"]
)
def test_known_versions(version: str) -> None:
    found = profile(version)
    assert found.version == version
    assert ".".join(map(str, found.release)).startswith(version[:3])


@pytest.mark.parametrize("version", ["0.4.1", "0.10.0", "0.90.1", "1.0", "unknown", "", "v0.9.1"])
def test_unknown_versions(version: str) -> None:
    assert profile_of(version) is None
    assert refusal(version).startswith("use a snapshot of verl 0.5 to 0.9")


def test_a_refusal_names_the_reason() -> None:
    assert refusal("0.4.1").endswith("the names of settings in older versions differ")
    assert refusal("0.10.0.dev0").endswith("the names of settings in newer versions are unknown")
    assert refusal("unknown").endswith("that contains verl/version/version")


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.9.1", (0, 9, 1)),
        ("0.9", (0, 9, 0)),
        ("0.9.0.dev0", (0, 9, 0)),
        ("0.9.1+mine", (0, 9, 1)),
        ("1.12.13", (1, 12, 13)),
        ("9", None),
        ("v0.9.1", None),
        ("", None),
    ],
)
def test_the_release_of_a_version(version: str, release: tuple[int, int, int] | None) -> None:
    assert release_of(version) == release


def test_the_section_of_the_reward_function_in_each_release() -> None:
    expected = [*["custom_reward_function"] * 4, *["reward.custom_reward_function"] * 4]
    assert [Profile("", release).reward_function for release in RELEASES] == expected


UNREAD_KEYS = [
    ("0.9.1", "grpo", "custom_reward_function.path", "set reward.custom_reward_function.path instead"),
    ("0.9.0", "ppo", "custom_reward_function", "set reward.custom_reward_function instead"),
    ("0.8.0", "ppo", "custom_reward_function.path", None),
    ("0.7.0", "ppo", "reward.custom_reward_function.path", "set custom_reward_function.path instead"),
    ("0.9.1", "grpo", "reward_model.reward_manager", "set reward.reward_manager.name instead"),
    ("0.8.0", "grpo", "reward_model.reward_manager", None),
    ("0.9.1", "grpo", "reward_model.model.path", "set reward.reward_model.model_path instead"),
    ("0.9.1", "grpo", "reward_model.rollout.name", "set reward.reward_model.rollout.name instead"),
    ("0.9.1", "grpo", "reward_model.strategy", "remove it: a reward model is configured with reward.reward_model"),
    ("0.8.0", "grpo", "reward_model.strategy", "remove it: a reward model is configured with reward.reward_model"),
    ("0.7.0", "grpo", "reward_model.strategy", None),
    ("0.9.1", "ppo", "critic.model.fsdp_config.param_offload", "set critic.fsdp.param_offload instead"),
    ("0.7.1", "ppo", "critic.fsdp.param_offload", "set critic.model.fsdp_config.param_offload instead"),
    ("0.9.1", "ppo", "critic.fsdp_config", None),
    ("0.8.0", "ppo", "critic.ulysses_sequence_parallel_size", "set critic.fsdp.ulysses_sequence_parallel_size instead"),
    ("0.7.1", "ppo", "critic.fsdp.ulysses_sequence_parallel_size", "set critic.ulysses_sequence_parallel_size instead"),
    ("0.9.1", "grpo", "transfer_queue.enable", "remove it: verl always uses TransferQueue"),
    ("0.9.1", "grpo", "transfer_queue.backend.storage_backend", None),
    ("0.9.1", "grpo", "actor_rollout_ref.rollout.skip_rollout", "set skip.rollout_tq.enable instead"),
    ("0.8.0", "grpo", "actor_rollout_ref.rollout.skip_rollout", "set actor_rollout_ref.rollout.skip.enable instead"),
    ("0.5.0", "grpo", "trainer.max_ckpt_to_keep", "set trainer.max_actor_ckpt_to_keep instead"),
    ("0.9.1", "sft", "trainer.max_actor_ckpt_to_keep", "set trainer.max_ckpt_to_keep instead"),
    ("0.9.1", "sft", "model.partial_pretrain", "set model.path instead"),
    ("0.7.0", "sft", "data.prompt_key", "set data.messages_key instead"),
    ("0.7.0", "sft", "data.response_key", "set data.messages_key instead"),
    ("0.9.1", "grpo", "data.prompt_key", None),
    ("0.9.1", "sft", "data.multiturn.tools_key", "set data.tools_key instead"),
    ("0.9.1", "sft", "data.multiturn.enable", "remove it: all datasets are conversations, see data.messages_key"),
    ("0.7.1", "sft", "data.balance_dp_token", "remove it"),
    ("0.8.0", "sft", "data.balance_dp_token", "set trainer.balance_batch instead"),
    ("0.9.1", "sft", "optim.lr", None),
]


@pytest.mark.parametrize(
    ("version", "workload", "key", "todo"), UNREAD_KEYS, ids=[f"{row[0]} {row[2]}" for row in UNREAD_KEYS]
)
def test_keys_that_a_release_does_not_read(version: str, workload: str, key: str, todo: str | None) -> None:
    assert profile(version).unread_hint(workload, key) == todo


@pytest.mark.parametrize("settings", [RL_SETTINGS, SFT_SETTINGS], ids=["rl", "sft"])
def test_a_hint_names_only_keys_that_the_release_reads(settings: tuple[Setting, ...]) -> None:
    workload = "ppo" if settings is RL_SETTINGS else "sft"
    for setting, release in itertools.product(settings, RELEASES):
        for name in setting.names:
            todo = Profile("", release).unread_hint(workload, name.key)
            if todo and todo.startswith("set "):
                key = todo.removeprefix("set ").removesuffix(" instead")
                assert Profile("", release).unread_hint(workload, key) is None


@pytest.mark.parametrize("settings", [RL_SETTINGS, SFT_SETTINGS], ids=["rl", "sft"])
def test_no_key_is_in_a_table_twice(settings: tuple[Setting, ...]) -> None:
    keys = [name.key for setting in settings for name in setting.names if OLDEST < name.until < FIRST_UNKNOWN]
    assert len(keys) == len(set(keys))


def test_the_trainers() -> None:
    assert profile("0.5.0").module("ppo") == profile("0.9.1").module("grpo") == "verl.trainer.main_ppo"
    assert profile("0.6.1").module("sft") is None
    assert profile("0.7.0").module("sft") == "verl.trainer.sft_trainer_ray"
    assert profile("0.6.0").module("sft", "torchrun") is None
    assert profile("0.6.1").module("sft", "torchrun") == "verl.trainer.sft_trainer"


def test_abilities_of_the_newest_releases() -> None:
    old, new = profile("0.8.0"), profile("0.9.0")
    assert (old.transfer_queue, old.cpu_backend("ppo"), old.sft_device) == (False, False, "cuda")
    assert (new.transfer_queue, new.cpu_backend("ppo"), new.sft_device) == (True, True, "cpu")
    assert old.cpu_backend("sft") and not profile("0.7.1").cpu_backend("sft")
    assert old.driver_environment("sft") == {"CUDA_VISIBLE_DEVICES": "0"}
    assert old.driver_environment("ppo") == new.driver_environment("sft") == {}
    assert old.driver_environment("sft", "torchrun") == {"RAY_DEDUP_LOGS": "0"}


def test_the_loggers() -> None:
    assert "file" not in profile("0.5.0").loggers
    assert "file" in profile("0.6.0").loggers
    assert "rl_insight" not in profile("0.8.0").loggers
    assert "rl_insight" in profile("0.9.0").loggers


def test_a_longer_name_comes_before_its_prefix() -> None:
    """reward_model.rollout was renamed, and all other keys below reward_model are unread."""
    assert profile("0.9.1").unread_hint("grpo", "reward_model.rollout.n") == "set reward.reward_model.rollout.n instead"
    assert profile("0.9.1").unread_hint("grpo", "reward_models.a") is None


def test_an_unknown_key_has_no_hint() -> None:
    assert profile("0.5.0").unread_hint("grpo", "data.seed") is None


def read_by(names: Iterable[Name]) -> dict[str, str]:
    """The first and the last of the supported releases that read each name."""
    found = {}
    for name in names:
        versions = [".".join(map(str, release)) for release in RELEASES if name.is_read_by(release)]
        found[name.key] = f"{versions[0]} to {versions[-1]}" if versions else "none"
    return found


def test_the_names_that_each_release_reads() -> None:
    """As in fixtures/verl_names.json, which `make snapshots` has confirmed with the configurations of each release."""
    expected = json.loads((FIXTURES / "verl_names.json").read_text(encoding="utf-8"))
    for kind, settings in (("rl", RL_SETTINGS), ("sft", SFT_SETTINGS)):
        assert read_by(name for setting in settings for name in setting.names) == expected[kind]
