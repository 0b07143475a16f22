# SPDX-License-Identifier: Apache-2.0
"""Rows from files in a dataset repository of the Hugging Face hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.shared_root import HUB_CACHE
from ..hub import REPO_ID, RepoRevision, download_verified, missing_bytes, name_matches, resolve_endpoint
from ..items import Dataset
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError, join_items
from ..progress import Progress
from .row_source import Fetched, RowSource


@dataclass(frozen=True)
class HubRows(RowSource):
    """Rows from files of a dataset repository. None of its code is run."""

    repository: RepoRevision
    patterns: Mapping[str, Sequence[str]]  # by split, patterns of file names in the repository

    @classmethod
    def of(cls, dataset: Dataset, repo_id: str, shared_root: Path, options: StageOptions) -> HubRows:
        patterns = dataset.patterns
        if not REPO_ID.fullmatch(repo_id):
            remedy = "Give it with its organization: openai/gsm8k."
            raise StagingError("hub", f'"{repo_id}" is not a repository.', remedy)

        def select(names: Sequence[str]) -> set[str]:
            return {name for selected in select_files(repo_id, patterns, names).values() for name in selected}

        repository = RepoRevision(
            repo_id,
            dataset.revision,
            shared_root / HUB_CACHE,
            resolve_endpoint(options.endpoint, options.token),
            options.token or None,
            select=select,
            repo_type="dataset",
        )
        return cls(repository, patterns)

    @property
    def label(self) -> str:
        return self.repository.repo_id

    @property
    def identity(self) -> Facts:
        return {"hub": self.repository.repo_id, "files": {split: list(paths) for split, paths in self.patterns.items()}}

    def size(self) -> int:
        return missing_bytes(self.repository) + sum(file.size for file in self.repository.files)

    def mismatch(self, manifest: Manifest) -> str:
        mismatch, revision = super().mismatch(manifest), self.repository.revision
        # The dataset keeps the commit that its branch had when it was staged; that commit may also be given itself.
        if mismatch or revision in (manifest.revision, manifest.commit):
            return mismatch
        before = f"{manifest.revision} (commit {manifest.commit})"
        return f"was staged from revision {before}, but the request has revision {revision}."

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        repository = self.repository
        if manifest and manifest.commit:
            # The same commit again: a branch may have moved since.
            repository = dataclasses.replace(repository, revision=manifest.commit)
        names = select_files(repository.repo_id, self.patterns, sorted(download_verified(repository, progress)))
        files = {split: [repository.snapshot_dir / name for name in selected] for split, selected in names.items()}
        revision = self.repository.revision
        return Fetched(files, {"revision": revision, "commit": repository.commit, "endpoint": repository.endpoint})


def select_files(repository: str, patterns: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each split in the order of its patterns. Raises StagingError for a pattern that matches none."""
    files_by_split: dict[str, list[str]] = {}
    for split, split_patterns in patterns.items():
        selected: dict[str, None] = {}
        for pattern in split_patterns:
            matched = [name for name in names if name_matches(name, [pattern])]
            if not matched:
                problem = f"has no file {pattern} (files.{split}); it has: {join_items(names)}."
                raise StagingError(repository, problem, "Correct the pattern, or the revision.")
            selected.update(dict.fromkeys(matched))
        files_by_split[split] = list(selected)
    return files_by_split
