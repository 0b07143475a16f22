# SPDX-License-Identifier: Apache-2.0
"""The sources of rows: files, the hub, or generated rows; and the selection of one for a dataset."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...checks.dataset import RL, SPLITS
from ...common.identity import SHARED_ROOT
from ...common.shared_root import HUB_CACHE, is_under_root
from ..files import matching_files
from ..hub import REPO_ID, RepoRevision, fetch, matches, missing_bytes, resolve_endpoint
from ..items import Dataset
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError, join_items
from ..tiny import rl_rows, sft_rows
from .source import SHARED_ROOT as ON_SHARED_ROOT
from .source import Fetched, RowSource, Upload

# Rows from a dataset repository of the hub.


@dataclass(frozen=True)
class HubRows(RowSource):
    """Files of a dataset repository of the hub. None of its code is run."""

    repository: RepoRevision
    patterns: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, options: Dataset, name: str, shared_root: Path, how: StageOptions) -> HubRows:
        patterns = options.patterns
        if not REPO_ID.fullmatch(name):
            remedy = "Give it with its organization: openai/gsm8k."
            raise StagingError("hub", f'"{name}" is not a repository.', remedy)

        def select(names: Sequence[str]) -> set[str]:
            return {file_name for several in select_files(name, patterns, names).values() for file_name in several}

        repository = RepoRevision(
            name,
            options.revision,
            shared_root / HUB_CACHE,
            resolve_endpoint(how.endpoint, how.token),
            how.token or None,
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

    def difference(self, manifest: Manifest) -> str:
        difference, revision = super().difference(manifest), self.repository.revision
        # A branch stays at the commit that it had when it was staged; that commit itself is no difference either.
        if difference or revision in (manifest.revision, manifest.commit):
            return difference
        before = f"{manifest.revision} (commit {manifest.commit})"
        return f"was staged from revision {before}, but the request has revision {revision}."

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        repository = self.repository
        if manifest and manifest.commit:
            # A branch may have moved since.
            repository = dataclasses.replace(repository, revision=manifest.commit)
        names = select_files(repository.repo_id, self.patterns, sorted(fetch(repository, progress)))
        files = {split: [repository.snapshot_dir / name for name in several] for split, several in names.items()}
        revision = self.repository.revision
        return Fetched(files, {"revision": revision, "commit": repository.commit, "endpoint": repository.endpoint})


def select_files(repository: str, patterns: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each split among those of a repository, each once, in the order of the patterns."""
    files_by_split: dict[str, dict[str, None]] = {split: {} for split in patterns}
    for split, several in patterns.items():
        for pattern in several:
            some = [name for name in names if matches(name, [pattern])]
            if not some:
                problem = f"has no file {pattern} (files.{split}); it has: {join_items(names)}."
                raise StagingError(repository, problem, "Correct the pattern, or the revision.")
            files_by_split[split].update(dict.fromkeys(some))
    return {split: list(several) for split, several in files_by_split.items()}


# Selects the source of rows for the options of a dataset: files, the hub, or generated rows.


