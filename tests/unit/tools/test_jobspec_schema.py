"""The schema for editors and the documentation of ray_job have the keys of a JobSpec."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import yaml
from script_module import script_module

from argus.jobspec.spec import JobSpec

REPO = Path(__file__).resolve().parents[3]
SCHEMA = REPO / "docs" / "jobspec.schema.json"
JOBSPECS = sorted(REPO.glob("inventories/*/jobspecs/*.yaml"))
MINIMAL = {"workload": "grpo", "code_path": "verl-0.9.1", "model": "m", "dataset": "d"}


def generator() -> ModuleType:
    return script_module(REPO / "tools" / "jobspec_schema.py")


def problems(given: Any) -> list[str]:
    schema = json.loads(SCHEMA.read_text())
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(given)]


def test_what_follows_from_the_keys_is_up_to_date() -> None:
    assert SCHEMA.read_text() == generator().schema_text(), "run `make schema`"


def test_the_schema_is_valid() -> None:
    jsonschema.Draft7Validator.check_schema(json.loads(SCHEMA.read_text()))


def test_descriptions_have_no_markup() -> None:
    text = SCHEMA.read_text()
    assert text.count('"description"') > len(JobSpec.model_fields)
    for markup in ("C(", "O(", "V(", "RV("):
        assert markup not in text


@pytest.mark.parametrize("file", JOBSPECS, ids=lambda file: f"{file.parts[-3]}-{file.stem}")
def test_our_jobspecs_are_valid_and_name_the_schema(file: Path) -> None:
    text = file.read_text()
    assert problems(yaml.safe_load(text)) == []
    prefix, _dummy, path = text.splitlines()[0].partition("$schema=")
    assert prefix == "# yaml-language-server: "
    assert (file.parent / path).resolve() == SCHEMA


def test_the_schema_accepts_what_the_module_accepts() -> None:
    nested = {"resources": {"nnodes": 2, "gpus_per_node": None}, "ray": {"resources": {"entrypoint_num_cpus": 0.5}}}
    assert problems({**MINIMAL, **nested, "submission_id": None}) == []
    for overrides in (["a=1"], {"a.b": {"c": 1}}):
        assert problems({**MINIMAL, "trainer_overrides": overrides}) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"code_pth": "x"}, "'code_pth' was unexpected"),
        ({"resources": {"nodes": 1}}, "'nodes' was unexpected"),
        ({"resources": {"nnodes": "two"}}, "'two' is not of type 'integer', 'null'"),
        ({"workload": "dpo"}, "'dpo' is not one of ['ppo', 'grpo', 'sft', 'eval', 'command']"),
        ({"workload": None}, "None is not one of ['ppo', 'grpo', 'sft', 'eval', 'command']"),
        ({"model": None}, "None is not of type 'string', 'number'"),
        ({"model": ["m"]}, "['m'] is not of type 'string', 'number'"),
        ({"env_vars": ["A=1"]}, "['A=1'] is not of type 'object', 'null'"),
    ],
)
def test_the_schema_refuses_what_the_module_refuses(change: dict[str, Any], message: str) -> None:
    assert any(message in problem for problem in problems({**MINIMAL, **change}))


def test_a_missing_key_is_named() -> None:
    assert problems({"workload": "sft"}) == [
        "'code_path' is a required property",
        "'model' is a required property",
        "'dataset' is a required property",
    ]
