# SPDX-License-Identifier: Apache-2.0
"""Converts dataclasses to JSON, and JSON back to dataclasses, with checks of all types: jobs can write the JSON.

Not with pydantic: the launcher and the controller have nothing but the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

# JSON readers in other languages lose digits of larger integers, and Python cannot convert each of them to a float.
MAX_INTEGER = 1 << 53
TYPE_NAMES: dict[Any, str] = {
    **{str: "text", int: "a whole number", float: "a number", bool: "true or false"},
    **{list: "a list", dict: "a mapping"},
}
Kind = TypeVar("Kind")
field_types = functools.cache(typing.get_type_hints)


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON; dataclasses anywhere in it are mappings."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=dataclasses.asdict)


class MalformedError(ValueError):
    """A stored value has not the type of its field. The message begins with the name of the field."""


def parse(kind: type[Kind], stored: object) -> Kind:
    """Create an instance of a dataclass from a JSON value. Raises MalformedError.

    Unknown keys are ignored, as another version of this collection may have written them. A null counts as missing.
    """
    if not isinstance(stored, Mapping):
        raise MalformedError("it is not a mapping")
    values = {}
    for name, annotation in field_types(typing.cast(typing.Hashable, kind)).items():
        try:
            value = None if stored.get(name) is None else convert(annotation, stored[name])
        except MalformedError as error:
            raise MalformedError(f"{name}: {error}") from None
        if value is not None:
            values[name] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise MalformedError(f"a key is missing: {error}") from None


def convert(annotation: Any, value: object) -> Any:
    """The value as the type of a field; None for a member of an enumeration that only another version has."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is types.UnionType:
        (annotation,) = (argument for argument in arguments if argument is not types.NoneType)
        return convert(annotation, value)
    if origin is tuple:
        return tuple(convert(arguments[0], entry) for entry in exact_value(list, value))
    if origin is Mapping:
        return {key: convert(arguments[1], entry) for key, entry in exact_value(dict, value).items()}
    if annotation is Any:
        return value
    if dataclasses.is_dataclass(annotation):
        return parse(typing.cast(type[Any], annotation), value)
    if issubclass(annotation, StrEnum):
        return annotation(value) if exact_value(str, value) in list(annotation) else None
    if annotation is float and isinstance(value, int) and not isinstance(value, bool):
        return exact_value(int, value)
    return exact_value(annotation, value)


def exact_value(kind: type[Kind], value: object) -> Kind:
    """The value, if it has exactly this type; for Python, bools would be integers. Raises MalformedError."""
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool):
        raise MalformedError(f"is not {TYPE_NAMES[kind]}")
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise MalformedError(f"is not between {-MAX_INTEGER} and {MAX_INTEGER}")
    return value
