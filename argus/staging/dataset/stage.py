# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages datasets: train.parquet and val.parquet in verl's schema, under the shared root, with every row checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ...checks.rows import RL, SFT, SPLITS
from ...common.shared_root import DATASETS, MODELS
from ..errors import StagingError, reported
from ..files import remove_tree
from ..items import COLUMN_TEXTS, Dataset
from ..lock import Progress, locked
from ..manifest import Manifest, read_manifest
from ..options import StageOptions, check_name, check_shared_root
from ..result import Staged
from ..store import Built, Request, remove_downloaded, replace_manifest, stage
from .builder import DatasetBuilder, original_numbers, verdict
from .checks import Checker, Limit
from .form import Form
from .rows import Rows
from .source import difference_of
from .sources import source_of
from .upload import Upload, inbox

KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# The options in the identity of a dataset that do not belong to its source.
OWN_OPTIONS = {"workload", "columns", "val_rows", *COLUMN_TEXTS}


def request(shared_root: Path, options: Dataset, how: StageOptions, upload: Upload | None = None) -> Request:
    """A dataset under the shared root. upload: its files, if they are on the controller."""
    check_shared_root(shared_root)
    source, form, measured = source_of(options, shared_root, how, upload), Form(options), options.measured
    target = shared_root / DATASETS / check_name("name", options.name)
    own = {**form.identity, **({} if options.val_rows is None else {"val_rows": options.val_rows})}

    def build(directory: Path, progress: Progress) -> Built:
        before = read_manifest(target) if target.exists() else None
        identity = {**source.identity, **own}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            fetched = source.fetch(scratch, progress, before)
            checker = Checker(form.workload, token_limit(shared_root, options))
            rows = DatasetBuilder(target, form, checker, directory, progress).run(fetched.files, options.val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **own} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nothing writes to it.")
        found = {"rows": rows, "report": checker.warnings()}
        facts = {"source": source.label, **fetched.facts, **found, **({"measured": measured} if measured else {})}
        return Built({**facts, "identity": identity})

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

    return Request(KINDS[form.workload], options.name, target, build, differs, size=source.size)


def stage_dataset(shared_root: Path, options: Dataset, how: StageOptions, upload: Upload | None = None) -> Staged:
    """Stages a dataset. An existing one is checked again if it was not measured as requested."""
    requested = request(shared_root, options, how, upload)
    staged = stage(requested, how)
    if upload and not how.check:
        # What a killed process has left as well.
        remove_tree(inbox(shared_root, options.name))
    measured = options.measured
    if how.check or measured is None or is_measured(requested.target, measured):
        return staged
    with reported(requested.target, "checked"), locked(requested.target) as progress:
        # The previous holder of the lock may have done it.
        manifest = read_manifest(requested.target)
        if manifest and not is_measured(requested.target, measured):
            checker = Checker(options.workload, token_limit(shared_root, options))
            report = check_again(requested.target, manifest, checker, progress)
            facts = {**manifest.facts, "report": report, "measured": measured}
            replace_manifest(requested.target, Manifest(facts, manifest.files))
            staged = dataclasses.replace(staged, notes=(*staged.notes, *report))
    return staged


def is_measured(target: Path, measured: Mapping[str, object]) -> bool:
    """Whether a dataset was measured like this; also true if there is none."""
    manifest = read_manifest(target)
    return manifest is None or manifest.facts.get("measured") == measured


def check_again(target: Path, manifest: Manifest, checker: Checker, progress: Progress) -> list[str]:
    """The warnings for the rows of an existing dataset, the same as when it is built."""
    files = {split: path for split in SPLITS if (path := target / f"{split}.parquet").exists()}
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


def remove_dataset(shared_root: Path, name: str, workload: str, *, check: bool = False) -> Staged:
    """Removes a dataset of any workload, and its commit from the hub's cache unless another dataset needs it."""
    datasets = check_shared_root(shared_root) / DATASETS
    target = datasets / check_name("name", name)
    if not check:
        remove_tree(inbox(shared_root, name))
    manifest = read_manifest(target)
    kind = manifest.kind if manifest and manifest.kind in KINDS.values() else KINDS[workload]
    return remove_downloaded(shared_root, kind, name, target, check=check)


def token_limit(shared_root: Path, options: Dataset) -> Limit | None:
    """The limit by the tokenizer of a model that is staged or has an absolute path; None without a limit."""
    if options.model is None or options.max_prompt_length is None:
        return None
    path = shared_root / MODELS / options.model
    if not (path / "tokenizer_config.json").is_file():
        todo = "Set it to a staged model, or to the absolute path of a model."
        raise StagingError("model", f"{path} has no tokenizer (tokenizer_config.json).", todo)
    from transformers import AutoTokenizer

    return options.max_prompt_length, AutoTokenizer.from_pretrained(path)
