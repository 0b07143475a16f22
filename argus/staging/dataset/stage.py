# SPDX-License-Identifier: Apache-2.0
"""Stages datasets: train.parquet and val.parquet in verl's schema, with every row checked."""

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
from ..manifest import Manifest, Staged, read_manifest
from ..options import StageOptions, StagingError, check_name, check_shared_root
from ..store import BuildRequest, Built, remove_downloaded, stage
from .checks import Checker, schema_problem
from .form import Form
from .rows import Batch, Rows, Writer
from .source import Upload, difference_of
from .sources import source_of

# Builds a dataset: rows are read, converted, checked and written in one pass, a batch at a time.


@dataclass
class DatasetBuilder:
    """Reads rows, converts them to verl's schema, checks them and writes them."""

    target: Path
    form: Form
    checker: Checker
    directory: Path
    progress: Progress

    def run(self, files: Mapping[str, Sequence[Path]], val_rows: int | None) -> dict[str, int]:
        """The number of rows of each split; if rows have errors, all of them are in one StagingError."""
        from pyarrow import ArrowException

        self.progress.begin("reading", sum(path.stat().st_size for paths in files.values() for path in paths))
        with contextlib.ExitStack() as stack:
            writers = {split: Writer(self.directory / f"{split}.parquet") for split in SPLITS}
            for writer in writers.values():
                stack.callback(writer.close)
            for split, paths in sorted(files.items()):
                try:
                    self._split(split, paths, writers, val_rows)
                except ArrowException as error:
                    where = f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
                    problem = f"cannot be converted to verl's schema: {one_line(error)}."
                    raise StagingError(where, problem, "Change this column, or download the file again.") from error
        self.checker.compare()
        verdict(self.target, self.checker)
        return {split: writer.rows for split, writer in writers.items()}

    def _split(self, split: str, paths: Sequence[Path], writers: Mapping[str, Writer], val_rows: int | None) -> None:
        rows = Rows(paths, self.progress, self.form.selection())
        taken = spread(rows.count(), val_rows) if val_rows is not None else None
        start = 0
        for batch in rows.batches():
            for to, part, numbers in split_batch(split, batch, start, taken):
                converted = self.form.apply(part, to, numbers, writers[to].rows, self.checker)
                schema_mismatch = schema_problem(converted.schema, self.form.workload)
                if schema_mismatch:
                    problem, remedy = schema_mismatch
                    raise StagingError(paths[0], f"{problem}.", f"{remedy[:1].upper()}{remedy[1:]}.")
                self.checker.check(to, converted, numbers)
                writers[to].write(converted)
            start += batch.num_rows


def spread(count: int, rows: int) -> frozenset[int]:
    """The numbers of the wanted rows, evenly spread with the first among them; the same at every call."""
    if not 0 < rows < count:
        remedy = "Leave at least one row for each of train and val."
        raise StagingError("val_rows", f"is {rows}, of {count} rows.", remedy)
    return frozenset(index * count // rows for index in range(rows))


def split_batch(
    split: str, batch: Batch, start: int, taken: frozenset[int] | None
) -> Iterator[tuple[str, Batch, Sequence[int]]]:
    """The parts of a batch, each with its split and the numbers of its rows."""
    rows = range(start, start + batch.num_rows)
    if taken is None:
        yield split, batch, rows
        return
    for to in SPLITS:
        numbers = [row for row in rows if (row in taken) == (to == "val")]
        if numbers:
            yield to, batch.take([row - start for row in numbers]), numbers


def verdict(target: Path, checker: Checker) -> list[str]:
    """The warnings for rows; if rows have errors, all of them are in one StagingError."""
    errors = checker.errors()
    if errors:
        problem = "is not fit for training:"
        raise StagingError(target, "\n- ".join([problem, *errors]) + "\n", "Correct the rows, and stage it again.")
    return checker.warnings()


# Stages datasets: train.parquet and val.parquet in verl's schema, under the shared root, with every row checked.

KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# The options in the identity of a dataset that do not belong to its source.
FORM_OPTIONS = {"workload", "columns", "val_rows", *COLUMN_TEXTS}


def build_request(shared_root: Path, options: Dataset, how: StageOptions, upload: Upload | None = None) -> BuildRequest:
    """A dataset under the shared root. upload: its files, if they are on the controller."""
    check_shared_root(shared_root)
    source, form = source_of(options, shared_root, how, upload), Form(options)
    target = shared_root / DATASETS_DIR / check_name("name", options.name)
    form_identity = {**form.identity, **({} if options.val_rows is None else {"val_rows": options.val_rows})}

    def build(directory: Path, progress: Progress) -> Built:
        before = read_manifest(target) if target.exists() else None
        identity = {**source.identity, **form_identity}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            fetched = source.fetch(scratch, progress, before)
            checker = Checker(form.workload)
            rows = DatasetBuilder(target, form, checker, directory, progress).run(fetched.files, options.val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **form_identity} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nothing writes to it.")
        results = {"rows": rows, "report": checker.warnings()}
        return Built({"source": source.label, **fetched.facts, **results, "identity": identity})

    def difference(manifest: Manifest) -> str:
        identity = manifest.mapping("identity")
        if next(iter(source.identity)) not in identity:
            return f"was staged from {manifest.source}, but the request has {source.label}."
        difference = source.difference(manifest)
        if difference:
            return difference
        # An option that was set then and is not set now counts as well.
        names = {*form_identity, *(option for option in identity if option in FORM_OPTIONS)}
        return difference_of(manifest, {option: form_identity.get(option) for option in sorted(names)})

    return BuildRequest(KINDS[form.workload], options.name, target, build, difference, size=source.size)


def stage_dataset(shared_root: Path, options: Dataset, how: StageOptions, upload: Upload | None = None) -> Staged:
    """Stages a dataset."""
    return stage(build_request(shared_root, options, how, upload), how)


def remove_dataset(shared_root: Path, name: str, workload: str, *, check: bool = False) -> Staged:
    """Removes a dataset of any workload, and its commit from the hub's cache unless another dataset needs it."""
    datasets = check_shared_root(shared_root) / DATASETS_DIR
    target = datasets / check_name("name", name)
    manifest = read_manifest(target)
    kind = manifest.kind if manifest and manifest.kind in KINDS.values() else KINDS[workload]
    return remove_downloaded(shared_root, kind, name, target, check=check)
