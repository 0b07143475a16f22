from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from jobs import MINIMAL, MISSING, findings_of, jobspec

from argus.jobspec.parse import (
    SEPARABLE,
    examinable,
    parse_jobspec,
)
from argus.jobspec.spec import KEYS, JobSpec

SIX_LINES = """
workload: grpo
code_path: verl-0.9.1
model: Qwen2.5-7B-Instruct
dataset: gsm8k
reward_fn_path: rewards.py:score
trainer_overrides: {data.train_batch_size: 256}
"""


def test_six_lines_are_enough() -> None:
    findings, spec = parse_jobspec(yaml.safe_load(SIX_LINES))
    assert findings == []
    assert spec
    assert spec.reward_fn_path == "rewards.py:score"
    assert spec.trainer_overrides == ("data.train_batch_size=256",)


def test_the_given_jobspec_is_not_changed() -> None:
    given = {**MINIMAL, "shared_root": "/private/", "resources": {"nnodes": None}, "unknown": 1}
    before = json.dumps(given)
    parse_jobspec(given)
    assert json.dumps(given) == before


def test_a_misspelt_required_key_is_one_finding() -> None:
    given = {("worklod" if key == "workload" else key): value for key, value in MINIMAL.items()}
    (finding,) = parse_jobspec(given)[0]
    assert (finding.key, finding.todo) == ("worklod", 'did you mean "workload"?')
    # One that is there as well, and wrong, is another problem.
    assert [each.key for each in parse_jobspec({**given, "workload": "dpo"})[0]] == ["worklod", "workload"]
    # As is one that only looks missing because its name is like no other.
    assert [each.key for each in parse_jobspec({**given, "worklod": None, "zzz": 1})[0]] == ["zzz", "workload"]


@pytest.mark.parametrize("given", [None, [], "grpo.yaml", 3])
def test_anything_but_a_mapping_is_refused(given: object) -> None:
    findings, spec = parse_jobspec(given)
    assert [(finding.where, finding.what) for finding in findings] == [("jobspec", f"is a {type(given).__name__}")]
    assert spec is None


def test_all_problems_are_reported_at_once() -> None:
    changes = {"submission_id": "A", "code_path": "/x", "env_vars": {"RAY_X": 1}, "resources": {"nnodes": 0}}
    findings = findings_of({**changes, "unknown": 1, "model": "a b", "deadline": "soon", "retries": "often"})
    assert [finding.key for finding in findings] == [
        "unknown",
        "submission_id",
        "resources.nnodes",
        "retries",
        "deadline",
        "code_path",
        "model",
        "env_vars.RAY_X",
    ]


def test_an_empty_value_counts_as_not_given() -> None:
    empty = dict.fromkeys(KEYS.keys() - MINIMAL)
    resources = {"entrypoint_resources": None, "entrypoint_num_cpus": None}
    assert jobspec(**empty) == jobspec(ray={"address": None, "resources": resources}) == jobspec()
    assert jobspec(ray={"resources": None}) == jobspec()
    sized = jobspec(resources={"nnodes": None, "gpus_per_node": 2})
    assert (sized.nnodes, sized.gpus_per_node) == (None, 2)


def test_values_get_the_type_of_their_key() -> None:
    given = {"retries": "3", "submission_id": 17, "secrets": "A,B", "accept": "space", "tags": '{"a": 1}'}
    spec = jobspec(**given)
    assert (spec.retries, spec.submission_id, spec.secrets) == (3, "17", ("A", "B"))
    assert (spec.accept, spec.tags) == (("space",), {"a": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"secrets": {"HF_TOKEN": "hf_value"}},
        {"secrets": [["hf_value"]]},
        {"env_vars": "TOKEN: hf_value"},
        {"env_vars": ["TOKEN=hf_value"]},
        {"ray": {"runtime_env": ["hf_value"]}},
        {"tags": ["hf_value"]},
    ],
    ids=str,
)
def test_a_secret_in_the_wrong_place_is_not_shown(changes: dict[str, Any]) -> None:
    findings = findings_of(changes)
    assert findings and "hf_value" not in str(findings)


