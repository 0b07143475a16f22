# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds the column of messages, for whole batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StagingError
from .arrow import as_text, is_blank, numbers, running
from .schema import is_text

# pyarrow's own types, which are not available to the type checker.
Array = Any


@dataclass(frozen=True)
class Messages:
    """Some messages of each row of a batch.

    lengths: how many messages each row has. row, values: for all messages in order, its row and its fields.
    """

    lengths: Array
    row: Array
    values: Array

    @classmethod
    def one_per_row(cls, role: str, content: Array, kind: Any = None) -> Messages:
        """One message for each row. kind: the type of other messages, which may have further fields."""
        import pyarrow

        count = len(content)
        if kind is None:
            kind = pyarrow.struct([("role", pyarrow.string()), ("content", content.type)])
        check_text(kind)
        known = {"role": pyarrow.repeat(role, count), "content": content}
        fields = [kind.field(index) for index in range(kind.num_fields)]
        arrays = [
            known[each.name].cast(each.type) if each.name in known else pyarrow.nulls(count, each.type)
            for each in fields
        ]
        values = pyarrow.StructArray.from_arrays(arrays, fields=fields)
        return cls(pyarrow.repeat(pyarrow.scalar(1, pyarrow.int64()), count), numbers(0, count), values)

    @classmethod
    def of(cls, column: Array) -> Messages:
        """The messages of a column of lists."""
        import pyarrow
        from pyarrow import compute, types

        if types.is_fixed_size_list(column.type):
            column = column.cast(pyarrow.list_(column.type.value_type))
        lengths = compute.fill_null(compute.list_value_length(column), 0).cast(pyarrow.int64())
        row = compute.list_parent_indices(column).cast(pyarrow.int64())
        return cls(lengths, row, compute.list_flatten(column))

    def role(self, indices: Array) -> Array:
        from pyarrow import compute

        return as_text(compute.struct_field(self.values.take(indices), "role"))

    def firsts(self) -> Array:
        """The indices of the first message of each row that has messages."""
        from pyarrow import compute

        return running(self.lengths).slice(0, len(self.lengths)).filter(compute.greater(self.lengths, 0))

    def with_instruction(self, instruction: str) -> Messages:
        """The messages with a text added to the last one of each row; an empty message stays empty."""
        import pyarrow
        from pyarrow import compute

        kind = self.values.type
        check_text(kind)
        content = as_text(compute.struct_field(self.values, "content"))
        lasts = compute.subtract(running(self.lengths).slice(1), 1).filter(compute.greater(self.lengths, 0))
        is_last = compute.is_in(numbers(0, len(content)), value_set=lasts)
        space = "" if instruction[:1].isspace() else " "
        longer = compute.binary_join_element_wise(content, instruction, space)
        content = compute.if_else(compute.and_(is_last, compute.invert(is_blank(content))), longer, content)
        names = [kind.field(index).name for index in range(kind.num_fields)]
        arrays = [content if name == "content" else compute.struct_field(self.values, name) for name in names]
        return Messages(self.lengths, self.row, pyarrow.StructArray.from_arrays(arrays, names))


def check_text(kind: Any) -> None:
    content = kind.field(kind.get_field_index("content")).type
    if not is_text(content):
        what = f"has content of type {content}, to which no text can be added."
        raise StagingError("columns.prompt", what, "Omit system_prompt and instruction, or convert it to text.")


def messages_of(parts: Sequence[Messages], count: int) -> Array:
    """The messages of all parts, row by row, in the order of the parts."""
    import pyarrow
    from pyarrow import compute

    # Sorting is stable: within a row the parts stay in their order.
    order = compute.sort_indices(pyarrow.concat_arrays([part.row for part in parts]))
    values = pyarrow.concat_arrays([part.values for part in parts]).take(order)
    lengths = pyarrow.repeat(pyarrow.scalar(0, pyarrow.int64()), count)
    for part in parts:
        lengths = compute.add(lengths, part.lengths)
    return pyarrow.ListArray.from_arrays(running(lengths).cast(pyarrow.int32()), values)
