"""The options of staged items as argus/staging/items.py defines them, for the README of the role staging."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from jobspec_schema import ANSIBLE_TYPES
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from argus.staging.items import Dataset, Model, Snapshot

# The variables of the role staging, and the type of the items in each.
VARIABLES = {"staging_models": Model, "staging_datasets": Dataset, "staging_snapshots": Snapshot}


def documented_option(field: FieldInfo) -> dict[str, Any]:
    """A field of an item as an option of a module, with its description in Markdown."""
    documented: dict[str, Any] = {"description": field.description}
    kind: Any = field.annotation
    if get_origin(kind) in (types.UnionType, Union):
        kind = next(member for member in get_args(kind) if member is not type(None))
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) is Literal:
        documented |= {"type": "str", "choices": list(get_args(kind))}
    elif get_origin(kind) is list:
        (element,) = get_args(kind)
        documented |= {"type": "list"} | nested_options(element, "elements")
    else:
        documented |= nested_options(kind, "type")
    if field.is_required():
        documented["required"] = True
    elif field.default is not None and not isinstance(field.default, BaseModel):
        documented["default"] = field.default
    return documented


def nested_options(kind: type, key: str) -> dict[str, Any]:
    if issubclass(kind, BaseModel):
        return {key: "dict", "suboptions": item_options(kind)}
    return {key: ANSIBLE_TYPES[kind]}


def item_options(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The options of an item by their names. `state`, which all items have, comes last."""
    fields = sorted(model.model_fields.items(), key=lambda item: item[0] == "state")
    return {field.alias or name: documented_option(field) for name, field in fields}
