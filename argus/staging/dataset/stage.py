# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages datasets: train.parquet and val.parquet in verl's schema, under the shared root, with every row checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from ...checks.rows import RL, SFT, SPLITS
from ...common.shared_root import DATASETS, HUB_CACHE, MODELS
from ..errors import StagingError, reported
from ..files import remove_tree
from ..lock import Progress, locked
from ..manifest import Manifest, read_manifest
from ..options import StageOptions, check_name, check_shared_root
from ..result import Staged
from ..store import Built, Request, remove_downloaded, replace_manifest, stage
from .builder import DatasetBuilder, original_numbers, verdict
from .checks import Checker, Limit
from .form import Form, form_of
from .options import DatasetOptions, Measure
from .rows import Rows
from .source import Source, difference_of
from .sources import source_of
from .upload import inbox

KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# The options in the identity of a dataset that do not belong to its source.
OWN_OPTIONS = {*Form.__dataclass_fields__, "val_rows"}


def request(
    shared_root: Path,
    name: str,
    source: Source,
    form: Form,
    *,
    val_rows: int | None = None,
    measure: Measure | None = None,
) -> Request:
    """A dataset under the shared root.

    val_rows: how many rows of train become val, if the source has none. measure: how prompts are measured, if at all.
    """
    target = shared_root / DATASETS / check_name("name", name)
    own = {**form.identity, **({} if val_rows is None else {"val_rows": val_rows})}

    def build(directory: Path, progress: Progress) -> Built:
        before = read_manifest(target) if target.exists() else None
        identity = {**source.identity, **own}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            fetched = source.fetch(scratch, progress, before)
            checker = Checker(form.workload, token_limit(shared_root, measure) if measure else None)
            rows = DatasetBuilder(target, form, checker, directory, progress).run(fetched.files, val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **own} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nothing writes to it.")
        found = {"rows": rows, "report": checker.warnings()}
        measured = {"measured": measure.to_json()} if measure else {}
        return Built({"source": source.label, **fetched.facts, **found, **measured, "identity": identity})

    def differs(manifest: Manifest) -> str:
        identity = manifest.mapping("identity")
        if next(iter(source.identity)) not in identity:
            return f"was staged from {manifest.source}, but the request has {source.label}."
        wrong = source.differs(manifest)
        if wrong:
            return wrong
        # An option that was set then and is not set now counts as well.
        names = {*own, *(option for option in identity if option in OWN_OPTIONS)}
        return difference_of(manifest, {option: own.get(option) for option in sorted(names)})

    return Request(KINDS[form.workload], name, target, build, differs, size=source.size)


def request_of(shared_root: Path, options: DatasetOptions) -> Request:
    """The request for the options of a dataset."""
    check_shared_root(shared_root)
    source, form = source_of(options, shared_root), form_of(options)
    return request(shared_root, options.name, source, form, val_rows=options.val_rows, measure=options.measure)


def stage_dataset(shared_root: Path, options: DatasetOptions, how: StageOptions | None = None) -> Staged:
    """Stages a dataset. An existing one is checked again if it was not measured as requested."""
    how, measure = how or StageOptions(), options.measure
    requested = request_of(shared_root, options)
    staged = stage(requested, how)
    if options.upload and not how.check:
        # What a killed process has left as well.
        remove_tree(inbox(shared_root, options.name))
    if how.check or measure is None or is_measured(requested.target, measure):
        return staged
    with reported(requested.target, "checked"), locked(requested.target) as progress:
        # The previous holder of the lock may have done it.
        manifest = read_manifest(requested.target)
        if manifest and not is_measured(requested.target, measure):
            checker = Checker(options.workload, token_limit(shared_root, measure))
            report = check_again(requested.target, manifest, checker, progress)
            measured = manifest.with_facts(report=report, measured=measure.to_json())
            replace_manifest(requested.target, measured)
            staged = dataclasses.replace(staged, notes=(*staged.notes, *report))
    return staged


def is_measured(target: Path, measure: Measure) -> bool:
    """Whether a dataset was measured like this; also true if there is none."""
    manifest = read_manifest(target)
    return manifest is None or manifest.facts.get("measured") == measure.to_json()


def check_again(target: Path, manifest: Manifest, checker: Checker, progress: Progress) -> list[str]:
    """The warnings for the rows of an existing dataset, the same as when it is built."""
    files = {split: target / f"{split}.parquet" for split in SPLITS}
    counts = {split: int(str(count)) for split, count in manifest.mapping("rows").items()}
    val_rows = manifest.mapping("identity").get("val_rows")
    named = original_numbers(counts, val_rows if isinstance(val_rows, int) else None)
    progress.begin("checking", sum(path.stat().st_size for path in files.values()))
    for split, path in files.items():
        start = 0
        for batch in Rows([path], progress).batches():
            checker.check(split, batch, named[split][start : start + batch.num_rows])
            start += batch.num_rows
    checker.compare()
    return verdict(target, checker)


def remove_dataset(
    shared_root: Path, name: str, workload: str, users: Callable[[Path], Sequence[str]], *, check: bool = False
) -> Staged:
    """Removes a dataset of any workload, and its commit from the hub's cache unless another dataset needs it."""
    datasets = check_shared_root(shared_root) / DATASETS
    target = datasets / check_name("name", name)
    if not check:
        remove_tree(inbox(shared_root, name))
    manifest = read_manifest(target)
    kind = manifest.kind if manifest and manifest.kind in KINDS.values() else KINDS[workload]
    return remove_downloaded(kind, name, target, shared_root / HUB_CACHE, users, check=check)


def token_limit(shared_root: Path, measure: Measure) -> Limit:
    """The limit by the tokenizer of a model that is staged or has an absolute path."""
    path = shared_root / MODELS / measure.model
    if not (path / "tokenizer_config.json").is_file():
        todo = "Set it to a staged model, or to the absolute path of a model."
        raise StagingError("model", f"{path} has no tokenizer (tokenizer_config.json).", todo)
    from transformers import AutoTokenizer

    return Limit(measure.max_prompt_length, AutoTokenizer.from_pretrained(path))
