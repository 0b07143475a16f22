# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dataclasses from JSON that a job can write: every value has the type of its field, or there is one error."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

# The years 1 and 9999: functions of dates know no others.
EARLIEST, LATEST = -62_135_596_800, 253_402_300_799
# Beyond this, JSON readers in other languages lose digits.
LARGEST = 1 << 53
# One argument of a program cannot be longer.
TEXT_LENGTH = 128 << 10
LIST_LENGTH = 10_000


class MalformedError(ValueError):
    """A stored value is not what its field holds. The message begins with the name of the field."""


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a number."""

    low: float
    high: float


@dataclass(frozen=True)
class IsoTime:
    """A point in time as text, ISO 8601."""


Time = Annotated[float, Bounds(EARLIEST, LATEST)]
Seconds = Annotated[float, Bounds(0, LARGEST)]
Count = Annotated[int, Bounds(0, LARGEST)]
TimeText = Annotated[str, IsoTime()]
Kind = TypeVar("Kind")


def parse(kind: type[Kind], stored: object) -> Kind:
    """An instance of a dataclass from a JSON value. Unknown keys are ignored, and null counts as missing.

    Another version of this collection may have stored the value. Raises MalformedError.
    """
    if not isinstance(stored, Mapping):
        raise MalformedError("it is not a mapping")
    values = {}
    for name, annotation in field_types(typing.cast(typing.Hashable, kind)):
        value = stored.get(name)
        if value is not None:
            try:
                values[name] = checked(annotation, value)
            except MalformedError as error:
                raise MalformedError(f"{name}: {error}") from None
    try:
        return kind(**values)
    except TypeError as error:
        raise MalformedError(f"a key is missing: {error}") from None


@functools.cache
def field_types(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass with their types, None removed from optional ones."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return tuple((each.name, without_none(hints[each.name])) for each in dataclasses.fields(kind))


def without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        (annotation,) = (each for each in typing.get_args(annotation) if each is not types.NoneType)
    return annotation


def checked(annotation: Any, value: object) -> Any:
    """The value as the type that a field is annotated with; raises MalformedError."""
    origin, arguments, is_structure = shape(annotation)
    if origin is Annotated:
        found = checked(arguments[0], value)
        check_limits(arguments[1], found)
    elif origin is tuple:
        found = tuple(checked(arguments[0], each) for each in list_of(value))
    elif origin is Mapping:
        found = {checked(str, key): checked(arguments[1], each) for key, each in mapping_of(value).items()}
    elif is_structure:
        found = parse(annotation, value)
    else:
        found = scalar(annotation, value)
    return found


@functools.cache
def shape(annotation: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """The origin and the arguments of a type, and whether it is a dataclass."""
    return typing.get_origin(annotation), typing.get_args(annotation), dataclasses.is_dataclass(annotation)


def scalar(annotation: Any, value: object) -> Any:
    kind = type(value)
    if annotation is Any:
        # Text, a number, a truth value or null. Nothing that we store is nested without a type.
        annotation = kind if isinstance(value, (str, bool, int, float)) else type(None)
    if annotation is float and kind is int:
        annotation = int
    if kind is not annotation:
        raise MalformedError(f"is not {NAMES.get(annotation, 'a plain value')}")
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, (int, float)) and not -LARGEST <= value <= LARGEST:
        # Not a number (NaN) is not between them either.
        raise MalformedError(f"is not between {-LARGEST} and {LARGEST}")
    return value


NAMES: dict[Any, str] = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


def check_text(value: str) -> None:
    if len(value) > TEXT_LENGTH:
        raise MalformedError(f"has more than {TEXT_LENGTH} characters")
    if not is_text(value):
        raise MalformedError("has characters that no text has")


def is_text(value: str) -> bool:
    """Whether text can be written to a file, and can be part of a path: no null byte, no half of a surrogate pair."""
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def check_limits(limits: object, value: Any) -> None:
    if isinstance(limits, Bounds) and not limits.low <= value <= limits.high:
        raise MalformedError(f"is not between {limits.low} and {limits.high}")
    if isinstance(limits, IsoTime):
        seconds_of(value)


def seconds_of(text: str) -> float:
    """A point in time in seconds since the epoch; 0 for an empty text. Raises MalformedError."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00")) if text else datetime.fromtimestamp(0, UTC)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError) as error:
        raise MalformedError(f"is not a time ({error})") from None


def list_of(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise MalformedError("is not a list")
    if len(value) > LIST_LENGTH:
        raise MalformedError(f"has more than {LIST_LENGTH} entries")
    return value


def mapping_of(value: object) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise MalformedError("is not a mapping")
    if len(value) > LIST_LENGTH:
        raise MalformedError(f"has more than {LIST_LENGTH} entries")
    return value
