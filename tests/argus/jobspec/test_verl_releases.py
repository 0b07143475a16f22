from __future__ import annotations

import pytest
from jobs import RELEASES

from argus.jobspec.verl_releases import RL_UNREAD, RL_UNTIL_0_9, SFT_UNREAD, Profile, profile_of, release_of


@pytest.mark.parametrize(
    ("version", "profile"),
    [
        ("0.9.1", Profile("0.9.1", (0, 9, 1))),
        ("0.8.0", Profile("0.8.0", (0, 8, 0))),
        *((version, None) for version in ("0.4.1", "0.7.1.post1", "unknown", "", "v0.9.1")),
        # A newer one is judged as the newest that is known.
        *((version, Profile(version, (0, 9, 1), is_guess=True)) for version in ("0.10.0.dev0", "1.0")),
    ],
)
def test_the_profile_of_a_version(version: str, profile: Profile | None) -> None:
    assert profile_of(version) == profile


@pytest.mark.parametrize(
    ("version", "release"),
    [("0.9", (0, 9, 0)), ("0.9.0.dev0", (0, 9, 0)), ("0.9.1+mine", (0, 9, 1)), ("9", None), ("v0.9.1", None)],
)
def test_the_release_of_a_version(version: str, release: tuple[int, int, int] | None) -> None:
    assert release_of(version) == release


UNREAD_KEYS = [
    ("0.9.1", "grpo", "custom_reward_function.path", "set reward.custom_reward_function.path instead"),
    ("0.8.0", "ppo", "custom_reward_function.path", None),
    ("0.9.1", "grpo", "reward_model.model.path", "set reward.reward_model.model_path instead"),
    ("0.9.1", "ppo", "critic.model.fsdp_config.param_offload", "set critic.fsdp.param_offload instead"),
    ("0.9.1", "ppo", "critic.fsdp_config", None),
    ("0.8.0", "ppo", "critic.ulysses_sequence_parallel_size", "set critic.fsdp.ulysses_sequence_parallel_size instead"),
    ("0.9.1", "grpo", "transfer_queue.enable", "remove it: verl always uses TransferQueue"),
    ("0.9.1", "sft", "data.multiturn.tools_key", "set data.tools_key instead"),
    ("0.8.0", "sft", "data.balance_dp_token", "set trainer.balance_batch instead"),
    ("0.9.1", "grpo", "trainer.remove_previous_ckpt", "set trainer.max_actor_ckpt_to_keep=1 instead"),
    ("0.9.1", "grpo", "reward_models.a", None),
]


@pytest.mark.parametrize(
    ("version", "workload", "key", "todo"), UNREAD_KEYS, ids=[f"{row[0]} {row[2]}" for row in UNREAD_KEYS]
)
def test_keys_that_a_release_does_not_read(version: str, workload: str, key: str, todo: str | None) -> None:
    profile = profile_of(version)
    assert profile and profile.unread_hint(workload, key) == todo


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("workload", ["ppo", "sft"])
def test_a_hint_names_only_keys_that_the_release_reads(workload: str, release: tuple[int, int, int]) -> None:
    one = Profile("", release)
    for name in SFT_UNREAD if workload == "sft" else RL_UNREAD | RL_UNTIL_0_9:
        todo = one.unread_hint(workload, name)
        if todo and todo.startswith("set "):
            assert one.unread_hint(workload, todo.split()[1].partition("=")[0]) is None
