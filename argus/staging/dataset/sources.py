# SPDX-License-Identifier: Apache-2.0
"""The sources of rows, and which one a dataset has: files, the hub, or generated rows."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...checks.dataset import RL, SPLITS
from ...common.identity import SHARED_ROOT
from ...common.shared_root import HUB_CACHE, under_root
from ..files import matching
from ..hub import NAME, Repository, fetch, matches, missing_bytes, resolve_endpoint
from ..items import Dataset
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError, listed
from ..tiny import rl_rows, sft_rows
from .source import SHARED_ROOT as ON_SHARED_ROOT
from .source import Fetched, Source, Upload

# Rows from a dataset repository of the hub.


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


# Selects the source of rows for the options of a dataset: files, the hub, or generated rows.


@dataclass(frozen=True)
class Files(Source):
    """Files in the node. patterns, found: by split. shared_root: its path here, and on the machine if that is known."""

    patterns: Mapping[str, Sequence[str]]
    found: Mapping[str, Sequence[Path]]
    shared_root: tuple[str, str] = ("", "")

    @classmethod
    def of(
        cls, patterns: Mapping[str, Sequence[str]], shared_root: tuple[str, str] = ("", ""), place: str | None = None
    ) -> Files:
        """place: where relative paths begin, and absolute ones have to be."""
        absolute = {
            split: [absolute_path(split, pattern, *shared_root, place) for pattern in several]
            for split, several in patterns.items()
        }
        found = {
            split: list(dict.fromkeys(path for pattern in several for path in matching(pattern)))
            for split, several in absolute.items()
        }
        return cls(absolute, found, shared_root)

    @property
    def label(self) -> str:
        named = [pattern for split in SPLITS for pattern in self.patterns.get(split, ())]
        return ", ".join(named[:2]) + (f" and {len(named) - 2} more" if len(named) > 2 else "")

    @property
    def identity(self) -> Facts:
        """The files as they are; a SHA-256 of gigabytes would take too long."""
        return {"source_files": {split: [described(path) for path in paths] for split, paths in self.found.items()}}

    def size(self) -> int:
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                if not matching(pattern):
                    raise StagingError(f"files.{split}", *no_match(pattern, socket.gethostname(), *self.shared_root))
        return sum(path.stat().st_size for paths in self.found.values() for path in paths)

    def differs(self, manifest: Manifest) -> str:
        """Files that no longer exist are no difference: the dataset may be all that is left of them."""
        before = manifest.mapping("identity")["source_files"]
        for split in SPLITS:
            files = before.get(split, ()) if isinstance(before, dict) else ()
            wrong = self._difference(split, {str(file[0]): file for file in files})
            if wrong:
                return wrong
        return ""

    def _difference(self, split: str, before: Mapping[str, list[str | int]]) -> str:
        now = {str(path): described(path) for path in self.found.get(split, ())}
        for path, file in now.items():
            if path not in before:
                return f"was staged without {path}, which files.{split} has now."
            if (old := before[path]) != file:
                what = f"{old[1]} bytes before, {file[1]} now" if old[1] != file[1] else "another time"
                return f"was staged from {path}, which has changed since ({what})."
        left = [path for path in before if path in now or Path(path).exists()]
        for path in left:
            if path not in now:
                return f"was also staged from {path}, which files.{split} does not have now."
        return f"was staged from the files of files.{split} in another order." if left != [*now] else ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        self.size()
        return Fetched(self.found)


def described(path: Path) -> list[str | int]:
    """Path, size and time of change of a file."""
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns]


def absolute_path(split: str, pattern: str, here: str, machine: str, place: str | None) -> str:
    """The path of a pattern in this node; an error if that is not where the files are."""
    path = str(Path(pattern).expanduser())
    if place == ON_SHARED_ROOT:
        path = path if path.startswith("/") else f"{here}/{path}"
        if not under_root(path, here):
            also = f" in nodes, and {machine} on the head's machine" if machine else ""
            what = f'"{pattern}" is not below the shared root, which is {here}{also}.'
            raise StagingError(f"files.{split}", what, "Give the path relative to the shared root.")
    elif not path.startswith("/"):
        raise StagingError(f"files.{split}", f'"{path}" is not an absolute path.', "Begin it with a slash.")
    return path


def no_match(pattern: str, host: str, here: str, machine: str) -> tuple[str, str]:
    """What is wrong with a pattern that matches nothing, and what to do. here, machine: paths of the shared root."""
    also = f" ({machine} on its machine)" if machine and machine != here else ""
    todo = "Give a path as this node sees it. With from: controller, files of the controller are uploaded."
    if here and machine and under_root(pattern, machine):
        todo = f"Give {here}{pattern[len(machine) :]}: nodes see the shared root there."
    return f"no file matches {pattern} on {host}, where the shared root is {here}{also}.", todo


@dataclass(frozen=True)
class Tiny(Source):
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


def check_val(has_val: bool, val_rows: int | None, workload: str) -> None:
    if has_val and val_rows is not None:
        raise StagingError("val_rows", "is set, but val already has rows.", "Omit val_rows.")
    # A job of SFT runs without validation.
    if not has_val and val_rows is None and workload == RL:
        todo = "Set files.val, or set val_rows to move so many rows of train to val."
        raise StagingError("val", "has no rows.", todo)


def source_of(options: Dataset, shared_root: Path, how: StageOptions, upload: Upload | None = None) -> Source:
    """The one source that the options set. upload: its files, if they are on the controller."""
    given = [name for name in ("files", "hub", "tiny") if getattr(options, name)]
    # With a repository, files selects some of its files.
    if len(given) != 1 and given != ["files", "hub"]:
        what = f"{' and '.join(given)} are set." if given else "is not set."
        raise StagingError("source", what, "Set one of files, hub (with files) and tiny.")
    if options.tiny and options.columns.given:
        raise StagingError("columns", "has no effect with tiny.", "Omit it.")
    if options.place and given != ["files"]:
        raise StagingError("from", "has an effect only with files, and not with hub.", "Omit it.")
    if options.tiny:
        check_val(True, options.val_rows, options.workload)
        return Tiny(options.workload)
    patterns = options.patterns
    if not patterns:
        raise StagingError("files.train", "is not set.", "Set it to the files with the training rows.")
    try:
        check_val("val" in patterns, options.val_rows, options.workload)
    except StagingError:
        if upload:
            # A file that does not exist is more likely the mistake.
            upload.check_missing()
        raise
    if options.hub:
        return Hub.of(options, options.hub, shared_root, how)
    return upload or Files.of(patterns, (str(shared_root), os.environ.get(SHARED_ROOT, "")), options.place)
