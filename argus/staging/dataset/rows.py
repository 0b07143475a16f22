# SPDX-License-Identifier: Apache-2.0
"""Reads rows from Parquet, JSON and CSV with one schema, checks that they fit into Parquet, and writes that."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from ...checks.dataset import is_list, is_text, open_parquet
from ...checks.request import is_lfs_pointer
from ...common.text import one_line, spelling_hint
from ..lock import Progress
from ..options import StagingError

# Whether rows fit into the one type that Parquet has for a column, and come back from it as they were.
#
# Parquet gives an object the keys of all others at its place, with null. A chat template renders those of arguments,
# tools and parts of content. Of messages, and of objects outside of lists, readers take null for a missing key.

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
        self.problems: dict[str, str] = {}  # by place

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


# Reads rows in batches. Files in other formats than Parquet are read as a whole: the types of their columns are known
# only at their end.

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
FORMATS = (".parquet", ".jsonl", ".json", ".csv")
# The size of a batch, and of a row group of the output; it has fewer rows if they are large, for example with images.
BATCH_ROWS, BATCH_BYTES = 16_384, 64 << 20
# The maximum size of a CSV value; the module's own limit is 128 KiB.
MAX_CSV_FIELD_CHARS = 1 << 30
# pyarrow's own types, which are not available to the type checker.
Array = Any
Batch = Any
Schema = Any


@dataclass(frozen=True)
class DataFile:
    """A file with rows, in any format."""

    path: Path
    schema: Schema
    row_count: int
    batches: Callable[[list[str]], Iterator[Batch]]  # reads the columns with these names


@dataclass(frozen=True)
class ColumnSelection:
    """Which columns are read."""

    columns: Sequence[str] = ()  # empty for all columns
    optional: Sequence[str] = ()  # columns that are read as well if a file has them
    texts: Sequence[str] = ()  # the columns in which numbers of JSON become text

    def apply(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of a text file with None for the values of columns that are not read."""
        if not self.columns:
            return row
        row = {name: value if name in (*self.columns, *self.optional) else None for name, value in row.items()}
        numbers = {name: json.dumps(row[name]) for name in self.texts if isinstance(row.get(name), int | float)}
        return {**row, **numbers}


class Rows:
    """The rows of several files in order, with one schema. Raises StagingError if the files do not fit together."""

    def __init__(self, paths: Sequence[Path], progress: Progress, selection: ColumnSelection | None = None) -> None:
        import pyarrow

        selection, shapes = selection or ColumnSelection(), ShapeComparison()
        columns = selection.columns
        files = [open_file(path, progress, selection, shapes) for path in paths]
        self.parts = [file for file in files if file.row_count]
        if not self.parts:
            raise StagingError(", ".join(map(str, paths)), "there are no rows.", "Give files that have rows.")
        for part in self.parts:
            names = part.schema.names
            if missing := [name for name in columns if name not in names]:
                problem = f"has no column {' and no column '.join(missing)}; it has: {', '.join(names)}."
                hint = spelling_hint(missing[0], names)
                remedy = f"Set columns to the names of its columns. {hint[:1].upper()}{hint[1:]}"
                raise StagingError(part.path, problem, remedy.rstrip())
        schemas = [part.schema for part in self.parts]
        if columns:
            names = list(dict.fromkeys([*columns, *selection.optional]))
            schemas = [pyarrow.schema([item.field(name) for name in names if name in item.names]) for item in schemas]
        for part, schema in zip(self.parts, schemas, strict=True):
            for field in schema:
                shapes.add(type_shapes(field.type, field.name), part.path.name)
            shapes.check(part.path)
        self.schema = unify_schemas(schemas)

    def count(self) -> int:
        return sum(part.row_count for part in self.parts)

    def batches(self) -> Iterator[Batch]:
        for part in self.parts:
            names = [name for name in self.schema.names if name in part.schema.names]
            yield from (conform_batch(batch, self.schema) for batch in part.batches(names) if batch.num_rows)


def open_file(path: Path, progress: Progress, selection: ColumnSelection, shapes: ShapeComparison) -> DataFile:
    """The file with its schema, and its rows if it is not Parquet. Raises StagingError if it cannot be read."""
    from pyarrow import ArrowException

    ending = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if ending not in FORMATS or (ending == ".parquet" and path.suffix != ending):
        formats = f"{', '.join(FORMATS)}, and all but the first may be compressed ({', '.join(COMPRESSIONS)})"
        raise StagingError(path, "has an unknown format.", f"Its name must end with one of {formats}.")
    if is_lfs_pointer(path):
        raise StagingError(path, "is a Git LFS pointer, not the file.", "Download it with git lfs pull.")
    try:
        if ending == ".parquet":
            return open_parquet_file(path, progress)
        return read_text_file(path, ending, progress, selection, shapes)
    except (OSError, ValueError, OverflowError, csv.Error, RecursionError, ArrowException) as error:
        problem = f"is not readable as {ending[1:]}: {one_line(error)}."
        raise StagingError(path, problem, "Correct it, or download it again.") from error


