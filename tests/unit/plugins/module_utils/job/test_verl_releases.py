from __future__ import annotations

import itertools

import pytest
from ansible_collections.argus.verl.plugins.module_utils.job.verl_releases import (
    OLDEST,
    RL_SETTINGS,
    SFT_SETTINGS,
    UNREAD,
    Profile,
    Release,
    Setting,
    profile_of,
    refusal,
)

RELEASES: list[Release] = [(0, 5, 0), (0, 6, 0), (0, 6, 1), (0, 7, 0), (0, 7, 1), (0, 8, 0), (0, 9, 0), (0, 9, 1)]


def profile(version: str) -> Profile:
    found = profile_of(version)
    assert found
    return found


@pytest.mark.parametrize(
    "version", ["0.5.0", "0.5", "0.6.1", "0.7.0.post1", "0.8.0.dev0", "0.9.1", "0.9.7", "0.9.1+ours"]
)
def test_versions_that_are_known(version: str) -> None:
    found = profile(version)
    assert found.version == version
    assert ".".join(map(str, found.release)).startswith(version[:3])


@pytest.mark.parametrize("version", ["0.4.1", "0.10.0", "0.90.1", "1.0", "unknown", "", "v0.9.1"])
def test_versions_that_are_not(version: str) -> None:
    assert profile_of(version) is None
    assert refusal(version).startswith("use a snapshot of verl 0.5 to 0.9")


def test_a_refusal_says_why() -> None:
    assert refusal("0.4.1").endswith("older ones name their settings differently")
    assert refusal("0.10.0.dev0").endswith("how newer ones name their settings is not known here")
    assert refusal("unknown").endswith("with its version in verl/version/version")


NAMES = [
    # The newest name, and what each release calls it.
    (
        "reward.custom_reward_function.path",
        [*["custom_reward_function.path"] * 4, *["reward.custom_reward_function.path"] * 4],
    ),
    ("ray_kwargs.ray_init.num_cpus", ["ray_init.num_cpus", *["ray_kwargs.ray_init.num_cpus"] * 7]),
    (
        "critic.fsdp.param_offload",
        [*["critic.model.fsdp_config.param_offload"] * 5, *["critic.fsdp.param_offload"] * 3],
    ),
    (
        "reward.reward_manager.name",
        [*["reward_model.reward_manager"] * 3, "reward_manager.name", *["reward.reward_manager.name"] * 4],
    ),
    (
        "reward.sandbox_fusion.url",
        [*["reward_model.sandbox_fusion.url"] * 4, *["reward.sandbox_fusion.url"] * 4],
    ),
    ("trainer.resume_mode", ["trainer.resume_mode"] * 8),
    ("trainer.max_actor_ckpt_to_keep", ["trainer.max_actor_ckpt_to_keep"] * 8),
]


@pytest.mark.parametrize(("newest", "expected"), NAMES, ids=[name for name, _dummy in NAMES])
def test_what_each_release_calls_a_setting(newest: str, expected: list[str]) -> None:
    assert [Profile("", release).name(newest) for release in RELEASES] == expected


def test_a_setting_that_a_release_has_not() -> None:
    with pytest.raises(ValueError, match=r"verl 0\.5\.0 has nothing like transfer_queue\.enable"):
        profile("0.5.0").name("transfer_queue.enable")


