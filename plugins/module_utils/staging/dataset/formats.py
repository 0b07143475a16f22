# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of rows, read and written a batch at a time: parquet, JSON lines, JSON and CSV.

However large the files are, what is in memory is one batch, or one row where that is larger.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...checks.common import is_lfs_pointer
from ...text import nearest
from ..errors import StagingError
from ..lock import Progress

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# Rows of a batch, and of a row group in what is written; fewer when rows are large, such as those with images.
BATCH_ROWS, BATCH_BYTES = 16_384, 64 << 20
BLOCK_BYTES = 16 << 20
# Of each column of compressed parquet. By default pyarrow has all row groups of a file in memory as they lie on disk,
# until the last one is read (seen with 26.0); without that it is faster as well.
READING = {"buffer_size": 1 << 20, "pre_buffer": False}
# What editors on Windows begin a file of UTF-8 with.
MARK = b"\xef\xbb\xbf"
# What says of what rows a data frame was made; of other rows it is wrong.
PANDAS = b"pandas"
# pyarrow's own types: it is imported where it is used, since only nodes have it.
Batch = Any
Schema = Any


class Part(Protocol):
    """One file."""

    @property
    def schema(self) -> Schema:
        """Its columns, with the types that all of its rows have."""

    def count(self) -> int:
        """How many rows it has."""

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """Its rows, with at least these columns as far as it has them."""


class Stream(io.RawIOBase):
    """A file as it was before it was compressed; progress is told in bytes of the file as it lies there."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow

        self.file = path.open("rb")
        self.progress = progress
        self.told = 0
        compression = COMPRESSIONS.get(path.suffix)
        self.content = pyarrow.CompressedInputStream(self.file, compression) if compression else self.file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self.content.read(len(buffer))
        buffer[: len(read)] = read
        now = self.file.tell()
        self.progress.add(now - self.told)
        self.told = now
        return len(read)

    def close(self) -> None:
        self.file.close()
        super().close()


def one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")


@contextlib.contextmanager
def understood(path: Path, what: str) -> Iterator[None]:
    """What pyarrow finds wrong with a file becomes an error that names it."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ValueError, ArrowException) as error:
        raise StagingError(
            path, f"is not readable as {what}: {one_line(error)}.", "Correct it, or fetch it again."
        ) from error


class Parquet:
    def __init__(self, path: Path, progress: Progress) -> None:
        from pyarrow import parquet

        self.path = path
        self.progress = progress
        with understood(path, "parquet"), parquet.ParquetFile(path) as file:
            self.schema = file.schema_arrow
            self.metadata = file.metadata

    def count(self) -> int:
        return int(self.metadata.num_rows)

    def batches(self, schema: Schema) -> Iterator[Batch]:
        from pyarrow import parquet

        groups = (self.metadata.row_group(index) for index in range(self.metadata.num_row_groups))
        size = max(1, sum(group.total_byte_size for group in groups)) / max(1, self.count())
        rows = max(1, min(BATCH_ROWS, int(BATCH_BYTES / max(1, size))))
        columns = [name for name in schema.names if name in self.schema.names]
        on_disk = self.path.stat().st_size / max(1, self.count())
        with understood(self.path, "parquet"), parquet.ParquetFile(self.path, **READING) as file:
            for batch in file.iter_batches(rows, columns=columns):
                self.progress.add(int(on_disk * batch.num_rows))
                yield batch


