# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether rows fit into the one type that Parquet has for a column, and come back from it as they were.

Parquet gives an object the keys of all others at its place, with null. A chat template renders those of arguments,
tools and parts of content. Of messages, and of objects outside of lists, readers take null for a missing key.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...checks.rows import is_list, is_text
from ..errors import StagingError

KINDS = {str: "text", int: "a number", float: "a number", bool: "a boolean"}
LIST = "a list"
# The keys of an object, or the kind of another value.
Shape = frozenset[str] | str


def places(value: object, place: str = "") -> Iterator[tuple[str, Shape]]:
    """The shape at each place of a value, such as messages[].content."""
    if isinstance(value, dict):
        yield place, frozenset(value)
        for key, inner in value.items():
            yield from places(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        yield place, LIST
        for inner in value:
            yield from places(inner, f"{place}[]")
    elif value is not None:
        yield place, KINDS[type(value)]


def places_of_type(kind: Any, place: str) -> Iterator[tuple[str, Shape]]:
    """The same of the type of a column; nothing of a type that JSON does not have."""
    from pyarrow import types

    if types.is_struct(kind):
        yield place, frozenset(field.name for field in kind)
        for field in kind:
            yield from places_of_type(field.type, f"{place}.{field.name}")
    elif is_list(kind):
        yield place, LIST
        yield from places_of_type(kind.value_type, f"{place}[]")
    elif is_text(kind) and not types.is_null(kind):
        yield place, KINDS[str]
    elif types.is_integer(kind) or types.is_floating(kind):
        yield place, KINDS[int]


class Shapes:
    """The first shape at each place of all rows, and where it was."""

    def __init__(self) -> None:
        self.first: dict[str, tuple[Shape, str]] = {}
        self.problems: dict[str, str] = {}

    def add(self, found: Iterator[tuple[str, Shape]], where: str) -> None:
        for place, shape in found:
            known, first = self.first.setdefault(place, (shape, where))
            if known != shape and not (is_open(place, shape) and isinstance(known, frozenset)):
                self.problems.setdefault(place, f"{place}: {where} has {shown(shape)}, {first} {shown(known)}")

    def check(self, path: Path) -> None:
        """One StagingError for all problems."""
        if self.problems:
            what = "\n- ".join(["does not fit into Parquet, which has one type for a column:", *self.problems.values()])
            todo = (
                "Give a column one kind of value, and its objects the same keys. Some chat templates take arguments as "
                "JSON text; other tools can be text in a system message, and images <image> there and a column images."
            )
            raise StagingError(path, f"{what}\n", todo)


def is_open(place: str, shape: Shape) -> bool:
    """Whether null means that a key is missing."""
    return isinstance(shape, frozenset) and ("[" not in place or bool({"role", "from"} & shape))


def shown(shape: Shape) -> str:
    return shape if isinstance(shape, str) else f"the keys {', '.join(sorted(shape)) or 'of nothing'}"
