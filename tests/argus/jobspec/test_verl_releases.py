from __future__ import annotations

import pytest
from jobs import RELEASES

from argus.jobspec.verl_releases import (
    RL_UNREAD,
    RL_UNTIL_0_9,
    SFT_UNREAD,
    Profile,
    profile_of,
    refusal,
    release_of,
)


def profile(version: str) -> Profile:
    found = profile_of(version)
    assert found
    return found


@pytest.mark.parametrize("version", ["0.4.1", "0.5.0", "0.7.1.post1", "unknown", "", "v0.9.1"])
def test_unknown_versions(version: str) -> None:
    assert profile_of(version) is None
    assert refusal(version).startswith("use a snapshot of verl 0.8 or 0.9")


def test_a_refusal_names_the_reason() -> None:
    assert refusal("0.7.1").endswith("the names of settings in older versions differ")
    assert refusal("unknown").endswith("that contains verl/version/version")


@pytest.mark.parametrize("version", ["0.10.0.dev0", "1.0"])
def test_a_newer_version_is_judged_as_the_newest_that_is_known(version: str) -> None:
    assert profile(version) == Profile(version, (0, 9, 1), is_guess=True)


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("0.9.1", (0, 9, 1)),
        ("0.9", (0, 9, 0)),
        ("0.9.0.dev0", (0, 9, 0)),
        ("0.9.1+mine", (0, 9, 1)),
        ("9", None),
        ("v0.9.1", None),
        ("", None),
    ],
)
def test_the_release_of_a_version(version: str, release: tuple[int, int, int] | None) -> None:
    assert release_of(version) == release


UNREAD_KEYS = [
    ("0.9.1", "grpo", "custom_reward_function.path", "set reward.custom_reward_function.path instead"),
    ("0.8.0", "ppo", "custom_reward_function.path", None),
    ("0.9.1", "grpo", "reward_model.reward_manager", "set reward.reward_manager.name instead"),
    ("0.9.1", "grpo", "reward_model.model.path", "set reward.reward_model.model_path instead"),
    ("0.9.1", "grpo", "reward_model.strategy", "remove it: a reward model is configured with reward.reward_model"),
    ("0.9.1", "ppo", "critic.model.fsdp_config.param_offload", "set critic.fsdp.param_offload instead"),
    ("0.9.1", "ppo", "critic.fsdp_config", None),
    ("0.8.0", "ppo", "critic.ulysses_sequence_parallel_size", "set critic.fsdp.ulysses_sequence_parallel_size instead"),
    ("0.9.1", "grpo", "transfer_queue.enable", "remove it: verl always uses TransferQueue"),
    ("0.9.1", "grpo", "transfer_queue.backend.storage_backend", None),
    ("0.9.1", "sft", "trainer.max_actor_ckpt_to_keep", "set trainer.max_ckpt_to_keep instead"),
    ("0.9.1", "sft", "data.multiturn.tools_key", "set data.tools_key instead"),
    ("0.9.1", "sft", "data.multiturn.enable", "remove it: all datasets are conversations, see data.messages_key"),
    ("0.8.0", "sft", "data.balance_dp_token", "set trainer.balance_batch instead"),
    ("0.9.1", "grpo", "actor_rollout_ref.rollout.skip.enable", "set skip.rollout_tq.enable instead"),
    ("0.8.0", "grpo", "actor_rollout_ref.rollout.skip.enable", None),
    ("0.9.1", "grpo", "trainer.remove_previous_ckpt", "set trainer.max_actor_ckpt_to_keep=1 instead"),
    ("0.9.1", "grpo", "reward_models.a", None),
]


@pytest.mark.parametrize(
    ("version", "workload", "key", "todo"), UNREAD_KEYS, ids=[f"{row[0]} {row[2]}" for row in UNREAD_KEYS]
)
def test_keys_that_a_release_does_not_read(version: str, workload: str, key: str, todo: str | None) -> None:
    assert profile(version).unread_hint(workload, key) == todo


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("workload", ["ppo", "sft"])
def test_a_hint_names_only_keys_that_the_release_reads(workload: str, release: tuple[int, int, int]) -> None:
    one = Profile("", release)
    for name in SFT_UNREAD if workload == "sft" else RL_UNREAD | RL_UNTIL_0_9:
        todo = one.unread_hint(workload, name)
        if todo and todo.startswith("set "):
            assert one.unread_hint(workload, todo.split()[1].partition("=")[0]) is None