class JsonLines:
    """An object a line. It is read twice: the types of its columns are known at its end only."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow

        self.path = path
        self.progress = progress
        self.rows = 0
        found: list[Schema] = []
        for table in self._tables(None):
            self.rows += table.num_rows
            found.append(pyarrow.schema([field.with_type(as_written(field.type)) for field in table.schema]))
        self.schema = unified(found, path)

    def count(self) -> int:
        return self.rows

    def batches(self, schema: Schema) -> Iterator[Batch]:
        import pyarrow

        own = pyarrow.schema([self.schema.field(name) for name in schema.names if name in self.schema.names])
        for table in self._tables(own):
            yield from table.to_batches(BATCH_ROWS)

    def _tables(self, schema: Schema | None) -> Iterator[Any]:
        from pyarrow import json as arrow_json

        how = {"explicit_schema": schema, "unexpected_field_behavior": "ignore"} if schema is not None else {}
        with understood(self.path, "JSON lines"), Stream(self.path, self.progress) as stream:
            for block in blocks(stream):
                # One block: rows must not lie across two, and may be of any length.
                options = arrow_json.ReadOptions(block_size=len(block) + 1)
                yield arrow_json.read_json(io.BytesIO(block), options, arrow_json.ParseOptions(**how))


class JsonList:
    """One list of objects, which is read as a whole."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow

        with understood(path, "JSON"), Stream(path, progress) as stream:
            rows = json.loads(stream.read())
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("it is no list of objects")
            array = pyarrow.array(rows, None if rows else pyarrow.struct([]))
            self.batch = pyarrow.RecordBatch.from_struct_array(array)
        self.schema = self.batch.schema

    def count(self) -> int:
        return int(self.batch.num_rows)

    def batches(self, schema: Schema) -> Iterator[Batch]:
        for start in range(0, self.batch.num_rows, BATCH_ROWS):
            yield self.batch.slice(start, BATCH_ROWS)


