# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datasets: train.parquet and val.parquet in verl's form, under the shared root, checked row by row.

Rows are read, brought into verl's form, checked and written in one go, a batch at a time.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import hub
from ..errors import StagingError, reported
from ..files import remove_tree
from ..lock import Progress, locked
from ..manifest import manifest_of
from ..options import DEFERRED, REMOVED, Staged, check_name, check_shared_root
from ..store import Request, remove, replace_manifest, stage
from ..tiny import let_torch_see_a_function
from .arrow import numbers
from .checks import Checker, Limit
from .form import Form, form_of
from .formats import Rows, Writer, one_line, work
from .schema import RL, SFT, SPLITS, schema_problem
from .sources import Source, check_val, difference_of, source_of

KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# Below the shared root.
DATASETS, MODELS = "datasets", "common/models"
# pyarrow's own types: it is imported where it is used, since only nodes have it.
Array = Any
Batch = Any


def request(
    shared_root: Path,
    name: str,
    source: Source,
    form: Form,
    *,
    val_rows: int | None = None,
    measure: Mapping[str, Any] | None = None,
) -> Request:
    """A dataset under the shared root.

    val_rows: how many rows of train become val, where the source has none. measure: the model and the max_prompt_length
    by which prompts are measured, if they are.
    """
    target = shared_root / DATASETS / check_name("name", name)
    own = {**form.identity, **({} if val_rows is None else {"val_rows": val_rows})}

    def build(directory: Path, progress: Progress) -> dict[str, Any]:
        before = (manifest_of(target) or {}) if target.exists() else {}
        identity = {**source.identity, **own}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            files, told = source.fetch(scratch, progress, before)
            checker = Checker(form.workload, token_limit(shared_root, **measure) if measure else None)
            rows = Making(target, form, checker, directory, progress).run(files, val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **own} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nobody writes to it.")
        return {
            "source": source.label,
            **told,
            "rows": rows,
            "report": checker.warnings(),
            **({"measured": measure} if measure else {}),
            "identity": identity,
        }

    def differs(manifest: Mapping[str, Any]) -> str:
        identity = manifest.get("identity", {})
        if next(iter(source.identity)) not in identity:
            return f"was made of {manifest.get('source')}, and now {source.label} is asked for."
        wrong = source.differs(manifest)
        if wrong:
            return wrong
        # An option that was given then and is not now counts as well.
        names = {*own, *(option for option in identity if option in OWN_OPTIONS)}
        return difference_of(manifest, {option: own.get(option) for option in sorted(names)})

    quick = source.quick and not measure
    return Request(KINDS[form.workload], name, target, build, differs, size=source.size, quick=quick)


def request_of(shared_root: Path, options: Mapping[str, Any]) -> Request:
    """What a user asks for; `options` as the module rl_dataset has them."""
    check_shared_root(shared_root)
    workload, val_rows, measure = options["workload"], options.get("val_rows"), measure_of(options)
    source, form = source_of(options, workload, shared_root), form_of(options, workload)
    return request(shared_root, options["name"], source, form, val_rows=val_rows, measure=measure)


def measure_of(options: Mapping[str, Any]) -> dict[str, Any] | None:
    measure = {name: options.get(name) for name in ("model", "max_prompt_length")}
    return measure if all(measure.values()) else None


OWN_OPTIONS = {*Form.__dataclass_fields__, "val_rows"}


def stage_dataset(
    shared_root: Path, options: Mapping[str, Any], *, check: bool = False, defer: bool = False, **how: bool
) -> Staged:
    """Make it once, see staging.stage. One that is there is checked again when it was not yet measured as is asked."""
    asked, measure = request_of(shared_root, options), measure_of(options)

    def unmeasured() -> dict[str, Any] | None:
        manifest = manifest_of(asked.target)
        return manifest if manifest and measure and manifest.get("measured") != measure else None

    staged = stage(asked, check=check, defer=defer, **how)
    if check or staged.status == DEFERRED or not unmeasured():
        return staged
    if defer:
        return asked.result(DEFERRED)
    with reported(asked.target, "checked"), locked(asked.target) as progress:
        # Whoever held the lock before may have done it.
        manifest = unmeasured()
        if manifest:
            checker = Checker(options["workload"], token_limit(shared_root, **measure or {}))
            report = check_again(asked.target, manifest, checker, progress)
            replace_manifest(asked.target, {**manifest, "report": report, "measured": measure})
            staged = dataclasses.replace(staged, notes=(*staged.notes, *report))
    return staged


def check_again(target: Path, manifest: Mapping[str, Any], checker: Checker, progress: Progress) -> list[str]:
    """What there is to say of the rows of a dataset that is there, as it is said when it is made."""
    files = {split: target / f"{split}.parquet" for split in SPLITS}
    named = original_numbers(manifest["rows"], manifest["identity"].get("val_rows"))
    progress.begin("checking", sum(map(work, files.values())))
    for split, path in files.items():
        start = 0
        for batch in Rows([path], progress).batches():
            checker.look(split, batch, named[split].slice(start, batch.num_rows))
            start += batch.num_rows
    checker.compare()
    return verdict(target, checker)


