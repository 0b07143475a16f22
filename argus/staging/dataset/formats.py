# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads files of rows a batch at a time: parquet, JSON lines, JSON and CSV.

However large a file is, only one batch is in memory, or one row if that is larger.
"""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from ...checks.common import is_lfs_pointer
from ...common.text import one_line
from ..errors import StagingError
from ..lock import Progress

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
# The size of a batch, and of a row group of the output; it has fewer rows if they are large, for example with images.
BATCH_ROWS, BATCH_BYTES = 16_384, 64 << 20
BLOCK_BYTES = 16 << 20
# By default, pyarrow keeps all row groups of a file in memory, as they are on disk, until it has read the last one
# (seen with 26.0); without that it is also faster. The buffer is for one column.
READING = {"buffer_size": 1 << 20, "pre_buffer": False}
# The byte order mark with which editors on Windows begin a file.
MARK = b"\xef\xbb\xbf"
# The metadata of a data frame describes rows that the output does not have.
PANDAS = b"pandas"
# pyarrow's own types, which are not available to the type checker.
Batch = Any
Schema = Any


class Part(Protocol):
    """One file."""

    @property
    def schema(self) -> Schema:
        """Its columns, with types that fit all rows."""

    def count(self) -> int:
        """How many rows it has."""

    def batches(self, schema: Schema) -> Iterator[Batch]:
        """Its rows, with at least these columns as far as it has them."""


class Stream(io.RawIOBase):
    """The decompressed content of a file; the progress counts the bytes on disk."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow

        self.file = path.open("rb")
        self.progress = progress
        self.counted = 0
        compression = COMPRESSIONS.get(path.suffix)
        self.content = pyarrow.CompressedInputStream(self.file, compression) if compression else self.file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self.content.read(len(buffer))
        buffer[: len(read)] = read
        now = self.file.tell()
        self.progress.add(now - self.counted)
        self.counted = now
        return len(read)

    def close(self) -> None:
        self.file.close()
        super().close()


@contextlib.contextmanager
def readable_as(path: Path, what: str) -> Iterator[None]:
    """Turns errors of pyarrow into a StagingError for the file."""
    from pyarrow import ArrowException

    try:
        yield
    except (OSError, ValueError, ArrowException) as error:
        raise StagingError(
            path, f"is not readable as {what}: {one_line(error)}.", "Correct it, or download it again."
        ) from error


class Parquet:
    def __init__(self, path: Path, progress: Progress) -> None:
        from pyarrow import parquet

        self.path = path
        self.progress = progress
        with readable_as(path, "parquet"), parquet.ParquetFile(path) as file:
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
        with readable_as(self.path, "parquet"), parquet.ParquetFile(self.path, **READING) as file:
            for batch in file.iter_batches(rows, columns=columns):
                self.progress.add(int(on_disk * batch.num_rows))
                yield batch


class JsonLines:
    """One object per line. The file is read twice: the types of its columns are known only at its end."""

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

        parsing = {"explicit_schema": schema, "unexpected_field_behavior": "ignore"} if schema is not None else {}
        with readable_as(self.path, "JSON lines"), Stream(self.path, self.progress) as stream:
            for block in blocks(stream):
                # A single block: a row must not cross two blocks, and may have any length.
                options = arrow_json.ReadOptions(block_size=len(block) + 1)
                yield arrow_json.read_json(io.BytesIO(block), options, arrow_json.ParseOptions(**parsing))


class JsonList:
    """One list of objects, which is read completely."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow

        with readable_as(path, "JSON"), Stream(path, progress) as stream:
            rows = json.loads(stream.read())
            if not all(isinstance(row, dict) for row in rows):
                raise ValueError("it is not a list of objects")
            array = pyarrow.array(rows, None if rows else pyarrow.struct([]))
            self.batch = pyarrow.RecordBatch.from_struct_array(array)
        self.schema = self.batch.schema

    def count(self) -> int:
        return int(self.batch.num_rows)

    def batches(self, schema: Schema) -> Iterator[Batch]:
        for start in range(0, self.batch.num_rows, BATCH_ROWS):
            yield self.batch.slice(start, BATCH_ROWS)


class Csv:
    """Comma-separated values, with names in the first line. Everything is text: 007 stays 007."""

    def __init__(self, path: Path, progress: Progress) -> None:
        import pyarrow
        from pyarrow import csv

        self.path = path
        self.progress = progress
        with readable_as(path, "CSV"), Stream(path, Progress()) as stream:
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
        with readable_as(self.path, "CSV"), Stream(self.path, progress) as stream:
            for batch in csv.open_csv(stream, read, parse, convert):
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.slice(start, BATCH_ROWS)


def json_part(path: Path, progress: Progress) -> Part:
    """A file named .json has JSON lines, or one list."""
    with readable_as(path, "JSON"), Stream(path, Progress()) as stream:
        is_list = stream.read(1 << 10).removeprefix(MARK).lstrip().startswith(b"[")
    return JsonList(path, progress) if is_list else JsonLines(path, progress)


FORMATS: dict[str, Callable[[Path, Progress], Part]] = {
    ".parquet": Parquet,
    ".jsonl": JsonLines,
    ".json": json_part,
    ".csv": Csv,
}


def format_of(path: Path) -> str:
    """The suffix for the format of a file, without the suffix for its compression."""
    return Path(path.stem).suffix if path.suffix in COMPRESSIONS else path.suffix


def part(path: Path, progress: Progress) -> Part:
    suffix = format_of(path)
    if suffix not in FORMATS or (suffix == ".parquet" and path.suffix in COMPRESSIONS):
        known = f"{', '.join(FORMATS)}, and all but the first may be compressed ({', '.join(COMPRESSIONS)})"
        raise StagingError(path, "has an unknown format.", f"Its name must end with one of {known}.")
    if is_lfs_pointer(path):
        raise StagingError(path, "is a Git LFS pointer, not the file.", "Download it with git lfs pull.")
    return FORMATS[suffix](path, progress)


def work(path: Path) -> int:
    """How many bytes will be read from a file."""
    passes = 2 if format_of(path) in (".jsonl", ".json") else 1
    return passes * path.stat().st_size


def unified(schemas: Sequence[Schema], path: Path) -> Schema:
    """One schema for all of these; the first one if all are equal."""
    import pyarrow

    if not schemas:
        return pyarrow.schema([])
    bare = [schema.remove_metadata() for schema in schemas]
    try:
        one = pyarrow.unify_schemas(bare, promote_options="permissive")
    except pyarrow.ArrowException as error:
        what = f"and later rows or files have different types: {one_line(error)}."
        raise StagingError(path, what, "Give the column one type in all rows and files.") from error
    # The metadata of datasets (for images, for example) is only valid for exactly these columns.
    metadata = {name: value for name, value in (schemas[0].metadata or {}).items() if name != PANDAS}
    return one.with_metadata(metadata) if one == bare[0] and metadata else one


def as_written(kind: Any) -> Any:
    """A type that pyarrow inferred from JSON, with texts as text, even if they look like timestamps."""
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
    """The content of a file in blocks that end with a line."""
    rest = stream.read(len(MARK)).removeprefix(MARK)
    while chunk := stream.read(BLOCK_BYTES):
        lines, end, begun = chunk.rpartition(b"\n")
        if not end:
            rest += chunk
            continue
        # pyarrow rejects a block that has only empty lines.
        if (rest + lines).strip():
            yield rest + lines + end
        rest = begun
    if rest.strip():
        yield rest