MISNAMED = [
    ("0.9.1", "grpo", "custom_reward_function.path", "say reward.custom_reward_function.path"),
    ("0.9.0", "ppo", "custom_reward_function", "say reward.custom_reward_function"),
    ("0.8.0", "ppo", "custom_reward_function.path", None),
    ("0.7.0", "ppo", "reward.custom_reward_function.path", "say custom_reward_function.path"),
    ("0.9.1", "grpo", "reward_model.reward_manager", "say reward.reward_manager.name"),
    ("0.8.0", "grpo", "reward_model.reward_manager", None),
    ("0.9.1", "grpo", "reward_model.model.path", "say reward.reward_model.model_path"),
    ("0.9.1", "grpo", "reward_model.rollout.name", "say reward.reward_model.rollout.name"),
    ("0.9.1", "grpo", "reward_model.strategy", "leave it out; a reward model is under reward.reward_model"),
    ("0.8.0", "grpo", "reward_model.strategy", "leave it out; a reward model is under reward.reward_model"),
    ("0.7.0", "grpo", "reward_model.strategy", None),
    ("0.9.1", "ppo", "critic.model.fsdp_config.param_offload", "say critic.fsdp.param_offload"),
    ("0.7.1", "ppo", "critic.fsdp.param_offload", "say critic.model.fsdp_config.param_offload"),
    ("0.9.1", "ppo", "critic.fsdp_config", None),
    ("0.8.0", "ppo", "critic.ulysses_sequence_parallel_size", "say critic.fsdp.ulysses_sequence_parallel_size"),
    ("0.7.1", "ppo", "critic.fsdp.ulysses_sequence_parallel_size", "say critic.ulysses_sequence_parallel_size"),
    ("0.9.1", "grpo", "transfer_queue.enable", "leave it out: verl always uses it"),
    ("0.9.1", "grpo", "transfer_queue.backend.storage_backend", None),
    ("0.5.0", "grpo", "ray_kwargs.timeline_json_file", "say ray_init.timeline_json_file"),
    ("0.9.1", "grpo", "actor_rollout_ref.rollout.skip_rollout", "say skip.rollout_tq.enable"),
    ("0.8.0", "grpo", "actor_rollout_ref.rollout.skip_rollout", "say actor_rollout_ref.rollout.skip.enable"),
    ("0.5.0", "grpo", "trainer.max_ckpt_to_keep", "say trainer.max_actor_ckpt_to_keep"),
    ("0.9.1", "sft", "trainer.max_actor_ckpt_to_keep", "say trainer.max_ckpt_to_keep"),
    ("0.9.1", "sft", "model.partial_pretrain", "say model.path"),
    ("0.7.0", "sft", "data.prompt_key", "say data.messages_key"),
    ("0.7.0", "sft", "data.response_key", "say data.messages_key"),
    ("0.9.1", "grpo", "data.prompt_key", None),
    ("0.9.1", "sft", "data.multiturn.tools_key", "say data.tools_key"),
    ("0.9.1", "sft", "data.multiturn.enable", "leave it out: all data are conversations, see data.messages_key"),
    ("0.7.1", "sft", "data.balance_dp_token", "leave it out"),
    ("0.8.0", "sft", "data.balance_dp_token", "say trainer.balance_batch"),
    ("0.9.1", "sft", "optim.lr", None),
]


@pytest.mark.parametrize(
    ("version", "workload", "key", "todo"), MISNAMED, ids=[f"{row[0]} {row[2]}" for row in MISNAMED]
)
def test_a_name_that_a_release_does_not_read(version: str, workload: str, key: str, todo: str | None) -> None:
    assert profile(version).misnamed(workload, key) == todo


@pytest.mark.parametrize("settings", [RL_SETTINGS, SFT_SETTINGS], ids=["rl", "sft"])
def test_the_table_never_sends_anyone_to_a_name_that_is_not_read(settings: tuple[Setting, ...]) -> None:
    workload = "ppo" if settings is RL_SETTINGS else "sft"
    for setting, release in itertools.product(settings, RELEASES):
        for name in setting.names:
            todo = Profile("", release).misnamed(workload, name.key)
            if todo and todo.startswith("say "):
                assert Profile("", release).misnamed(workload, todo.removeprefix("say ")) is None


@pytest.mark.parametrize("settings", [RL_SETTINGS, SFT_SETTINGS], ids=["rl", "sft"])
def test_the_table_names_each_key_once(settings: tuple[Setting, ...]) -> None:
    keys = [name.key for setting in settings for name in setting.names if OLDEST < name.until < UNREAD]
    assert len(keys) == len(set(keys))


def test_the_trainers() -> None:
    assert profile("0.5.0").module("ppo") == profile("0.9.1").module("grpo") == "verl.trainer.main_ppo"
    assert profile("0.6.1").module("sft") is None
    assert profile("0.7.0").module("sft") == "verl.trainer.sft_trainer_ray"


def test_what_only_the_newest_has() -> None:
    old, new = profile("0.8.0"), profile("0.9.0")
    assert (old.transfer_queue, old.cpu_backend, old.sft_device) == (False, False, "cuda")
    assert (new.transfer_queue, new.cpu_backend, new.sft_device) == (True, True, "cpu")
    assert old.driver_environment("sft") == {"CUDA_VISIBLE_DEVICES": "0"}
    assert old.driver_environment("ppo") == new.driver_environment("sft") == {}


def test_the_loggers() -> None:
    assert "file" not in profile("0.5.0").loggers
    assert "file" in profile("0.6.0").loggers
    assert "rl_insight" not in profile("0.8.0").loggers
    assert "rl_insight" in profile("0.9.0").loggers