class Csv:
    """Comma-separated, with names in its first line. Everything is text: 007 stays 007."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow
        from pyarrow import csv

        self.path = path
        self.progress = progress
        with understood(path, "CSV"), Stream(path, Progress()) as stream:
            names = csv.open_csv(stream, csv.ReadOptions(block_size=BLOCK_BYTES)).schema.names
        self.schema = pyarrow.schema([(name, pyarrow.string()) for name in names])

    def count(self) -> int:
        return sum(batch.num_rows for batch in self._batches(self.schema.names[:1], Progress()))

    def batches(self, schema: Schema) -> Iterator[Batch]:
        return self._batches([name for name in schema.names if name in self.schema.names], self.progress)

    def _batches(self, names: Sequence[str], progress: Progress) -> Iterator[Batch]:
        from pyarrow import csv

        read = csv.ReadOptions(block_size=BLOCK_BYTES)
        parse = csv.ParseOptions(newlines_in_values=True)
        types = {field.name: field.type for field in self.schema}
        convert = csv.ConvertOptions(column_types=types, include_columns=names)
        with understood(self.path, "CSV"), Stream(self.path, progress) as stream:
            for batch in csv.open_csv(stream, read, parse, convert):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)


def json_part(path: Path, progress: Progress) -> Part:
    """A file named .json is either of both."""
    with understood(path, "JSON"), Stream(path, Progress()) as stream:
        is_list = stream.read(1 << 10).removeprefix(MARK).lstrip().startswith(b"[")
    return JsonList(path, progress) if is_list else JsonLines(path, progress)


FORMATS: dict[str, Callable[[Path, Progress], Part]] = {
    ".parquet": Parquet,
    ".jsonl": JsonLines,
    ".json": json_part,
    ".csv": Csv,
}


def kind_of(path: Path) -> str:
    """The ending that says what is in a file, without that of its compression."""
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix


def part(path: Path, progress: Progress) -> Part:
    kind = kind_of(path)
    if kind not in FORMATS or (kind == ".parquet" and path.suffix in COMPRESSIONS):
        known = f"{', '.join(FORMATS)}, and all but the first with {', '.join(COMPRESSIONS)}"
        raise StagingError(path, "is of no known format.", f"Its name has to end with one of {known}.")
    if is_lfs_pointer(path):
        raise StagingError(path, "is a Git LFS pointer, not the file.", "Fetch it with git lfs pull.")
    return FORMATS[kind](path, progress)


def work(path: Path) -> int:
    """How many bytes are read of a file."""
    passes = 2 if kind_of(path) in (".jsonl", ".json") else 1
    return passes * path.stat().st_size


class Rows:
    """The rows of several files, one after the other, all with the same columns."""

    def __init__(self, paths: Sequence[Path], progress: Progress, columns: Sequence[str] = ()) -> None:
        """columns: those that are needed; all when there are none."""
        import pyarrow

        self.parts = [part(path, progress) for path in paths]
        schemas = [each.schema for each in self.parts]
        for path, each in zip(paths, self.parts, strict=True):
            for name in columns:
                if name not in each.schema.names:
                    has = f"It has: {', '.join(each.schema.names)}."
                    hint = nearest(name, each.schema.names)
                    raise StagingError(path, f"has no column {name}.", f"{has} {hint[:1].upper()}{hint[1:]}".rstrip())
        if columns:
            schemas = [pyarrow.schema([schema.field(name) for name in columns]) for schema in schemas]
        self.schema = unified(schemas, paths[0])

    def count(self) -> int:
        return sum(each.count() for each in self.parts)

    def batches(self) -> Iterator[Batch]:
        for each in self.parts:
            for batch in each.batches(self.schema):
                if batch.num_rows:
                    yield conformed(batch, self.schema)


def conformed(batch: Batch, schema: Schema) -> Batch:
    """The same rows with the columns of a schema; those that are missing have nothing in them."""
    import pyarrow

    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pyarrow.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def unified(schemas: Sequence[Schema], path: Path) -> Schema:
    """One schema for all of these, that of the first where they agree."""
    import pyarrow

    if not schemas:
        return pyarrow.schema([])
    bare = [schema.remove_metadata() for schema in schemas]
    try:
        one = pyarrow.unify_schemas(bare, promote_options="permissive")
    except pyarrow.ArrowException as error:
        what = f"and what comes after it disagree: {one_line(error)}."
        raise StagingError(path, what, "Give the column one type in all rows and files.") from error
    # What datasets says of its columns there (images, for example) has to be of just these columns.
    said = {name: value for name, value in (schemas[0].metadata or {}).items() if name != PANDAS}
    return one.with_metadata(said) if one == bare[0] and said else one


def as_written(kind: Any) -> Any:
    """A type that pyarrow found in JSON, without its guess that a text is a point in time."""
    import pyarrow
    from pyarrow import types

    if types.is_timestamp(kind):
        return pyarrow.string()
    if types.is_list(kind):
        return pyarrow.list_(as_written(kind.value_type))
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pyarrow.struct([field.with_type(as_written(field.type)) for field in fields])
    return kind


def blocks(stream: Stream) -> Iterator[bytes]:
    """A file in parts that end where a line does."""
    rest = stream.read(len(MARK)).removeprefix(MARK)
    while chunk := stream.read(BLOCK_BYTES):
        lines, end, begun = chunk.rpartition(b"\n")
        if not end:
            rest += chunk
            continue
        # Nothing but empty lines is no block to pyarrow.
        if (rest + lines).strip():
            yield rest + lines + end
        rest = begun
    if rest.strip():
        yield rest


class Writer:
    """A parquet file in the making, the same for the same rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.pending: list[Batch] = []
        self.file: Any = None

    def write(self, batch: Batch) -> None:
        self.rows += batch.num_rows
        self.pending.append(batch)
        if sum(each.num_rows for each in self.pending) >= BATCH_ROWS or (
            sum(each.nbytes for each in self.pending) >= BATCH_BYTES
        ):
            self.flush()

    def flush(self) -> None:
        import pyarrow
        from pyarrow import parquet

        if not self.pending:
            return
        table = pyarrow.Table.from_batches(self.pending)
        self.pending = []
        try:
            if self.file is None:
                self.file = parquet.ParquetWriter(self.path, table.schema, compression="zstd")
            self.file.write_table(table, row_group_size=table.num_rows)
        except pyarrow.ArrowException as error:
            # Such as a mapping without any key, which parquet cannot hold.
            raise StagingError(
                self.path.name, f"cannot be written: {one_line(error)}.", "Change this column."
            ) from error

    def close(self) -> None:
        if self.file is not None:
            self.file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.flush()
        self.close()
