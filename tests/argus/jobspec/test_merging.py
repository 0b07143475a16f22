from __future__ import annotations

import copy
from typing import Any

import pytest

from argus.jobspec.parse import set_only_findings, with_command_line, with_defaults

DEFAULTS: dict[str, Any] = {
    "shared_root": "/mnt",
    "env_vars": {"A": 1, "B": 2},
    "ray": {"address": "http://127.0.0.1:1"},
}


def test_defaults_of_the_cluster_complete_a_jobspec() -> None:
    jobspec = {"workload": "sft", "env_vars": {"B": 3}, "shared_root": None}
    assert with_defaults(jobspec, DEFAULTS) == {
        "workload": "sft",
        "shared_root": "/mnt",
        "env_vars": {"A": 1, "B": 3},
        "ray": {"address": "http://127.0.0.1:1"},
    }


@pytest.mark.parametrize(
    ("defaults", "local", "merged"),
    [
        ({"a.b": 1, "c": 2}, ["a.b=3"], ["c=2", "a.b=3"]),
        (["a=1"], {"b": {"c": 2}}, ["a=1", "b.c=2"]),
        # Both forms are about the same setting.
        ({"a": {"b": 1}}, {"a.b": 2}, ["a.b=2"]),
        (["a=1"], [], ["a=1"]),
        ({"a": 1}, None, {"a": 1}),
        # What cannot be read is reported.
        (["a=1"], ["b"], ["b"]),
        ("a=1", ["b=2"], ["b=2"]),
    ],
)
def test_overrides_are_merged_by_their_keys(defaults: Any, local: Any, merged: Any) -> None:
    assert with_defaults({"trainer_overrides": local}, {"trainer_overrides": defaults}) == {"trainer_overrides": merged}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ([], {}),
        ([{"other": None, "shared_root": None, "resume_from": None}], {}),
        ([{"set": "a=2"}], {"trainer_overrides": ["a=2"]}),
        ([{"set": ["b=2"]}, {"set": {"b": 3}}], {"trainer_overrides": ["a=1", "b=3"]}),
        # Keys of a JobSpec are those, also beside overrides of the trainer with the same beginning.
        (
            [{"set": ["retries=2", "model=n", "model.lora_rank=8", "resources.nnodes=1", "tags.by=me", "a=2"]}],
            {
                "model": "n",
                "retries": 2,
                "resources": {"nnodes": 1, "gpus_per_node": 4},
                "tags": {"by": "me"},
                "trainer_overrides": ["model.lora_rank=8", "a=2"],
            },
        ),
        (
            [{"set": ["+retries=2", "resume_from=sft-1"]}],
            {"trainer_overrides": ["a=1", "+retries=2"], "resume_from": "sft-1"},
        ),
        # What does not fit is checked with the JobSpec.
        ([{"set": [5]}], {"trainer_overrides": [5]}),
        ([{"set": ["retries=two"]}], {"retries": "two"}),
    ],
)
def test_keys_of_the_command_line_replace_those_of_a_jobspec(
    variables: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    jobspec = {"model": "m", "resources": {"nnodes": 2, "gpus_per_node": 4}, "trainer_overrides": {"a": 1}}
    before = copy.deepcopy(jobspec)
    assert with_command_line(jobspec, variables) == {**jobspec, **expected}
    assert jobspec == before


@pytest.mark.parametrize("jobspec", [None, ["x"], "grpo.yaml"])
def test_what_is_no_jobspec_stays(jobspec: object) -> None:
    assert with_command_line(jobspec, [{"set": "retries=2"}]) == with_defaults(jobspec, DEFAULTS) == jobspec


@pytest.mark.parametrize("name", ["retries", "model", "trainer.save_freq", "+data.seed", "~x"])
def test_what_only_set_changes_is_no_variable(name: str) -> None:
    """Such as of `-e retries=2`, or of `-e 'set=data.train_batch_size=16 trainer.save_freq=2'`."""
    (finding,) = set_only_findings([{"set": None, name: None, "seed": None, "shared_root": None, "ansible_user": None}])
    assert (finding.where, finding.key) == (f"-e {name}", name)
