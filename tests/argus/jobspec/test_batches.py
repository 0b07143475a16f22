"""Batches of fixed sizes and of tokens: what a JobSpec gets, and what it is told."""

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
REF_SWITCH = f"{REF}.log_prob_use_dynamic_bsz"


def batches(workload: str, overrides: dict[str, Any]) -> dict[str, str]:
    """The settings of batches that the trainer gets."""
    found = settings(planned(workload=workload, trainer_overrides=overrides))
    return {key: value for key, value in found.items() if "bsz" in key or "micro_batch" in key or "token_len" in key}


ASKED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("grpo", {}, {SWITCH: "True"}),
    ("ppo", {TOKENS: 4096}, {SWITCH: "True", TOKENS: "4096"}),
    ("grpo", {SIZE: 4}, {SWITCH: "False", SIZE: "4", OF_ROLLOUT: "4", OF_REF: "4"}),
    ("grpo", {OF_ROLLOUT: 8, OF_REF: 2}, {SWITCH: "False", SIZE: "8", OF_ROLLOUT: "8", OF_REF: "2"}),
    ("grpo", {SWITCH: False, SIZE: 4}, {SWITCH: "False", SIZE: "4", OF_ROLLOUT: "4", OF_REF: "4"}),
    ("grpo", {SWITCH: True, SIZE: 4}, {SWITCH: "True", SIZE: "4"}),
    ("grpo", {SIZE: None}, {SWITCH: "True", SIZE: "null"}),
    # The reference has a switch of its own.
    ("grpo", {OF_REF: 4}, {SWITCH: "True", REF_SWITCH: "False", OF_REF: "4"}),
    # That of the critic would follow the actor's.
    (
        "ppo",
        {SIZE: 4},
        {SWITCH: "False", SIZE: "4", OF_ROLLOUT: "4", OF_REF: "4", "critic.use_dynamic_bsz": "True"},
    ),
    (
        "ppo",
        {"critic.ppo_micro_batch_size_per_gpu": 4},
        {SWITCH: "True", "critic.use_dynamic_bsz": "False", "critic.ppo_micro_batch_size_per_gpu": "4"},
    ),
    ("sft", {}, {}),
    ("sft", {"data.max_token_len_per_gpu": 512}, {"data.max_token_len_per_gpu": "512"}),
    (
        "sft",
        {"data.micro_batch_size_per_gpu": 2},
        {"data.micro_batch_size_per_gpu": "2", "data.use_dynamic_bsz": "False"},
    ),
]


@pytest.mark.parametrize(("workload", "asked", "expected"), ASKED, ids=lambda value: str(value))
def test_a_job_gets_the_sizes_that_it_asks_for(workload: str, asked: dict[str, Any], expected: dict[str, str]) -> None:
    assert batches(workload, asked) == expected


def said(workload: str, overrides: dict[str, Any], profile: Profile = NEWEST) -> list[tuple[str, str]]:
    found = batch_findings(jobspec(workload=workload, trainer_overrides=overrides), profile)
    return [(finding.severity, finding.key.removeprefix("trainer_overrides.")) for finding in found]


TOLD: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    ("grpo", {}, []),
    ("grpo", {TOKENS: 4096}, []),
    ("grpo", {SIZE: 4}, [("note", SIZE)]),
    ("grpo", {SWITCH: False, SIZE: 4}, []),
    # Both: one is without effect.
    ("grpo", {SIZE: 4, TOKENS: 4096}, [("note", SIZE), ("warning", TOKENS)]),
    ("grpo", {SWITCH: True, SIZE: 4, TOKENS: 4096}, [("warning", SIZE)]),
    ("grpo", {SWITCH: False, SIZE: 4, TOKENS: 4096}, [("warning", TOKENS)]),
    (
        "grpo",
        {SIZE: 4, f"{REF}.log_prob_max_token_len_per_gpu": 4096},
        [("note", SIZE), ("warning", f"{REF}.log_prob_max_token_len_per_gpu")],
    ),
    ("grpo", {SWITCH: False, SIZE: 4, REF_SWITCH: True, f"{REF}.log_prob_max_token_len_per_gpu": 4096}, []),
    ("grpo", {OF_REF: 4}, [("note", OF_REF)]),
    ("grpo", {"critic.ppo_micro_batch_size_per_gpu": 4}, []),
    ("sft", {"data.micro_batch_size_per_gpu": 2}, [("note", "data.micro_batch_size_per_gpu")]),
    (
        "sft",
        {"data.micro_batch_size_per_gpu": 2, "data.max_token_len_per_gpu": 512},
        [("note", "data.micro_batch_size_per_gpu"), ("warning", "data.max_token_len_per_gpu")],
    ),
]


@pytest.mark.parametrize(("workload", "asked", "expected"), TOLD, ids=lambda value: str(value))
def test_what_is_without_effect_is_told(workload: str, asked: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert said(workload, asked) == expected


def test_the_critic_does_not_read_its_size() -> None:
    key = "critic.ppo_micro_batch_size_per_gpu"
    assert [said("ppo", {key: 4}, profile) for profile in PROFILES] == [[("warning", key)]] * len(PROFILES)
