#!/usr/bin/env python3
"""Write docs/jobspec.schema.json, the JSON schema with which editors complete and validate JobSpecs.

The fields in argus/jobspec/spec.py become options as a module of Ansible documents them, and these become the schema.
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
# Ansible's names of Python's types.
ANSIBLE_TYPES = {str: "str", int: "int", float: "float", bool: "bool", dict: "dict", tuple: "list"}
# JSON's names of Ansible's types. Ansible takes a number for a string as well. Any value fits `raw`.
JSON_TYPES = {
    "str": ["string", "number"],
    "int": ["integer"],
    "float": ["number"],
    "list": ["array"],
    "dict": ["object"],
}


def documented_option(name: str) -> dict[str, Any]:
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
        documented["type"] = ANSIBLE_TYPES[get_origin(kind) or kind]
    if name == OVERRIDES:
        documented = {"description": field.description, "type": "raw"}
    if get_origin(choices) is Literal:
        documented["choices"] = list(get_args(choices))
    if field.is_required():
        documented["required"] = True
    elif field.default is not None:
        documented["default"] = field.default
    return documented


def suboptions(keys: Mapping[str, Any] = KEYS, prefix: str = "") -> dict[str, Any]:
    """The keys of a JobSpec as options of a module; a section such as `resources` has the options below it."""
    fields = {path: name for name, path in JobSpec.paths().items()}
    options = {}
    for key, below in keys.items():
        path = f"{prefix}{key}"
        section: dict[str, Any] = {"description": SECTIONS.get(path), "type": "dict", "default": {}}
        below_options = {"suboptions": suboptions(below, f"{path}.")} if below else {}
        options[key] = section | below_options if below else documented_option(fields[path])
    return options


def value_schema(documented: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the value of an option."""
    kind, choices = documented["type"], documented.get("choices")
    # In YAML, an optional key may be without a value.
    empty = [] if documented.get("required") else [None]
    schema: dict[str, Any] = {"description": documented["description"]}
    if choices and kind != "list":
        schema["enum"] = [*choices, *empty]
    elif kind in JSON_TYPES:
        schema["type"] = [*JSON_TYPES[kind], *("null" for _nothing in empty)]
    if "default" in documented:
        schema["default"] = documented["default"]
    if "suboptions" in documented:
        schema |= object_schema(documented["suboptions"])
    if kind == "list":
        schema["items"] = {"enum": choices} if choices else {"type": JSON_TYPES["str"]}
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
    always_required = [name for name in keys.pop("required") if name not in OPTIONAL_FOR_COMMANDS]
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "JobSpec of argus.verl",
        "description": "A job, such as a training with verl. The inventory can set defaults for all jobs.",
        "type": "object",
        **keys,
        "required": always_required,
        "if": {"properties": {"workload": {"const": COMMAND}}},
        "then": {"required": ["command"]},
        "else": {"required": list(OPTIONAL_FOR_COMMANDS)},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text(), encoding="utf-8")
    sys.stdout.write(f"{SCHEMA}\n")
