#!/usr/bin/env python3
"""Write the documentation of the module stage, from the options of items that argus/staging/items.py defines."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from jobspec_schema import KINDS
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from argus.staging.items import Dataset, Model, Snapshot

MODULE = Path(__file__).resolve().parents[1] / "plugins" / "modules" / "stage.py"
BLOCK = re.compile(
    r"(?P<begin>^  # begin generated: [^\n]*\n).*?(?P<end>^  # end generated$)", re.DOTALL | re.MULTILINE
)
# The variables of the role, and the items of each.
VARIABLES = {"staging_models": Model, "staging_datasets": Dataset, "staging_snapshots": Snapshot}
ITEMS = {"models": ("Models", Model), "datasets": ("Datasets", Dataset), "snapshots": ("Versions of verl", Snapshot)}


def option(field: FieldInfo) -> dict[str, Any]:
    """A field as an option of a module, with its description in Markdown."""
    documented: dict[str, Any] = {"description": field.description}
    kind: Any = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(each for each in get_args(kind) if each is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        documented |= {"type": "str", "choices": list(get_args(kind))}
    elif get_origin(kind) is list:
        (element,) = get_args(kind)
        documented |= {"type": "list"} | nested(element, "elements")
    else:
        documented |= nested(kind, "type")
    if field.is_required():
        documented["required"] = True
    elif field.default is not None and not isinstance(field.default, BaseModel):
        documented["default"] = field.default
    return documented


def nested(kind: type, key: str) -> dict[str, Any]:
    if issubclass(kind, BaseModel):
        return {key: "dict", "suboptions": options(kind)}
    return {key: KINDS[kind]}


def options(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The options of a model. Its state, which it inherits, comes last."""
    fields = sorted(model.model_fields.items(), key=lambda each: each[0] == "state")
    return {field.alias or name: option(field) for name, field in fields}


def with_markup(documented: Any) -> Any:
    """Options whose descriptions have Ansible's markup."""
    if isinstance(documented, str):
        return re.sub(r"`([^`]*)`", r"C(\1)", documented)
    if not isinstance(documented, dict):
        return documented
    return {name: with_markup(value) if name != "default" else value for name, value in documented.items()}


def module_text() -> str:
    """The module with the documentation of its items."""
    documented = {
        name: {
            "description": f"{label} to stage.",
            "type": "list",
            "elements": "dict",
            "default": [],
            "suboptions": with_markup(options(model)),
        }
        for name, (label, model) in ITEMS.items()
    }
    block = yaml.safe_dump(documented, sort_keys=False, allow_unicode=True, width=88)
    indented = "".join(f"  {line}\n" for line in block.splitlines())
    return BLOCK.sub(lambda match: match[1] + indented + match[2], MODULE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    MODULE.write_text(module_text(), encoding="utf-8")
    sys.stdout.write(f"{MODULE}\n")
