# SPDX-License-Identifier: GPL-3.0-or-later
"""Rows from a dataset repository of the hub."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.shared_root import HUB_CACHE
from ..errors import StagingError, listed
from ..hub import NAME, Repository, fetch, matches, missing_bytes, resolve_endpoint
from ..items import Dataset
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StageOptions
from .source import Fetched, Source


@dataclass(frozen=True)
class Hub(Source):
    """Files of a dataset repository of the hub. None of its code is run."""

    repository: Repository
    patterns: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, options: Dataset, name: str, shared_root: Path, how: StageOptions) -> Hub:
        patterns = options.patterns
        if not NAME.fullmatch(name):
            todo = "Give it with its organization: openai/gsm8k."
            raise StagingError("hub", f'"{name}" is not a repository.', todo)

        def select(names: Sequence[str]) -> set[str]:
            return {each for several in chosen(name, patterns, names).values() for each in several}

        repository = Repository(
            name,
            options.revision,
            shared_root / HUB_CACHE,
            resolve_endpoint(how.endpoint, how.token),
            how.token or None,
            select=select,
            kind="dataset",
        )
        return cls(repository, patterns)

    @property
    def label(self) -> str:
        return self.repository.name

    @property
    def identity(self) -> Facts:
        return {"hub": self.repository.name, "files": {split: list(each) for split, each in self.patterns.items()}}

    def size(self) -> int:
        return missing_bytes(self.repository) + sum(file.size for file in self.repository.files)

    def differs(self, manifest: Manifest) -> str:
        wrong, revision = super().differs(manifest), self.repository.revision
        # A branch stays at the commit that it had when it was staged; that commit itself is no difference either.
        if wrong or revision in (manifest.revision, manifest.commit):
            return wrong
        before = f"{manifest.revision} (commit {manifest.commit})"
        return f"was staged from revision {before}, but the request has revision {revision}."

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        repository = self.repository
        if manifest and manifest.commit:
            # A branch may have moved since.
            repository = dataclasses.replace(repository, revision=manifest.commit)
        names = chosen(repository.name, self.patterns, sorted(fetch(repository, progress)))
        files = {split: [repository.snapshot / name for name in several] for split, several in names.items()}
        revision = self.repository.revision
        return Fetched(files, {"revision": revision, "commit": repository.commit, "endpoint": repository.endpoint})


def chosen(repository: str, patterns: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each split among those of a repository, each once, in the order of the patterns."""
    found: dict[str, dict[str, None]] = {split: {} for split in patterns}
    for split, several in patterns.items():
        for pattern in several:
            some = [name for name in names if matches(name, [pattern])]
            if not some:
                what = f"has no file {pattern} (files.{split}); it has: {listed(names)}."
                raise StagingError(repository, what, "Correct the pattern, or the revision.")
            found[split].update(dict.fromkeys(some))
    return {split: list(several) for split, several in found.items()}
