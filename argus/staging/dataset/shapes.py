# SPDX-License-Identifier: Apache-2.0
"""Checks that rows fit into Parquet, which has one type for each column, and come back from it as they were.

Parquet gives each object in a column the keys of all others at the same place, with null. Chat templates render such
nulls in arguments, tools and parts of content, so these need equal keys. Readers of messages, and of objects outside
of lists, take null for a missing key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...checks.dataset import is_list, is_text
from ..options import StagingError

VALUE_KINDS = {str: "text", int: "a number", float: "a number", bool: "a boolean"}
LIST_KIND = "a list"
# The keys of an object, or the kind of another value.
Shape = frozenset[str] | str


def value_shapes(value: object, place: str = "") -> Iterator[tuple[str, Shape]]:
    """The places in a value, such as messages[].content, each with the shape that the value has there."""
    if isinstance(value, dict):
        yield place, frozenset(value)
        for key, inner in value.items():
            yield from value_shapes(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        yield place, LIST_KIND
        for inner in value:
            yield from value_shapes(inner, f"{place}[]")
    elif value is not None:
        yield place, VALUE_KINDS[type(value)]


def type_shapes(arrow_type: Any, place: str) -> Iterator[tuple[str, Shape]]:
    """The same for the Arrow type of a column; nothing for types that JSON does not have."""
    from pyarrow import types

    if types.is_struct(arrow_type):
        yield place, frozenset(field.name for field in arrow_type)
        for field in arrow_type:
            yield from type_shapes(field.type, f"{place}.{field.name}")
    elif is_list(arrow_type):
        yield place, LIST_KIND
        yield from type_shapes(arrow_type.value_type, f"{place}[]")
    elif is_text(arrow_type) and not types.is_null(arrow_type):
        yield place, VALUE_KINDS[str]
    elif types.is_integer(arrow_type) or types.is_floating(arrow_type):
        yield place, VALUE_KINDS[int]


class ShapeComparison:
    """Compares the shapes of all rows and files of a split, place by place."""

    def __init__(self) -> None:
        # By place: the first shape, and the name of the row or file that has it.
        self.first: dict[str, tuple[Shape, str]] = {}
        # By place.
        self.problems: dict[str, str] = {}

    def add(self, shapes: Iterator[tuple[str, Shape]], where: str) -> None:
        """Compares the shapes of a row or a file with the earlier ones. where: its name, for messages."""
        for place, shape in shapes:
            earlier, first = self.first.setdefault(place, (shape, where))
            if earlier != shape and not (allows_other_keys(place, shape) and isinstance(earlier, frozenset)):
                self.problems.setdefault(
                    place, f"{place}: {where} has {shape_text(shape)}, {first} {shape_text(earlier)}"
                )

    def check(self, path: Path) -> None:
        """Raises one StagingError for all problems."""
        if self.problems:
            text = "\n- ".join(["does not fit into Parquet, which has one type for a column:", *self.problems.values()])
            remedy = (
                "Give a column one kind of value, and its objects the same keys. Some chat templates take arguments as "
                "JSON text; other tools can be text in a system message, and images <image> there and a column images."
            )
            raise StagingError(path, f"{text}\n", remedy)


def allows_other_keys(place: str, shape: Shape) -> bool:
    """Whether objects at a place may have different keys, because readers take null for a missing key."""
    return isinstance(shape, frozenset) and ("[" not in place or bool({"role", "from"} & shape))


def shape_text(shape: Shape) -> str:
    return shape if isinstance(shape, str) else f"the keys {', '.join(sorted(shape)) or 'of nothing'}"
