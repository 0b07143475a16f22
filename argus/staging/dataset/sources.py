# SPDX-License-Identifier: Apache-2.0
"""Chooses the source of a dataset's rows from its options: files, the hub, an upload, or generated rows."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ...checks.dataset import RL, SPLITS
from ...common.identity import SHARED_ROOT
from ..items import Dataset
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError
from ..progress import Progress
from ..tiny import rl_rows, sft_rows
from .file_rows import FileRows, SharedRootPaths
from .hub_rows import HubRows
from .row_source import Fetched, RowSource
from .uploaded_rows import UploadedRows


@dataclass(frozen=True)
class TinyRows(RowSource):
    """Generated word problems of addition."""

    workload: str

    @property
    def label(self) -> str:
        return "tiny"

    @property
    def identity(self) -> Facts:
        return {"tiny": True}

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        import pyarrow
        from pyarrow import parquet

        files = {split: scratch / f"{split}.parquet" for split in SPLITS}
        for split, rows in (rl_rows() if self.workload == RL else sft_rows()).items():
            parquet.write_table(pyarrow.Table.from_pylist(rows), files[split])
        return Fetched({split: [file] for split, file in files.items()})


def check_validation_rows(has_val: bool, val_rows: int | None, workload: str) -> None:
    """Raises StagingError unless validation rows come from one place: either val has rows or `val_rows` is set."""
    if has_val and val_rows is not None:
        raise StagingError("val_rows", "is set, but val already has rows.", "Omit val_rows.")
    # SFT also runs without validation.
    if not has_val and val_rows is None and workload == RL:
        remedy = "Set files.val, or set val_rows to move so many rows of train to val."
        raise StagingError("val", "has no rows.", remedy)


def row_source_of(
    dataset: Dataset, shared_root: Path, options: StageOptions, upload: UploadedRows | None = None
) -> RowSource:
    """The source that the options of a dataset set. Raises StagingError unless they set exactly one."""
    sources = [name for name in ("files", "hub", "tiny") if getattr(dataset, name)]
    # With a repository, files selects some of its files.
    if len(sources) != 1 and sources != ["files", "hub"]:
        problem = f"{' and '.join(sources)} are set." if sources else "is not set."
        raise StagingError("source", problem, "Set one of files, hub (with files) and tiny.")
    if dataset.tiny and dataset.columns.by_key:
        raise StagingError("columns", "has no effect with tiny.", "Omit it.")
    if dataset.place and sources != ["files"]:
        raise StagingError("from", "has an effect only with files, and not with hub.", "Omit it.")
    if dataset.tiny:
        check_validation_rows(True, dataset.val_rows, dataset.workload)
        return TinyRows(dataset.workload)
    patterns = dataset.patterns
    if not patterns:
        raise StagingError("files.train", "is not set.", "Set it to the files with the training rows.")
    try:
        check_validation_rows("val" in patterns, dataset.val_rows, dataset.workload)
    except StagingError:
        if upload:
            # A file that does not exist is the likelier mistake.
            upload.check_missing()
        raise
    if dataset.hub:
        return HubRows.of(dataset, dataset.hub, shared_root, options)
    if upload:
        return upload
    root = SharedRootPaths(str(shared_root), os.environ.get(SHARED_ROOT, ""))
    return FileRows.of(patterns, root, dataset.place)
