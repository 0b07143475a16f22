# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a dataset: rows are read, converted, checked and written in one pass, a batch at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...common.text import one_line
from ..errors import StagingError
from ..lock import Progress
from .arrow import numbers
from .checks import Checker
from .form import Form
from .formats import work
from .rows import Rows, Writer
from .schema import SPLITS, schema_problem
from .sources import check_val

# pyarrow's own types, which are not available to the type checker.
Array = Any
Batch = Any


@dataclass
class DatasetBuilder:
    """Reads rows, converts them to verl's schema, checks them and writes them."""

    target: Path
    form: Form
    checker: Checker
    directory: Path
    progress: Progress

    def run(self, files: Mapping[str, Sequence[Path]], val_rows: int | None) -> dict[str, int]:
        """How many rows each split has; if rows have errors, all of them are in one StagingError."""
        check_val("val" in files, val_rows)
        self.progress.begin("reading", sum(work(path) for paths in files.values() for path in paths))
        with contextlib.ExitStack() as stack:
            writers = {split: stack.enter_context(Writer(self.directory / f"{split}.parquet")) for split in SPLITS}
            for split in SPLITS:
                if split in files:
                    with described(files[split]):
                        self._split(split, files[split], writers, val_rows)
        self.checker.compare()
        verdict(self.target, self.checker)
        return {split: writer.rows for split, writer in writers.items()}

    def _split(self, split: str, paths: Sequence[Path], writers: Mapping[str, Writer], val_rows: int | None) -> None:
        rows = Rows(paths, self.progress, self.form.needs())
        taken = spread(rows.count(), val_rows) if val_rows is not None else None
        start = 0
        for raw in rows.batches():
            named = numbers(start, raw.num_rows)
            batch = self.form.apply(raw, split, named, self.checker)
            if start == 0:
                wrong = schema_problem(batch.schema, self.form.workload)
                if wrong:
                    raise StagingError(paths[0], *wrong)
            start += raw.num_rows
            for to, some, which in divided(split, batch, named, taken):
                self.checker.check(to, some, which)
                writers[to].write(self.form.finish(some, to, writers[to].rows))
        if start == 0:
            raise StagingError(", ".join(map(str, paths)), "there are no rows.", "Give files that have rows.")


@contextlib.contextmanager
def described(paths: Sequence[Path]) -> Iterator[None]:
    """Turns errors of pyarrow into a StagingError for these files."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        where = f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        raise StagingError(
            where, f"cannot be converted to verl's schema: {one_line(error)}.", "Change this column."
        ) from error


def spread(count: int, wanted: int) -> Array:
    """The numbers of the wanted rows, evenly spread with the first among them; the same at every call."""
    import pyarrow

    if not 0 < wanted < count:
        raise StagingError(
            "val_rows", f"is {wanted}, of {count} rows.", "Leave at least one row for each of train and val."
        )
    return pyarrow.array((index * count // wanted for index in range(wanted)), pyarrow.int64())


def original_numbers(counts: Mapping[str, int], val_rows: int | None) -> dict[str, Array]:
    """The numbers that the rows of each split had when they were read, before some of train became val."""
    from pyarrow import compute

    if val_rows is None:
        return {split: numbers(0, count) for split, count in counts.items()}
    every = numbers(0, sum(counts.values()))
    taken = spread(len(every), val_rows)
    return {"train": every.filter(compute.invert(compute.is_in(every, value_set=taken))), "val": taken}


def divided(split: str, batch: Batch, rows: Array, taken: Array | None) -> Iterator[tuple[str, Batch, Array]]:
    """The parts of a batch, each with its split and the numbers of its rows."""
    from pyarrow import compute

    if taken is None:
        yield split, batch, rows
        return
    mask = compute.is_in(rows, value_set=taken)
    for to, which in (("train", compute.invert(mask)), ("val", mask)):
        some = batch.filter(which)
        if some.num_rows:
            yield to, some, rows.filter(which)


def verdict(target: Path, checker: Checker) -> list[str]:
    """The warnings for rows; if rows have errors, all of them are in one StagingError."""
    errors = checker.errors()
    if errors:
        what = "is not fit for training:"
        raise StagingError(target, "\n- ".join([what, *errors]) + "\n", "Correct the rows, and stage it again.")
    return checker.warnings()