def verdict(target: Path, checker: Checker) -> list[str]:
    """What is worth knowing of rows; an error says all that is wrong with them."""
    errors = checker.errors()
    if errors:
        what = "is not fit to be trained on:"
        raise StagingError(target, "\n- ".join([what, *errors]) + "\n", "Correct it, and stage it again.")
    return checker.warnings()


def remove_dataset(
    shared_root: Path, name: str, workload: str, users: Callable[[Path], Sequence[str]], *, check: bool = False
) -> Staged:
    """Remove a dataset of whichever workload, and from the hub's cache what no other one is of."""
    datasets = check_shared_root(shared_root) / DATASETS
    target = datasets / check_name("name", name)
    cache, manifest = shared_root / hub.CACHE, manifest_of(target) or {}
    kind = manifest["kind"] if manifest.get("kind") in KINDS.values() else KINDS[workload]
    is_of_the_hub = "commit" in manifest and not check
    if is_of_the_hub:
        # Where it is missing, before anything is removed.
        hub.library(cache)
    removed = remove(kind, name, target, lambda: users(target), check=check)
    if is_of_the_hub and removed.status == REMOVED and revision_of(manifest) not in revisions(datasets):
        hub.forget(cache, manifest["source"], manifest["commit"], "dataset")
    return removed


def revision_of(manifest: Mapping[str, Any]) -> tuple[Any, Any]:
    return manifest.get("source"), manifest.get("commit")


def revisions(datasets: Path) -> set[tuple[Any, Any]]:
    """The repositories and commits that datasets are of."""
    found = set()
    for path in datasets.iterdir():
        # What was not staged is of none.
        with contextlib.suppress(StagingError):
            found.add(revision_of(manifest_of(path) or {}))
    return found


@dataclass
class Making:
    """Reads rows, brings them into verl's form, checks them and writes them."""

    target: Path
    form: Form
    checker: Checker
    directory: Path
    progress: Progress

    def run(self, files: Mapping[str, Sequence[Path]], val_rows: int | None) -> dict[str, int]:
        """How many rows each split has; an error says all that is wrong with them."""
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
                self.checker.look(to, some, which)
                writers[to].write(self.form.finish(some, to, writers[to].rows))
        if start == 0:
            raise StagingError(", ".join(map(str, paths)), "there are no rows.", "Name files with rows in them.")


@contextlib.contextmanager
def described(paths: Sequence[Path]) -> Iterator[None]:
    """What pyarrow cannot do with these files becomes an error that names them."""
    from pyarrow import ArrowException

    try:
        yield
    except ArrowException as error:
        where = f"{paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        raise StagingError(
            where, f"cannot be brought into verl's form: {one_line(error)}.", "Change this column."
        ) from error


def spread(count: int, wanted: int) -> Array:
    """So many rows of all, as far from each other as can be, the first among them: the same at every call."""
    import pyarrow

    if not 0 < wanted < count:
        raise StagingError("val_rows", f"is {wanted}, of {count} rows.", "Leave at least one to each of train and val.")
    return pyarrow.array((index * count // wanted for index in range(wanted)), pyarrow.int64())


def original_numbers(counts: Mapping[str, int], val_rows: int | None) -> dict[str, Array]:
    """By what the rows of each split were named when they were read: before some of train became val."""
    from pyarrow import compute

    if val_rows is None:
        return {split: numbers(0, count) for split, count in counts.items()}
    every = numbers(0, sum(counts.values()))
    taken = spread(len(every), val_rows)
    return {"train": every.filter(compute.invert(compute.is_in(every, value_set=taken))), "val": taken}


def divided(split: str, batch: Batch, rows: Array, taken: Array | None) -> Iterator[tuple[str, Batch, Array]]:
    """A batch in parts, each with the split that it goes to and the numbers of its rows."""
    from pyarrow import compute

    if taken is None:
        yield split, batch, rows
        return
    mask = compute.is_in(rows, value_set=taken)
    for to, which in (("train", compute.invert(mask)), ("val", mask)):
        some = batch.filter(which)
        if some.num_rows:
            yield to, some, rows.filter(which)


def token_limit(shared_root: Path, model: str, max_prompt_length: int) -> Limit:
    """In tokens of a model that is staged or has an absolute path."""
    path = shared_root / MODELS / model
    if not (path / "tokenizer_config.json").is_file():
        todo = "Name a model that is staged, or the absolute path of one."
        raise StagingError("model", f"{path} has no tokenizer (tokenizer_config.json).", todo)
    let_torch_see_a_function()
    from transformers import AutoTokenizer

    return Limit(max_prompt_length, AutoTokenizer.from_pretrained(path))
