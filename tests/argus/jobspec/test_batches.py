"""Batches of fixed sizes and of tokens: the settings and the findings of a JobSpec."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import NEWEST, PROFILES, jobspec, planned, settings

from argus.jobspec.overrides import batch_findings
from argus.jobspec.verl_releases import Profile

ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
SWITCH, SIZE, TOKENS = (
    f"{ACTOR}.{name}" for name in ("use_dynamic_bsz", "ppo_micro_batch_size_per_gpu", "ppo_max_token_len_per_gpu")
)
OF_ROLLOUT, OF_REF = (f"{section}.log_prob_micro_batch_size_per_gpu" for section in (ROLLOUT, REF))
REF_SWITCH, REF_TOKENS = f"{REF}.log_prob_use_dynamic_bsz", f"{REF}.log_prob_max_token_len_per_gpu"


def batches(workload: str, overrides: dict[str, Any]) -> dict[str, str]:
    """The settings of batches that the trainer gets."""
    values = settings(planned(workload=workload, trainer_overrides=overrides))
    return {key: value for key, value in values.items() if "bsz" in key or "micro_batch" in key or "token_len" in key}


def findings_of(workload: str, overrides: dict[str, Any], profile: Profile = NEWEST) -> list[tuple[str, str]]:
    findings = batch_findings(jobspec(workload=workload, trainer_overrides=overrides), profile)
    return [(finding.severity, finding.key.removeprefix("trainer_overrides.")) for finding in findings]


OF_ACTOR = {SWITCH: "False", SIZE: "4", OF_ROLLOUT: "4", OF_REF: "4"}
OF_CRITIC, SFT_SIZE, SFT_TOKENS = (
    *("critic.ppo_micro_batch_size_per_gpu", "data.micro_batch_size_per_gpu", "data.max_token_len_per_gpu"),
)
Findings = list[tuple[str, str]]
# The settings of a JobSpec, those that the trainer gets beside them, and the findings.
BATCHES: list[tuple[str, dict[str, Any], dict[str, str], Findings]] = [
    ("grpo", {}, {SWITCH: "True"}, []),
    ("ppo", {TOKENS: 4096}, {SWITCH: "True"}, []),
    ("grpo", {SIZE: 4}, OF_ACTOR, [("note", SIZE)]),
    ("grpo", {OF_ROLLOUT: 8, OF_REF: 2}, {SWITCH: "False", SIZE: "8"}, [("note", OF_ROLLOUT), ("note", OF_REF)]),
    ("grpo", {SWITCH: False, SIZE: 4}, OF_ACTOR, []),
    ("grpo", {SWITCH: True, SIZE: 4}, {}, [("warning", SIZE)]),
    ("grpo", {SIZE: None}, {SWITCH: "True", SIZE: "null"}, []),
    # Both: one is without effect.
    ("grpo", {SIZE: 4, TOKENS: 4096}, OF_ACTOR, [("note", SIZE), ("warning", TOKENS)]),
    ("grpo", {SWITCH: True, SIZE: 4, TOKENS: 4096}, {}, [("warning", SIZE)]),
    ("grpo", {SWITCH: False, SIZE: 4, TOKENS: 4096}, OF_ACTOR, [("warning", TOKENS)]),
    ("grpo", {SIZE: 4, REF_TOKENS: 4096}, OF_ACTOR, [("note", SIZE), ("warning", REF_TOKENS)]),
    # The reference has a switch of its own.
    ("grpo", {OF_REF: 4}, {SWITCH: "True", REF_SWITCH: "False"}, [("note", OF_REF)]),
    ("grpo", {SWITCH: False, SIZE: 4, REF_SWITCH: True, REF_TOKENS: 4096}, {OF_ROLLOUT: "4", OF_REF: "4"}, []),
    # That of the critic would follow the actor's.
    ("ppo", {SIZE: 4}, {**OF_ACTOR, "critic.use_dynamic_bsz": "True"}, [("note", SIZE)]),
    ("ppo", {OF_CRITIC: 4}, {SWITCH: "True", "critic.use_dynamic_bsz": "False"}, [("warning", OF_CRITIC)]),
    ("grpo", {OF_CRITIC: 4}, {SWITCH: "True"}, []),
    ("sft", {}, {}, []),
    ("sft", {SFT_TOKENS: 512}, {}, []),
    ("sft", {SFT_SIZE: 2}, {"data.use_dynamic_bsz": "False"}, [("note", SFT_SIZE)]),
    (
        "sft",
        {SFT_SIZE: 2, SFT_TOKENS: 512},
        {"data.use_dynamic_bsz": "False"},
        [("note", SFT_SIZE), ("warning", SFT_TOKENS)],
    ),
]


@pytest.mark.parametrize(("workload", "overrides", "further", "findings"), BATCHES, ids=str)
def test_a_job_gets_its_sizes_and_a_warning_about_those_without_effect(
    workload: str, overrides: dict[str, Any], further: dict[str, str], findings: Findings
) -> None:
    assert batches(workload, overrides) == {**{key: str(value) for key, value in overrides.items()}, **further}
    assert findings_of(workload, overrides) == findings


def test_the_critic_does_not_read_its_size() -> None:
    key = "critic.ppo_micro_batch_size_per_gpu"
    assert [findings_of("ppo", {key: 4}, profile) for profile in PROFILES] == [[("warning", key)]] * len(PROFILES)
