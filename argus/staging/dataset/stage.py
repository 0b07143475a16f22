# SPDX-License-Identifier: GPL-3.0-or-later
"""Stages datasets: train.parquet and val.parquet in verl's schema, under the shared root, with every row checked."""

from __future__ import annotations

from pathlib import Path

from ...checks.rows import RL, SFT
from ...common.shared_root import DATASETS
from ..errors import StagingError
from ..files import remove_tree
from ..items import COLUMN_TEXTS, Dataset
from ..lock import Progress
from ..manifest import Manifest, read_manifest
from ..options import StageOptions, check_name, check_shared_root
from ..result import Staged
from ..store import Built, Request, remove_downloaded, stage
from .builder import DatasetBuilder
from .checks import Checker
from .form import Form
from .source import difference_of
from .sources import source_of
from .upload import Upload

KINDS = {RL: "rl_dataset", SFT: "sft_dataset"}
# The options in the identity of a dataset that do not belong to its source.
OWN_OPTIONS = {"workload", "columns", "val_rows", *COLUMN_TEXTS}


def request(shared_root: Path, options: Dataset, how: StageOptions, upload: Upload | None = None) -> Request:
    """A dataset under the shared root. upload: its files, if they are on the controller."""
    check_shared_root(shared_root)
    source, form = source_of(options, shared_root, how, upload), Form(options)
    target = shared_root / DATASETS / check_name("name", options.name)
    own = {**form.identity, **({} if options.val_rows is None else {"val_rows": options.val_rows})}

    def build(directory: Path, progress: Progress) -> Built:
        before = read_manifest(target) if target.exists() else None
        identity = {**source.identity, **own}
        scratch = directory / ".source"
        scratch.mkdir()
        try:
            fetched = source.fetch(scratch, progress, before)
            checker = Checker(form.workload)
            rows = DatasetBuilder(target, form, checker, directory, progress).run(fetched.files, options.val_rows)
        finally:
            remove_tree(scratch)
        if {**source.identity, **own} != identity:
            raise StagingError(source.label, "changed while it was read.", "Stage it again when nothing writes to it.")
        found = {"rows": rows, "report": checker.warnings()}
        return Built({"source": source.label, **fetched.facts, **found, "identity": identity})

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
    """Stages a dataset."""
    return stage(request(shared_root, options, how, upload), how)


def remove_dataset(shared_root: Path, name: str, workload: str, *, check: bool = False) -> Staged:
    """Removes a dataset of any workload, and its commit from the hub's cache unless another dataset needs it."""
    datasets = check_shared_root(shared_root) / DATASETS
    target = datasets / check_name("name", name)
    manifest = read_manifest(target)
    kind = manifest.kind if manifest and manifest.kind in KINDS.values() else KINDS[workload]
    return remove_downloaded(shared_root, kind, name, target, check=check)
