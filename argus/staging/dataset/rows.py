# SPDX-License-Identifier: Apache-2.0
"""Reads rows from files of each format, checks that they fit the types of Parquet, and writes Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

from ...checks.common import is_lfs_pointer
from ...checks.dataset import is_list, is_text, open_parquet
from ...common.text import one_line, spelling_hint
from ..lock import Progress
from ..options import StagingError

# Whether rows fit into the one type that Parquet has for a column, and come back from it as they were.
#
# Parquet gives an object the keys of all others at its place, with null. A chat template renders those of arguments,
# tools and parts of content. Of messages, and of objects outside of lists, readers take null for a missing key.

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
    """The shape at each place of a column's type; nothing for types that JSON does not have."""
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
    """The first shape at each place of all rows, and its row."""

    def __init__(self) -> None:
        self.first: dict[str, tuple[Shape, str]] = {}
        self.problems: dict[str, str] = {}

    def add(self, shapes: Iterator[tuple[str, Shape]], where: str) -> None:
        for place, shape in shapes:
            earlier, first = self.first.setdefault(place, (shape, where))
            if earlier != shape and not (is_open(place, shape) and isinstance(earlier, frozenset)):
                self.problems.setdefault(place, f"{place}: {where} has {as_text(shape)}, {first} {as_text(earlier)}")

    def check(self, path: Path) -> None:
        """One StagingError for all problems."""
        if self.problems:
            text = "\n- ".join(["does not fit into Parquet, which has one type for a column:", *self.problems.values()])
            remedy = (
                "Give a column one kind of value, and its objects the same keys. Some chat templates take arguments as "
                "JSON text; other tools can be text in a system message, and images <image> there and a column images."
            )
            raise StagingError(path, f"{text}\n", remedy)


def is_open(place: str, shape: Shape) -> bool:
    """Whether null means that a key is missing."""
    return isinstance(shape, frozenset) and ("[" not in place or bool({"role", "from"} & shape))


def as_text(shape: Shape) -> str:
    return shape if isinstance(shape, str) else f"the keys {', '.join(sorted(shape)) or 'of nothing'}"


# The rows of files in each format, and the files of a dataset.
#
# Parquet is read in batches. Files in other formats are read as a whole: the types of their columns are known only at
# their end.

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
    """One file: its columns, how many rows it has, and a function that reads some of its columns."""

    path: Path
    schema: Schema
    rows: int
    batches: Callable[[list[str]], Iterator[Batch]]


@dataclass(frozen=True)
class ColumnSelection:
    """The columns to read; without any, all. optional: may be missing. texts: those in which numbers become text."""

    columns: Sequence[str] = ()
    optional: Sequence[str] = ()
    texts: Sequence[str] = ()

    def of(self, row: dict[str, Any]) -> dict[str, Any]:
        """A row of a text file with all names, but only these values."""
        if not self.columns:
            return row
        row = {name: value if name in (*self.columns, *self.optional) else None for name, value in row.items()}
        numbers = {name: json.dumps(row[name]) for name in self.texts if isinstance(row.get(name), int | float)}
        return {**row, **numbers}


class Rows:
    """The rows of several files in order, all with the same columns."""

    def __init__(self, paths: Sequence[Path], progress: Progress, selection: ColumnSelection | None = None) -> None:
        import pyarrow

        selection, shapes = selection or ColumnSelection(), Shapes()
        columns = selection.columns
        self.parts = [part for part in (data_file_of(path, progress, selection, shapes) for path in paths) if part.rows]
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
                shapes.add(places_of_type(field.type, field.name), part.path.name)
            shapes.check(part.path)
        self.schema = unify_schemas(schemas)

    def count(self) -> int:
        return sum(part.rows for part in self.parts)

    def batches(self) -> Iterator[Batch]:
        for part in self.parts:
            names = [name for name in self.schema.names if name in part.schema.names]
            yield from (conform_batch(batch, self.schema) for batch in part.batches(names) if batch.num_rows)


def data_file_of(path: Path, progress: Progress, columns: ColumnSelection, shapes: Shapes) -> DataFile:
    from pyarrow import ArrowException

    kind = Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix
    if kind not in FORMATS or (kind == ".parquet" and path.suffix != kind):
        formats = f"{', '.join(FORMATS)}, and all but the first may be compressed ({', '.join(COMPRESSIONS)})"
        raise StagingError(path, "has an unknown format.", f"Its name must end with one of {formats}.")
    if is_lfs_pointer(path):
        raise StagingError(path, "is a Git LFS pointer, not the file.", "Download it with git lfs pull.")
    try:
        return parquet_file(path, progress) if kind == ".parquet" else text_file(path, kind, progress, columns, shapes)
    except (OSError, ValueError, OverflowError, csv.Error, RecursionError, ArrowException) as error:
        problem = f"is not readable as {kind[1:]}: {one_line(error)}."
        raise StagingError(path, problem, "Correct it, or download it again.") from error


