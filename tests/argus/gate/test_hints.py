"""What to do about overrides that Hydra refuses, that nothing reads, or that are of a part that a job does not have."""

from __future__ import annotations

from typing import Any

import pytest
from gate_job import parsed, shared_root

from argus.common.findings import WARNING
from argus.gate.config import JobConfig
from argus.gate.nodes import hint, unread_findings
from argus.jobspec.verl_releases import profile_of

# Settings of verl 0.9.1.
CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-6}, "use_kl_loss": True, "strategy": "fsdp", "ppo_micro_batch_size": None},
        "ref": {"log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": None},
        "rollout": {"n": 5, "log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": None},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "critic": {"enable": None, "optim": {"lr": 1e-5}, "strategy": "fsdp"},
    "data": {"train_batch_size": 8, "val_batch_size": 8, "gen_batch_size": 8},
    "reward": {"reward_model": {"enable": False, "nnodes": 0, "model_path": None}},
    "trainer": {"nnodes": 1, "save_freq": -1, "resume_mode": "auto", "max_actor_ckpt_to_keep": None, "foo_bar": 1},
}
PROFILE = profile_of("0.9.1")


def job(**algorithm: Any) -> JobConfig:
    config = {**CONFIG, "algorithm": {**CONFIG["algorithm"], **algorithm}}
    return JobConfig(config, "grpo", 1, 8, (0, 9, 1))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("lr", "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("optim.lr", "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("trainer.save_frequency", "did you mean trainer.save_freq?"),
        ("data.batch_size", "did you mean data.val_batch_size or data.gen_batch_size or data.train_batch_size?"),
        # It would be refused next.
        ("nnodes", "set resources.nnodes"),
        ("retrys", "did you mean retries?"),
        ("retries", "it is a key of the JobSpec: write it beside trainer_overrides"),
        ("actor_rollout_ref.actor.micro_rollout_batch_size", ""),
        ("actor_rollout_ref.actor.remove_clip", ""),
        ("remove_previous_ckpt", ""),
        # Nothing reads that one either.
        ("foo_bar", ""),
    ],
)
def test_a_hint_is_a_setting_that_the_job_reads(key: str, expected: str) -> None:
    assert hint(key, job(), PROFILE, ["trainer.foo_bar"]) == expected


def test_the_parts_of_a_job_and_its_release_decide() -> None:
    assert "log_prob_micro_batch_size_per_gpu instead" in hint("log_prob_micro_batch_size", job(), PROFILE)
    assert hint("optim.lr", job(adv_estimator="gae"), PROFILE).endswith("actor.optim.lr or critic.optim.lr?")


def test_what_changes_nothing_is_a_warning(tmp_path: Any) -> None:
    keys = ["critic.optim.lr", "reward.reward_model.model_path", "reward.reward_model.enable", "data.val_batch_size"]
    overrides = [*(f"{key}=1" for key in keys), "+recipe=dapo", "actor_rollout_ref.ref.log_prob_micro_batch_size=2"]
    spec = parsed(shared_root(tmp_path), trainer_overrides=overrides)
    found = list(unread_findings(spec, ["recipe"], job(), "0.9.1"))
    assert [finding.key.removeprefix("trainer_overrides.") for finding in found] == [*keys[:2], "recipe"]
    assert {finding.severity for finding in found} == {WARNING}
    assert list(unread_findings(spec, [], job(adv_estimator="gae"), "0.9.1")) == found[1:2]
