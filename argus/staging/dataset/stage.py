# SPDX-License-Identifier: Apache-2.0
"""Stages datasets under the shared root: train.parquet and val.parquet in verl's schema.

Rows are read, converted, checked and written in one pass, a batch at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...checks.dataset import RL, SFT, SPLITS
from ...common.shared_root import DATASETS_DIR
from ...common.text import one_line
from ..files import remove_tree
from ..items import COLUMN_TEXTS, Dataset
from ..lock import Progress
from ..manifest import Manifest, StageResult, read_manifest
from ..options import StageOptions, StagingError, check_name, check_shared_root
from ..store import BuildRequest, BuildResult, remove_downloaded, stage
from .checks import RowChecker, schema_problem
from .row_converter import RowConverter
from .row_source import UploadedRows, option_mismatch
from .rows import Batch, Rows, RowWriter
from .sources import row_source_of

# The kinds of datasets in manifests.
KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# The options in the identity of a dataset that do not belong to its source.
CONVERSION_OPTIONS = {"workload", "columns", "val_rows", *COLUMN_TEXTS}


@dataclass
class DatasetBuilder:
    """Writes the Parquet files of a dataset."""

    # The path that the dataset will have, for messages; `directory` is where it is built.
    target: Path
    converter: RowConverter
    checker: RowChecker
    directory: Path
    progress: Progress

    def run(self, files: Mapping[str, Sequence[Path]], val_rows: int | None) -> dict[str, int]:
        """Writes train.parquet and val.parquet, and returns the number of rows of each split.

        files: by split. val_rows: how many rows of train become val; None for none. Raises one StagingError for all
        rows with errors.
        """
        from pyarrow import ArrowException

        self.progress.begin("reading", sum(path.stat().st_size for paths in files.values() for path in paths))
        with contextlib.ExitStack() as stack:
            writers = {split: RowWriter(self.directory / f"{split}.parquet") for split in SPLITS}
            for writer in writers.values():
                stack.callback(writer.close)
            for split, paths in sorted(files.items()):
                try:
                    self._write_split(split, paths, writers, val_rows)
                except ArrowException as error:
                    where = f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
                    problem = f"cannot be converted to verl's schema: {one_line(error)}."
                    raise StagingError(where, problem, "Change this column, or download the file again.") from error
        self.checker.compare_splits()
        if errors := self.checker.errors():
            problem = "\n- ".join(["is not fit for training:", *errors]) + "\n"
            raise StagingError(self.target, problem, "Correct the rows, and stage it again.")
        return {split: writer.row_count for split, writer in writers.items()}

    def _write_split(
        self, split: str, paths: Sequence[Path], writers: Mapping[str, RowWriter], val_rows: int | None
    ) -> None:
        rows = Rows(paths, self.progress, self.converter.selection())
        val_numbers = evenly_spread_numbers(rows.count(), val_rows) if val_rows is not None else None
        start = 0
        for batch in rows.batches():
            for to, part, numbers in split_batch(split, batch, start, val_numbers):
                converted = self.converter.convert(part, to, numbers, writers[to].row_count, self.checker)
                schema_mismatch = schema_problem(converted.schema, self.converter.workload)
                if schema_mismatch:
                    problem, remedy = schema_mismatch
                    raise StagingError(paths[0], f"{problem}.", f"{remedy[:1].upper()}{remedy[1:]}.")
                self.checker.check(to, converted, numbers)
                writers[to].write(converted)
            start += batch.num_rows


def evenly_spread_numbers(row_count: int, val_rows: int) -> frozenset[int]:
    """The numbers of the rows that become val: evenly spread, with the first row, and the same at every call."""
    if not 0 < val_rows < row_count:
        remedy = "Leave at least one row for each of train and val."
        raise StagingError("val_rows", f"is {val_rows}, of {row_count} rows.", remedy)
    return frozenset(index * row_count // val_rows for index in range(val_rows))


def split_batch(
    split: str, batch: Batch, start: int, val_numbers: frozenset[int] | None
) -> Iterator[tuple[str, Batch, Sequence[int]]]:
    """The parts of a batch, each with the split to which it goes and the numbers of its rows.

    start: the number of the first row. val_numbers: of the rows that become val; None if all rows stay in `split`.
    """
    rows = range(start, start + batch.num_rows)
    if val_numbers is None:
        yield split, batch, rows
        return
    for to in SPLITS:
        numbers = [row for row in rows if (row in val_numbers) == (to == "val")]
        if numbers:
            yield to, batch.take([row - start for row in numbers]), numbers


def build_request(
    shared_root: Path, dataset: Dataset, options: StageOptions, upload: UploadedRows | None = None
) -> BuildRequest:
    """A dataset under the shared root. upload: its files, if they are on the controller."""
    check_shared_root(shared_root)
    source, converter = row_source_of(dataset, shared_root, options, upload), RowConverter(dataset)
    target = shared_root / DATASETS_DIR / check_name("name", dataset.name)
    conversion = {**converter.identity, **({} if dataset.val_rows is None else {"val_rows": dataset.val_rows})}

    def build(directory: Path, progress: Progress) -> BuildResult:
        before = read_manifest(target) if target.exists() else None
        identity = {**source.identity, **conversion}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            fetched = source.fetch(scratch, progress, before)
            checker = RowChecker(converter.workload)
            builder = DatasetBuilder(target, converter, checker, directory, progress)
            rows = builder.run(fetched.files, dataset.val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **conversion} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nothing writes to it.")
        results = {"rows": rows, "report": checker.warnings()}
        return BuildResult({"source": source.label, **fetched.facts, **results, "identity": identity})

    def mismatch(manifest: Manifest) -> str:
        identity = manifest.mapping("identity")
        if next(iter(source.identity)) not in identity:
            return f"was staged from {manifest.source}, but the request has {source.label}."
        if source_mismatch := source.mismatch(manifest):
            return source_mismatch
        # An option that was set then and is not set now counts as well.
        names = {*conversion, *(option for option in identity if option in CONVERSION_OPTIONS)}
        return option_mismatch(manifest, {option: conversion.get(option) for option in sorted(names)})

    return BuildRequest(KINDS[converter.workload], dataset.name, target, build, mismatch, size=source.size)


def stage_dataset(
    shared_root: Path, dataset: Dataset, options: StageOptions, upload: UploadedRows | None = None
) -> StageResult:
    return stage(build_request(shared_root, dataset, options, upload), options)


def remove_dataset(shared_root: Path, name: str, workload: str, *, check: bool = False) -> StageResult:
    """Removes a dataset of any workload, and its commit from the hub's cache unless another dataset needs it."""
    datasets = check_shared_root(shared_root) / DATASETS_DIR
    target = datasets / check_name("name", name)
    manifest = read_manifest(target)
    kind = manifest.kind if manifest and manifest.kind in KINDS.values() else KINDS[workload]
    return remove_downloaded(shared_root, kind, name, target, check=check)