def open_parquet_file(path: Path, progress: Progress) -> DataFile:
    with open_parquet(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    count, groups = max(1, metadata.num_rows), range(metadata.num_row_groups)
    row_bytes = max(1, sum(metadata.row_group(group).total_byte_size for group in groups) // count)
    row_bytes_on_disk = path.stat().st_size / count

    def batches(names: list[str]) -> Iterator[Batch]:
        with open_parquet(path) as file:
            for batch in file.iter_batches(max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes)), columns=names):
                progress.add(int(row_bytes_on_disk * batch.num_rows))
                yield batch

    return DataFile(path, schema, metadata.num_rows, batches)


def read_text_file(
    path: Path, ending: str, progress: Progress, selection: ColumnSelection, shapes: ShapeComparison
) -> DataFile:
    """The file with all its rows in memory. ending: .jsonl, .json or .csv."""
    import pyarrow

    with path.open("rb") as file:
        compression = COMPRESSIONS.get(path.suffix)
        content = pyarrow.CompressedInputStream(file, compression) if compression else file
        # Editors on Windows begin a file with a byte order mark, which this encoding skips.
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        rows = csv_rows(text) if ending == ".csv" else json_rows(text, ending)
        tables, counted, numbers = [], 0, count()
        while chunk := [selection.apply(row) for row in islice(rows, BATCH_ROWS)]:
            for row, number in zip(chunk, numbers, strict=False):
                shapes.add(value_shapes(row), f"row {number} of {path.name}")
            shapes.check(path)
            tables.append(pyarrow.Table.from_struct_array(pyarrow.array(chunk)))
            progress.add(file.tell() - counted)
            counted = file.tell()
    table = pyarrow.concat_tables(tables or [pyarrow.table({})], promote_options="permissive")
    return DataFile(path, table.schema, table.num_rows, lambda names: iter(table.select(names).to_batches(BATCH_ROWS)))


def csv_rows(text: Iterable[str]) -> Iterator[dict[str, str]]:
    """The rows; the first line has the names of the columns. All values are text: 007 stays 007."""
    csv.field_size_limit(MAX_CSV_FIELD_CHARS)
    reader = csv.DictReader(text, strict=True)
    if not reader.fieldnames:
        raise ValueError("it is empty")
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} does not have {len(reader.fieldnames)} values")
        yield row


def json_rows(text: io.TextIOBase, ending: str) -> Iterator[dict[str, Any]]:
    """The rows, an object in each line. A file named .json may have one list of objects instead."""
    rows: Iterable[Any] = json_lines(text)
    if ending == ".json":
        content = text.read()
        is_list = content.lstrip().startswith("[")
        rows = json.loads(content) if is_list else json_lines(content.splitlines())
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is not an object")
        yield row


def json_lines(text: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(text, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def unify_schemas(schemas: Sequence[Schema]) -> Schema:
    """One schema for the columns of all of them; it keeps the metadata of the first one if all are equal."""
    import pyarrow

    bare = [schema.remove_metadata() for schema in schemas]
    schema = pyarrow.unify_schemas(bare, promote_options="permissive")
    # Metadata of Hugging Face datasets, for images for example, is valid only for exactly these columns. That of pandas
    # describes rows that the output does not have.
    metadata = {name: value for name, value in (schemas[0].metadata or {}).items() if name != b"pandas"}
    return schema.with_metadata(metadata) if schema == bare[0] and metadata else schema


def conform_batch(batch: Batch, schema: Schema) -> Batch:
    """The rows with the columns of a schema; a missing column becomes null."""
    import pyarrow

    parts = [schema.empty_table(), pyarrow.Table.from_batches([batch])]
    (result,) = pyarrow.concat_tables(parts, promote_options="permissive").combine_chunks().to_batches()
    return result


def text_column(batch: Batch, name: str | None) -> Array:
    """A column as text. Raises StagingError if its type is another one."""
    import pyarrow

    column = batch.column(name)
    if not is_text(column.type):
        remedy = "Set another column, or change its type."
        raise StagingError(f"column {name}", f"is of type {column.type}, not text.", remedy)
    return column.cast(pyarrow.string())


class RowWriter:
    """Writes a Parquet file, with the same bytes for the same rows. It creates no file if there are no rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.row_count = 0
        self.file: Any = None

    def write(self, batch: Batch) -> None:
        from pyarrow import parquet

        self.row_count += batch.num_rows
        if self.file is None:
            self.file = parquet.ParquetWriter(self.path, batch.schema, compression="zstd")
        self.file.write_batch(batch)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
