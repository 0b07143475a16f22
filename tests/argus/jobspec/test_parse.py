from __future__ import annotations

from typing import Any

import pytest
from jobs import MINIMAL, findings_of, jobspec

from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec import KEYS


@pytest.mark.parametrize("value", [None, [], "grpo.yaml", 3])
def test_anything_but_a_mapping_is_refused(value: object) -> None:
    (finding,), spec = parse_jobspec(value)
    assert (finding.where, spec) == ("jobspec", None)


def test_all_problems_of_a_kind_are_reported_at_once() -> None:
    types = findings_of({"worklod": 1, "resources": {"nnodes": 0}, "deadline": "soon", "retries": "often", "tags": []})
    assert {finding.key for finding in types} == {"worklod", "resources.nnodes", "deadline", "retries", "tags"}
    values = findings_of({"unknown": 1, "code_path": "/x", "env_vars": {"RAY_X": 1}, "model": "a b"})
    assert {finding.key for finding in values} == {"unknown", "code_path", "env_vars.RAY_X", "model"}


def test_an_empty_value_counts_as_not_given() -> None:
    empty = dict.fromkeys(KEYS.keys() - MINIMAL)
    resources = {"entrypoint_resources": None, "entrypoint_num_cpus": None}
    assert jobspec(**empty) == jobspec(ray={"address": None, "resources": resources}) == jobspec()
    assert jobspec(ray={"resources": None}) == jobspec()
    sized = jobspec(resources={"nnodes": None, "gpus_per_node": 2})
    assert (sized.nnodes, sized.gpus_per_node) == (None, 2)


def test_values_get_the_type_of_their_key() -> None:
    values = {"retries": "3", "submission_id": 17, "secrets": "A,B", "accept": "space", "tags": '{"a": 1}'}
    spec = jobspec(**values)
    assert (spec.retries, spec.submission_id, spec.secrets) == (3, "17", ("A", "B"))
    assert (spec.accept, spec.tags) == (("space",), {"a": 1})


@pytest.mark.parametrize(
    "changes",
    [
        *({"secrets": {"HF_TOKEN": "hf_value"}}, {"secrets": [["hf_value"]]}, {"tags": ["hf_value"]}),
        *({"env_vars": "TOKEN: hf_value"}, {"env_vars": ["TOKEN=hf_value"]}, {"ray": {"runtime_env": ["hf_value"]}}),
    ],
    ids=str,
)
def test_a_secret_in_the_wrong_place_is_not_shown(changes: dict[str, Any]) -> None:
    findings = findings_of(changes)
    assert findings and "hf_value" not in str(findings)