@dataclass(frozen=True)
class FileRows(RowSource):
    """Files in the node. patterns, paths: by split. shared_root: its path here, and on the machine if that is known."""

    patterns: Mapping[str, Sequence[str]]
    paths: Mapping[str, Sequence[Path]]
    shared_root: tuple[str, str] = ("", "")

    @classmethod
    def of(
        cls, patterns: Mapping[str, Sequence[str]], shared_root: tuple[str, str] = ("", ""), place: str | None = None
    ) -> FileRows:
        """place: where relative paths begin, and absolute ones have to be."""
        absolute = {
            split: [absolute_path(split, pattern, *shared_root, place) for pattern in several]
            for split, several in patterns.items()
        }
        paths = {
            split: list(dict.fromkeys(path for pattern in several for path in matching_files(pattern)))
            for split, several in absolute.items()
        }
        return cls(absolute, paths, shared_root)

    @property
    def label(self) -> str:
        patterns = [pattern for split in SPLITS for pattern in self.patterns.get(split, ())]
        return ", ".join(patterns[:2]) + (f" and {len(patterns) - 2} more" if len(patterns) > 2 else "")

    @property
    def identity(self) -> Facts:
        """The files as they are; a SHA-256 of gigabytes would take too long."""
        return {"source_files": {split: [file_identity(path) for path in paths] for split, paths in self.paths.items()}}

    def size(self) -> int:
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                if not matching_files(pattern):
                    raise StagingError(f"files.{split}", *no_match(pattern, socket.gethostname(), *self.shared_root))
        return sum(path.stat().st_size for paths in self.paths.values() for path in paths)

    def difference(self, manifest: Manifest) -> str:
        """Files that no longer exist are no difference: the dataset may be all that is left of them."""
        before = manifest.mapping("identity")["source_files"]
        for split in SPLITS:
            files = before.get(split, ()) if isinstance(before, dict) else ()
            difference = self._difference(split, {str(file[0]): file for file in files})
            if difference:
                return difference
        return ""

    def _difference(self, split: str, before: Mapping[str, list[str | int]]) -> str:
        current = {str(path): file_identity(path) for path in self.paths.get(split, ())}
        for path, file in current.items():
            if path not in before:
                return f"was staged without {path}, which files.{split} has now."
            if (previous := before[path]) != file:
                problem = f"{previous[1]} bytes before, {file[1]} now" if previous[1] != file[1] else "another time"
                return f"was staged from {path}, which has changed since ({problem})."
        remaining = [path for path in before if path in current or Path(path).exists()]
        for path in remaining:
            if path not in current:
                return f"was also staged from {path}, which files.{split} does not have now."
        return f"was staged from the files of files.{split} in another order." if remaining != [*current] else ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        self.size()
        return Fetched(self.paths)


def file_identity(path: Path) -> list[str | int]:
    """Path, size and time of change of a file."""
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns]


def absolute_path(split: str, pattern: str, here: str, machine: str, place: str | None) -> str:
    """The path of a pattern in this node; an error if that is not where the files are."""
    path = str(Path(pattern).expanduser())
    if place == ON_SHARED_ROOT:
        path = path if path.startswith("/") else f"{here}/{path}"
        if not is_under_root(path, here):
            also = f" in nodes, and {machine} on the head's machine" if machine else ""
            problem = f'"{pattern}" is not below the shared root, which is {here}{also}.'
            raise StagingError(f"files.{split}", problem, "Give the path relative to the shared root.")
    elif not path.startswith("/"):
        raise StagingError(f"files.{split}", f'"{path}" is not an absolute path.', "Begin it with a slash.")
    return path


def no_match(pattern: str, host: str, here: str, machine: str) -> tuple[str, str]:
    """The problem with a pattern that matches nothing, and its remedy. here, machine: paths of the shared root."""
    also = f" ({machine} on its machine)" if machine and machine != here else ""
    remedy = "Give a path as this node sees it. With from: controller, files of the controller are uploaded."
    if here and machine and is_under_root(pattern, machine):
        remedy = f"Give {here}{pattern[len(machine) :]}: nodes see the shared root there."
    return f"no file matches {pattern} on {host}, where the shared root is {here}{also}.", remedy


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


def check_val(has_val: bool, val_rows: int | None, workload: str) -> None:
    if has_val and val_rows is not None:
        raise StagingError("val_rows", "is set, but val already has rows.", "Omit val_rows.")
    # A job of SFT runs without validation.
    if not has_val and val_rows is None and workload == RL:
        remedy = "Set files.val, or set val_rows to move so many rows of train to val."
        raise StagingError("val", "has no rows.", remedy)


def source_of(options: Dataset, shared_root: Path, how: StageOptions, upload: Upload | None = None) -> RowSource:
    """The one source that the options set. upload: its files, if they are on the controller."""
    sources = [name for name in ("files", "hub", "tiny") if getattr(options, name)]
    # With a repository, files selects some of its files.
    if len(sources) != 1 and sources != ["files", "hub"]:
        problem = f"{' and '.join(sources)} are set." if sources else "is not set."
        raise StagingError("source", problem, "Set one of files, hub (with files) and tiny.")
    if options.tiny and options.columns.roles:
        raise StagingError("columns", "has no effect with tiny.", "Omit it.")
    if options.place and sources != ["files"]:
        raise StagingError("from", "has an effect only with files, and not with hub.", "Omit it.")
    if options.tiny:
        check_val(True, options.val_rows, options.workload)
        return TinyRows(options.workload)
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
        return HubRows.of(options, options.hub, shared_root, how)
    return upload or FileRows.of(patterns, (str(shared_root), os.environ.get(SHARED_ROOT, "")), options.place)
