"""The schema for editors and the documentation of ray_job have the keys of a JobSpec."""

from __future__ import annotations

import json
from pathlib import Path
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


def problems(jobspec: Any) -> list[str]:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(jobspec)]


def test_what_follows_from_the_keys_is_up_to_date() -> None:
    assert SCHEMA.read_text() == script_module(REPO / "tools" / "jobspec_schema.py").schema_text(), "run `make schema`"


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
    "change",
    [
        *({"code_pth": "x"}, {"resources": {"nodes": 1}}, {"resources": {"nnodes": "two"}}, {"env_vars": ["A=1"]}),
        *({"workload": "dpo"}, {"workload": None}, {"model": None}, {"model": ["m"]}),
    ],
    ids=str,
)
def test_the_schema_refuses_what_the_module_refuses(change: dict[str, Any]) -> None:
    assert len(problems({**MINIMAL, **change})) == 1


def test_keys_are_required() -> None:
    assert len(problems({"workload": "sft"})) == 3
