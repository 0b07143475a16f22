# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of several files as one table that is read, and written, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ...common.text import nearest, one_line
from ..errors import StagingError
from ..lock import Progress
from . import formats
from .formats import Batch, Schema, part, unified


class Rows:
    """The rows of several files in order, all with the same columns."""

    def __init__(self, paths: Sequence[Path], progress: Progress, columns: Sequence[str] = ()) -> None:
        """columns: the columns to read; empty for all."""
        import pyarrow

        self.parts = [part(path, progress) for path in paths]
        schemas = [each.schema for each in self.parts]
        for path, each in zip(paths, self.parts, strict=True):
            names = each.schema.names
            if lacks := [name for name in columns if name not in names]:
                what = f"has no column {' and no column '.join(lacks)}; it has: {', '.join(names)}."
                hint = nearest(lacks[0], names)
                todo = f"Set columns to the names of its columns. {hint[:1].upper()}{hint[1:]}"
                raise StagingError(path, what, todo.rstrip())
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
    """The rows with the columns of a schema; a missing column becomes null."""
    import pyarrow

    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pyarrow.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)


class Writer:
    """Writes a parquet file, with the same bytes for the same rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = 0
        self.pending: list[Batch] = []
        self.file: Any = None

    def write(self, batch: Batch) -> None:
        self.rows += batch.num_rows
        self.pending.append(batch)
        if sum(each.num_rows for each in self.pending) >= formats.BATCH_ROWS or (
            sum(each.nbytes for each in self.pending) >= formats.BATCH_BYTES
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
            # For example a mapping without keys, which parquet does not support.
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
