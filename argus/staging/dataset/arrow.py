# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Functions on pyarrow arrays, which check whole columns without a Python object for each row."""

from __future__ import annotations

from .schema import Array, is_list, is_text


def as_text(array: Array) -> Array:
    """The array as one of the types of text."""
    import pyarrow

    kind = array.type
    return array if kind in (pyarrow.string(), pyarrow.large_string()) else array.cast(pyarrow.large_string())


def is_blank(array: Array) -> Array:
    """Which texts are null, empty or white space."""
    from pyarrow import compute

    trimmed = compute.utf8_trim_whitespace(as_text(array))
    return compute.fill_null(compute.equal(compute.binary_length(trimmed), 0), True)


def running(lengths: Array) -> Array:
    """The offsets of parts with these lengths: where each begins, and where the last one ends."""
    import pyarrow
    from pyarrow import compute

    start = pyarrow.array([0], pyarrow.int64())
    return pyarrow.concat_arrays([start, compute.cumulative_sum(lengths.cast(pyarrow.int64()))])


def numbers(start: int, count: int) -> Array:
    import pyarrow

    return pyarrow.array(range(start, start + count), pyarrow.int64())


class Conversations:
    """The messages of a batch as flat columns, with the row that each belongs to."""

    def __init__(self, column: Array) -> None:
        import pyarrow
        from pyarrow import compute, types

        if types.is_fixed_size_list(column.type):
            column = column.cast(pyarrow.list_(column.type.value_type))
        self.column = column
        self.lengths = compute.fill_null(compute.list_value_length(column), 0)
        self.offsets = running(self.lengths)
        flat = compute.list_flatten(column)
        self.row = compute.list_parent_indices(column)
        self.role = as_text(compute.struct_field(flat, "role"))
        self.content = compute.struct_field(flat, "content")
        self.empty = is_empty(self.content)
        calls = flat.type.get_field_index("tool_calls")
        if calls >= 0:
            # A message that calls a tool may have no content.
            self.empty = compute.and_(self.empty, is_empty(compute.struct_field(flat, "tool_calls")))

    def has_role(self, *roles: str) -> Array:
        """Which messages have one of these roles."""
        import pyarrow
        from pyarrow import compute

        return compute.is_in(self.role, value_set=pyarrow.array(roles, self.role.type))

    def last(self) -> tuple[Array, Array]:
        """The rows that have messages, and the role of the last message of each."""
        from pyarrow import compute

        some = compute.greater(self.lengths, 0)
        ends = compute.subtract(self.offsets.slice(1), 1)
        return compute.indices_nonzero(some), self.role.take(ends.filter(some))

    def per_row(self, messages: Array, separator: bytes) -> Array:
        """One value for each row, joined from the values of its messages."""
        import pyarrow
        from pyarrow import compute

        filled = compute.fill_null(messages.cast(pyarrow.binary()), b"")
        return compute.binary_join(pyarrow.LargeListArray.from_arrays(self.offsets, filled), separator)

    def bytes(self) -> Array:
        """The size of the text of each row, in bytes of UTF-8."""
        from pyarrow import compute

        sums = running(compute.fill_null(compute.binary_length(as_text(self.content)), 0))
        ends = sums.take(self.offsets)
        return compute.subtract(ends.slice(1), ends.slice(0, len(self.lengths)))


def is_empty(array: Array) -> Array:
    """Which contents are empty, for text and for lists of parts."""
    from pyarrow import compute

    if is_text(array.type):
        return is_blank(array)
    if is_list(array.type):
        return compute.equal(compute.fill_null(compute.list_value_length(array), 0), 0)
    return compute.is_null(array)


def as_bytes(array: Array) -> Array:
    """The values of an array of any type as bytes, equal for equal values; null is the same as empty."""
    import pyarrow
    from pyarrow import compute, types

    kind = array.type
    if is_text(kind):
        values = as_text(array).cast(pyarrow.binary())
    elif is_list(kind):
        if types.is_fixed_size_list(kind):
            array = array.cast(pyarrow.list_(kind.value_type))
        offsets = running(compute.fill_null(compute.list_value_length(array), 0))
        parts = as_bytes(compute.list_flatten(array))
        values = compute.binary_join(pyarrow.LargeListArray.from_arrays(offsets, parts), b"\x1e")
    elif types.is_struct(kind) and kind.num_fields:
        # The order of fields can differ between files and has no meaning.
        names = sorted(kind.field(index).name for index in range(kind.num_fields))
        fields = [as_bytes(compute.struct_field(array, name)) for name in names]
        values = compute.binary_join_element_wise(*fields, b"\x1f")
    elif types.is_binary(kind) or types.is_large_binary(kind):
        values = array.cast(pyarrow.binary())
    else:
        values = pyarrow.array([repr(value).encode() for value in array.to_pylist()], pyarrow.binary())
    return compute.fill_null(values, b"")


def fingerprints(values: Array) -> Array:
    """64 bits for each value, equal for equal values.

    Among a million different values, two have the same fingerprint in one of 30 million datasets.
    """
    import pyarrow

    return pyarrow.array(map(hash, values.to_pylist()), pyarrow.int64())


def repeated(values: Array) -> tuple[Array, Array]:
    """The indices of values that occurred before, in order, and for each the index of the first occurrence."""
    import pyarrow
    from pyarrow import compute

    none = pyarrow.array([], pyarrow.int64())
    if compute.count_distinct(values).as_py() == len(values):
        return none, none
    first: dict[int, int] = {}
    later, earlier = [], []
    # Only values that occur more than once.
    counts = compute.value_counts(values)
    many = counts.field("values").filter(compute.greater(counts.field("counts"), 1))
    indices = compute.indices_nonzero(compute.is_in(values, value_set=many))
    for index, value in zip(indices.to_pylist(), values.take(indices).to_pylist(), strict=True):
        if first.setdefault(value, index) != index:
            later.append(index)
            earlier.append(first[value])
    return pyarrow.array(later, pyarrow.int64()), pyarrow.array(earlier, pyarrow.int64())
