#!/usr/bin/env python3
"""Write docs/jobspec.schema.json, with which editors complete and validate JobSpecs.

Keys and types come from the argument spec of the module ray_job, and descriptions from its documentation.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.options import OPTIONS
from ansible_collections.argus.verl.plugins.modules.ray_job import DOCUMENTATION

TARGET = Path(__file__).resolve().parents[1] / "docs" / "jobspec.schema.json"
# The types in JSON for each of Ansible's types. Ansible accepts a number as a string, and anything as `raw`.
TYPES = {
    "str": ["string", "number"],
    "path": ["string"],
    "int": ["integer"],
    "float": ["number"],
    "bool": ["boolean"],
    "list": ["array"],
    "dict": ["object"],
}
# Ansible's markup: C(code), V(value), O(option), RV(returned), E(variable), M(module), I(italic), B(bold), U(link).
MARKUP = re.compile(r"\b(C|V|O|RV|E|M|I|B|U)\(((?:[^()]|\([^()]*\))*)\)")


def plain(description: str | list[str]) -> str:
    """Ansible's markup as Markdown."""
    text = " ".join([description] if isinstance(description, str) else description)
    return MARKUP.sub(lambda found: f"`{found[2].removeprefix('jobspec.')}`", text)


def value_schema(option: Mapping[str, Any], documented: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one key at any depth."""
    kind = option.get("type", "str")
    # A key without a value counts as not given.
    empty = [] if option.get("required") else [None]
    schema: dict[str, Any] = {"description": plain(documented["description"])}
    if "choices" in option and kind != "list":
        schema["enum"] = [*option["choices"], *empty]
    elif kind in TYPES:
        schema["type"] = [*TYPES[kind], *("null" for _nothing in empty)]
    if "default" in option:
        schema["default"] = option["default"]
    if "options" in option:
        schema |= object_schema(option["options"], documented["suboptions"])
    if kind == "list" and "elements" in option:
        items = {"enum": option["choices"]} if "choices" in option else {"type": TYPES[option["elements"]]}
        schema["items"] = items
    return schema


def object_schema(options: Mapping[str, Any], documented: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "properties": {name: value_schema(option, documented[name]) for name, option in options.items()},
        "additionalProperties": False,
    }
    required = [name for name, option in options.items() if option.get("required")]
    return schema | ({"required": required} if required else {})


def jobspec_schema(options: Mapping[str, Any], documentation: str) -> dict[str, Any]:
    documented = yaml.safe_load(documentation)["options"]["jobspec"]["suboptions"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "JobSpec of argus.verl",
        "description": "A training job with verl. The inventory can set defaults for all jobs.",
        "type": "object",
        **object_schema(options, documented),
    }


def text() -> str:
    return json.dumps(jobspec_schema(OPTIONS, DOCUMENTATION), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
    sys.stdout.write(f"{TARGET}\n")