def parquet_file(path: Path, progress: Progress) -> DataFile:
    with open_parquet(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
    count, groups = max(1, metadata.num_rows), range(metadata.num_row_groups)
    row_bytes = max(1, sum(metadata.row_group(group).total_byte_size for group in groups) // count)
    on_disk = path.stat().st_size / count

    def batches(names: list[str]) -> Iterator[Batch]:
        with open_parquet(path) as file:
            for batch in file.iter_batches(max(1, min(BATCH_ROWS, BATCH_BYTES // row_bytes)), columns=names):
                progress.add(int(on_disk * batch.num_rows))
                yield batch

    return DataFile(path, schema, metadata.num_rows, batches)


def text_file(path: Path, kind: str, progress: Progress, selection: ColumnSelection, shapes: Shapes) -> DataFile:
    import pyarrow

    with path.open("rb") as file:
        compression = COMPRESSIONS.get(path.suffix)
        content = pyarrow.CompressedInputStream(file, compression) if compression else file
        # Editors on Windows begin a file with a byte order mark, which this encoding skips.
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        rows = csv_rows(text) if kind == ".csv" else json_rows(text, kind)
        tables, counted, numbers = [], 0, count()
        while chunk := [selection.of(row) for row in islice(rows, BATCH_ROWS)]:
            for row, number in zip(chunk, numbers, strict=False):
                shapes.add(places(row), f"row {number} of {path.name}")
            shapes.check(path)
            tables.append(pyarrow.Table.from_struct_array(pyarrow.array(chunk)))
            progress.add(file.tell() - counted)
            counted = file.tell()
    table = pyarrow.concat_tables(tables or [pyarrow.table({})], promote_options="permissive")
    return DataFile(path, table.schema, table.num_rows, lambda names: iter(table.select(names).to_batches(BATCH_ROWS)))


def csv_rows(text: Iterable[str]) -> Iterator[dict[str, str]]:
    """Rows with names in the first line. Everything is text: 007 stays 007."""
    csv.field_size_limit(MAX_CSV_FIELD_CHARS)
    reader = csv.DictReader(text, strict=True)
    if not reader.fieldnames:
        raise ValueError("it is empty")
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} does not have {len(reader.fieldnames)} values")
        yield row


def json_rows(text: io.TextIOBase, kind: str) -> Iterator[dict[str, Any]]:
    """Objects, one in each line. A file named .json may have one list of them instead."""
    rows: Iterable[Any] = lines_of(text)
    if kind == ".json":
        content = text.read()
        is_list = content.lstrip().startswith("[")
        rows = json.loads(content) if is_list else lines_of(content.splitlines())
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ValueError(f"row {number} is not an object")
        yield row


def lines_of(text: Iterable[str]) -> Iterator[Any]:
    for number, line in enumerate(text, 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def unify_schemas(schemas: Sequence[Schema]) -> Schema:
    """One schema for all of these; the first one if all are equal."""
    import pyarrow

    bare = [schema.remove_metadata() for schema in schemas]
    schema = pyarrow.unify_schemas(bare, promote_options="permissive")
    # The metadata of datasets (for images, for example) is only valid for exactly these columns, and that of a data
    # frame describes rows that the output does not have.
    metadata = {name: value for name, value in (schemas[0].metadata or {}).items() if name != b"pandas"}
    return schema.with_metadata(metadata) if schema == bare[0] and metadata else schema


def conform_batch(batch: Batch, schema: Schema) -> Batch:
    """The rows with the columns of a schema; a missing column becomes null."""
    import pyarrow

    parts = [schema.empty_table(), pyarrow.Table.from_batches([batch])]
    (result,) = pyarrow.concat_tables(parts, promote_options="permissive").combine_chunks().to_batches()
    return result


def text_column(batch: Batch, name: str | None) -> Array:
    import pyarrow

    column = batch.column(name)
    if not is_text(column.type):
        remedy = "Set another column, or change its type."
        raise StagingError(f"column {name}", f"is of type {column.type}, not text.", remedy)
    return column.cast(pyarrow.string())


class Writer:
    """Writes a parquet file, with the same bytes for the same rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.file: Any = None

    def write(self, batch: Batch) -> None:
        from pyarrow import parquet

        self.rows += batch.num_rows
        if self.file is None:
            self.file = parquet.ParquetWriter(self.path, batch.schema, compression="zstd")
        self.file.write_batch(batch)

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