# --- A JobSpec without the keys that have findings --------------------------------------------------------------------


def remaining(changes: dict[Any, Any]) -> JobSpec | None:
    """The examinable part of the smallest JobSpec with changes that have findings."""
    given = {key: value for key, value in {**MINIMAL, **changes}.items() if value != MISSING}
    findings, spec = parse_jobspec(given)
    assert findings and spec
    return examinable(findings, spec)


# Each key can be wrong alone, and what then replaces it.
REPLACED: list[tuple[dict[str, Any], str, Any]] = [
    ({"submission_id": "A"}, "submission_id", None),
    ({"launcher": "torchrun"}, "launcher", "ray"),
    ({"code_path": "/x"}, "code_path", "x"),
    ({"model": MISSING}, "model", "x"),
    ({"dataset": "a b"}, "dataset", "x"),
    ({"env_vars": {"RAY_X": 1, "GOOD": 1}}, "env_vars", {}),
    ({"secrets": ["A-B", "GOOD"]}, "secrets", ()),
    ({"retries": -1}, "retries", 0),
    ({"on_stall": "kill"}, "on_stall", "report"),
    ({"start_timeout": "long"}, "start_timeout", 3600),
    ({"stall_timeout": "long"}, "stall_timeout", 1800),
    ({"resume_from": "A"}, "resume_from", None),
    ({"depends_on": "A"}, "depends_on", None),
    ({"debugger": "pdb"}, "debugger", None),
    ({"tags": {"a": []}}, "tags", {}),
    ({"accept": ["all"]}, "accept", ()),
    ({"check_reward": -1}, "check_reward", 0),
    ({"deadline": "soon"}, "deadline", None),
    ({"wait_for_resources": "long"}, "wait_for_resources", None),
    ({"priority": "high"}, "priority", 0),
    ({"queue_patience": "long"}, "queue_patience", 3600),
]


@pytest.mark.parametrize(("changes", "key", "replaced"), REPLACED, ids=[row[1] for row in REPLACED])
def test_a_separable_key_is_replaced(changes: dict[str, Any], key: str, replaced: Any) -> None:
    rest = remaining({"retries": 3, "tags": {"kept": 1}, **changes})
    assert rest is not None
    assert getattr(rest, key) == replaced
    kept = jobspec(retries=3, tags={"kept": 1}).model_copy(update={key: replaced})
    assert rest.model_copy(update={"launcher": "ray"}) == kept


def test_every_separable_key_was_tried() -> None:
    assert {key for _changes, key, _replaced in REPLACED} == SEPARABLE
    others = {"workload", "shared_root", "ray", "resources", "trainer_overrides", "reward_fn_path"}
    assert set(KEYS) - SEPARABLE == others


@pytest.mark.parametrize(
    "changes",
    [
        {"workload": "dpo"},
        {"workload": MISSING},
        {"shared_root": "private"},
        {"ray": {"address": "head"}},
        {"ray": {"adress": "x"}},
        {"resources": {"nnodes": 0}},
        {"resources": 2},
        {"trainer_overrides": "a=1"},
        {"trainer_overrides": ["a"]},
        {"": 1},
        # One of two is enough.
        {"model": "a b", "resources": {"nnodes": 0}},
    ],
    ids=str,
)
def test_a_jobspec_that_cannot_be_examined(changes: dict[Any, Any]) -> None:
    assert remaining(changes) is None


def test_only_the_wrong_overrides_are_removed() -> None:
    overrides = ["data.seed=1", "++hydra.x=2", "~algorithm.adv_estimator", "+new@pkg=1", "trainer.nnodes_too=1"]
    rest = remaining({"trainer_overrides": overrides})
    assert rest is not None
    assert rest.trainer_overrides == ("data.seed=1", "+new@pkg=1", "trainer.nnodes_too=1")


def test_a_jobspec_with_an_unknown_key_is_examined() -> None:
    rest = remaining({"modle": "x", "retries": 2})
    assert rest is not None
    assert rest.retries == 2
