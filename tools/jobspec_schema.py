#!/usr/bin/env python3
"""Write docs/jobspec.schema.json, with which editors complete and validate JobSpecs.

The keys of a JobSpec are defined in argus/jobspec/spec.py.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from argus.archive.plan import COMMAND
from argus.jobspec.owned import OVERRIDES
from argus.jobspec.spec import DURATIONS, KEYS, OPTIONAL_FOR_COMMANDS, SECTIONS, JobSpec

SCHEMA = REPO / "docs" / "jobspec.schema.json"
# Ansible's types, and what they are in JSON. A number is accepted as a string, and anything as `raw`.
KINDS = {str: "str", int: "int", float: "float", bool: "bool", dict: "dict", tuple: "list"}
TYPES = {
    "str": ["string", "number"],
    "int": ["integer"],
    "float": ["number"],
    "list": ["array"],
    "dict": ["object"],
}


def option(name: str) -> dict[str, Any]:
    """A field of the JobSpec as an option of a module, with its description in Markdown."""
    field = JobSpec.model_fields[name]
    kind: Any = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(member for member in get_args(kind) if member is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    documented: dict[str, Any] = {"description": field.description}
    choices = kind
    if get_origin(kind) is tuple:
        choices = get_args(kind)[0]
        documented |= {"type": "list", "elements": "str"}
    elif get_origin(kind) is Literal or name in DURATIONS:
        documented["type"] = "str"
    else:
        documented["type"] = KINDS[get_origin(kind) or kind]
    if name == OVERRIDES:
        documented = {"description": field.description, "type": "raw"}
    if get_origin(choices) is Literal:
        documented["choices"] = list(get_args(choices))
    if field.is_required():
        documented["required"] = True
    elif field.default is not None:
        documented["default"] = field.default
    return documented


def suboptions(keys: Mapping[str, Any] = KEYS, where: str = "") -> dict[str, Any]:
    """The keys of a JobSpec as options of a module."""
    fields = {path: name for name, path in JobSpec.paths().items()}
    options = {}
    for key, below in keys.items():
        path = f"{where}{key}"
        section: dict[str, Any] = {"description": SECTIONS.get(path), "type": "dict", "default": {}}
        options[key] = section | {"suboptions": suboptions(below, f"{path}.")} if below else option(fields[path])
    return options


def value_schema(documented: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one key at any depth."""
    kind, choices = documented["type"], documented.get("choices")
    # A key without a value counts as not given.
    empty = [] if documented.get("required") else [None]
    schema: dict[str, Any] = {"description": documented["description"]}
    if choices and kind != "list":
        schema["enum"] = [*choices, *empty]
    elif kind in TYPES:
        schema["type"] = [*TYPES[kind], *("null" for _nothing in empty)]
    if "default" in documented:
        schema["default"] = documented["default"]
    if "suboptions" in documented:
        schema |= object_schema(documented["suboptions"])
    if kind == "list":
        schema["items"] = {"enum": choices} if choices else {"type": TYPES["str"]}
    return schema


def object_schema(options: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "properties": {name: value_schema(documented) for name, documented in options.items()},
        "additionalProperties": False,
    }
    required = [name for name, documented in options.items() if documented.get("required")]
    return schema | ({"required": required} if required else {})


def schema_text() -> str:
    keys = object_schema(suboptions())
    always = [name for name in keys.pop("required") if name not in OPTIONAL_FOR_COMMANDS]
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "JobSpec of argus.verl",
        "description": "A job, such as a training with verl. The inventory can set defaults for all jobs.",
        "type": "object",
        **keys,
        "required": always,
        "if": {"properties": {"workload": {"const": COMMAND}}},
        "then": {"required": ["command"]},
        "else": {"required": list(OPTIONAL_FOR_COMMANDS)},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    sys.stdout.write(f"{SCHEMA}\n")
