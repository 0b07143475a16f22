"""The options of hf_model and rl_dataset are those of the program."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.doc_fragments import staged_item

from argus.staging.dataset.options import Columns, DatasetOptions
from argus.staging.items import ModelItem, Options

# What the program has besides, and what is the controller's.
PROGRAM, CONTROLLER = {"kind", "upload"}, {"from"}
TYPES = {"boolean": "bool", "integer": "int", "string": "str", "array": "list", "object": "dict"}


def documented(module: str) -> dict[str, Any]:
    source = importlib.import_module(f"ansible_collections.argus.verl.plugins.modules.{module}")
    shared = yaml.safe_load(staged_item.ModuleDocFragment.DOCUMENTATION)["options"]
    return {**shared, **yaml.safe_load(source.DOCUMENTATION)["options"]}


@pytest.mark.parametrize(
    ("options", "model"),
    [
        (documented("hf_model"), ModelItem),
        (documented("rl_dataset"), DatasetOptions),
        (documented("rl_dataset")["columns"]["suboptions"], Columns),
    ],
)
def test_documented_options_are_those_of_the_program(options: dict[str, Any], model: type[Options]) -> None:
    fields = {name: field for name, field in model.model_fields.items() if name not in PROGRAM}
    assert set(options) - CONTROLLER == set(fields)
    schema = model.model_json_schema()["properties"]
    for name, field in fields.items():
        said = options[name]
        forms = [form for form in schema[name].get("anyOf", [schema[name]]) if form.get("type") != "null"]
        assert said["type"] == TYPES[forms[0].get("type", "object")], name
        assert said.get("choices") == forms[0].get("enum"), name
        assert said.get("required", False) == field.is_required(), name
        if "default" in said:
            assert said["default"] == field.default, name
        elif not field.is_required():
            assert not field.get_default(call_default_factory=True) or name == "columns", name
