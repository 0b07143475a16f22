#!/usr/bin/env python3
"""Write docs/jobspec.schema.json, the JSON schema with which editors complete and validate JobSpecs.

jobspec_options() describes the keys as options of Ansible, also for generate_docs.py; object_schema() translates them.
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
# JSON's names of Ansible's types. Ansible takes a number for a string as well. `raw` is missing: it takes any value.
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
    annotation: Any = field.annotation
    if get_origin(annotation) in (types.UnionType, Union):
        annotation = next(member for member in get_args(annotation) if member is not type(None))
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    option: dict[str, Any] = {"description": field.description}
    value_type = annotation
    if name == OVERRIDES:
        option["type"] = "raw"  # a list or a mapping
    elif get_origin(annotation) is tuple:
        value_type = get_args(annotation)[0]
        option |= {"type": "list", "elements": "str"}
    elif get_origin(annotation) is Literal or name in DURATIONS:
        option["type"] = "str"
    else:
        option["type"] = ANSIBLE_TYPES[get_origin(annotation) or annotation]
    if get_origin(value_type) is Literal:
        option["choices"] = list(get_args(value_type))
    if field.is_required():
        option["required"] = True
    elif field.default is not None:
        option["default"] = field.default
    return option


def jobspec_options(keys: Mapping[str, Any] = KEYS, prefix: str = "") -> dict[str, Any]:
    """The keys of a JobSpec or of a section as options of a module. prefix: of the section, such as `resources.`."""
    fields = {path: name for name, path in JobSpec.paths().items()}
    options = {}
    for key, section_keys in keys.items():
        path = f"{prefix}{key}"
        below = jobspec_options(section_keys, f"{path}.")
        section = {"description": SECTIONS.get(path), "type": "dict", "default": {}, "suboptions": below}
        options[key] = section if below else documented_option(fields[path])
    return options


def value_schema(option: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the value of an option."""
    kind, choices = option["type"], option.get("choices")
    # In YAML, an optional key may be without a value.
    empty = [] if option.get("required") else [None]
    schema: dict[str, Any] = {"description": option["description"]}
    if choices and kind != "list":
        schema["enum"] = [*choices, *empty]
    elif kind in JSON_TYPES:
        schema["type"] = [*JSON_TYPES[kind], *("null" for _nothing in empty)]
    if "default" in option:
        schema["default"] = option["default"]
    if "suboptions" in option:
        schema |= object_schema(option["suboptions"])
    if kind == "list":
        schema["items"] = {"enum": choices} if choices else {"type": JSON_TYPES["str"]}
    return schema


def object_schema(options: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a mapping with these options."""
    schema: dict[str, Any] = {
        "properties": {name: value_schema(option) for name, option in options.items()},
        "additionalProperties": False,
    }
    required = [name for name, option in options.items() if option.get("required")]
    return schema | ({"required": required} if required else {})


def schema_text() -> str:
    """The schema as JSON. A command requires other keys than a training."""
    keys = object_schema(jobspec_options())
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
