from __future__ import annotations

from typing import Any

import pytest
import yaml
from jobs import MINIMAL, jobspec

from argus.jobspec.options import (
    OPTIONS,
    STAND_INS,
    converted,
    typed,
    unknown_keys,
    with_defaults,
    without_empty,
)
from argus.jobspec.parse import parse_jobspec


def test_options_are_not_changed_by_a_validation() -> None:
    """Ansible's validator writes defaults into the specification that it gets."""
    parse_jobspec(MINIMAL)
    parse_jobspec({"ray": {"resources": 1}, "resources": []})
    # A copy taken before could be changed already, by another test.
    assert OPTIONS["ray"]["default"] == OPTIONS["resources"]["default"] == {}
    assert OPTIONS["ray"]["options"]["resources"]["default"] == {}


def test_an_empty_value_counts_as_not_given() -> None:
    empty = yaml.safe_load(
        """
        submission_id:
        shared_root:
        reward_fn_path:
        ray: {address: , resources: {entrypoint_resources: , entrypoint_num_cpus: }}
        resources:
        trainer_overrides:
        env_vars:
        secrets:
        retries:
        deadline:
        wait_for_resources:
        stall_timeout:
        on_stall:
        resume_from:
        debugger:
        tags:
        accept:
        """
    )
    assert jobspec(**empty) == jobspec()
    assert jobspec(ray={"resources": None}) == jobspec()
    sized = jobspec(resources={"nnodes": None, "gpus_per_node": 2})
    assert (sized.nnodes, sized.gpus_per_node) == (None, 2)


def test_empty_values_in_free_form_mappings_remain() -> None:
    given = {"env_vars": {"A": None}, "tags": {"a": None}, "unknown": None, "ray": {"address": None}}
    assert without_empty(given, OPTIONS) == {"env_vars": {"A": None}, "tags": {"a": None}, "ray": {}}


def test_unknown_keys_are_named_with_their_path() -> None:
    found = unknown_keys({"a": 1, "ray": {"b": 1, "resources": {"c": 1}}, "env_vars": {"any": 1}}, OPTIONS)
    assert [(finding.where, finding.key) for finding in found] == [
        ("a", "a"),
        ("ray.b", "ray.b"),
        ("ray.resources.c", "ray.resources.c"),
    ]


def test_values_get_the_type_of_their_option() -> None:
    given = {**MINIMAL, "retries": "3", "submission_id": 17, "secrets": "A,B", "accept": "space", "unknown": 1}
    found, values = typed(given)
    assert found == []
    assert [values[key] for key in ("retries", "submission_id", "secrets", "accept")] == [
        3,
        "17",
        ["A", "B"],
        ["space"],
    ]
    assert set(values) == set(OPTIONS)


def test_a_stand_in_replaces_a_value_of_the_wrong_type() -> None:
    found, values = typed({"workload": "dpo", "model": "m", "retries": "often", "resources": {"nnodes": "two"}})
    assert [finding.key for finding in found] == ["workload", "code_path", "dataset", "resources", "retries"]
    assert {finding.todo for finding in found} == {"see `ansible-doc argus.verl.ray_job`"}
    assert (values["workload"], values["model"], values["retries"]) == ("grpo", "m", 0)
    assert (values["code_path"], values["dataset"]) == (STAND_INS["code_path"], STAND_INS["dataset"])
    assert values["resources"] == {"nnodes": None, "gpus_per_node": None}


DEFAULTS: dict[str, Any] = {
    "shared_root": "/mnt",
    "env_vars": {"A": 1, "B": 2},
    "ray": {"address": "http://127.0.0.1:1"},
}


def test_defaults_of_the_cluster_complete_a_jobspec() -> None:
    given = {"workload": "sft", "env_vars": {"B": 3}, "shared_root": None}
    assert with_defaults(given, DEFAULTS) == {
        "workload": "sft",
        "shared_root": "/mnt",
        "env_vars": {"A": 1, "B": 3},
        "ray": {"address": "http://127.0.0.1:1"},
    }


@pytest.mark.parametrize("given", [["x"], None, "grpo.yaml", 3])
def test_anything_but_a_mapping_gets_no_defaults(given: object) -> None:
    assert with_defaults(given, DEFAULTS) == given


def test_a_value_replaces_the_default_of_another_kind() -> None:
    assert with_defaults({"env_vars": ["A"]}, DEFAULTS)["env_vars"] == ["A"]
    assert with_defaults({"shared_root": {"a": 1}}, DEFAULTS)["shared_root"] == {"a": 1}


@pytest.mark.parametrize(
    ("defaults", "own", "merged"),
    [
        ({"a.b": 1, "c": 2}, ["a.b=3"], ["c=2", "a.b=3"]),
        (["a=1"], {"b": {"c": 2}}, ["a=1", "b.c=2"]),
        # However they are written, they are about the same setting.
        ({"a": {"b": 1}}, {"a.b": 2}, ["a.b=2"]),
        (["a=1"], [], ["a=1"]),
        # What cannot be read is reported.
        (["a=1"], ["b"], ["b"]),
        ("a=1", ["b=2"], ["b=2"]),
    ],
)
def test_overrides_are_merged_by_their_keys(defaults: Any, own: Any, merged: Any) -> None:
    assert with_defaults({"trainer_overrides": own}, {"trainer_overrides": defaults}) == {"trainer_overrides": merged}


def test_a_jobspec_without_overrides_gets_the_default_ones() -> None:
    for given in ({}, {"trainer_overrides": None}):
        assert with_defaults(given, {"trainer_overrides": {"a": 1}}) == {"trainer_overrides": {"a": 1}}


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("retries", "2", 2),
        ("retries", "two", "two"),
        ("deadline", 90, "90"),
        ("deadline", "2h", "2h"),
        ("secrets", "A,B", ["A", "B"]),
        ("tags", "team=nlp by=me", {"team": "nlp", "by": "me"}),
        ("resources", {"nnodes": 2}, {"nnodes": 2}),
        ("resources", "two", "two"),
        ("ray", {"address": "http://h:1"}, {"address": "http://h:1"}),
        ("trainer_overrides", "a=1", ["a=1"]),
        ("trainer_overrides", {"a": 1}, {"a": 1}),
        # Whether it is one of the choices is checked with the JobSpec.
        ("workload", "dpo", "dpo"),
    ],
)
def test_values_of_the_command_line_get_the_types_of_their_keys(key: str, value: Any, expected: Any) -> None:
    assert converted(key, value) == expected


def test_names_of_secrets_are_not_masked() -> None:
    """They are no secrets. Without the setting Ansible warns about the name of the option."""
    assert OPTIONS["secrets"]["no_log"] is False
