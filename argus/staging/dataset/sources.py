# SPDX-License-Identifier: Apache-2.0
"""Sources of rows: files, a repository of the hub, a generator; row_source_of chooses one by a dataset's options."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...checks.dataset import RL, SPLITS
from ...common.identity import SHARED_ROOT
from ...common.shared_root import HUB_CACHE_DIR, is_under_root
from ..files import matching_files
from ..hub import REPO_ID, RepoRevision, download_verified, missing_bytes, name_matches, resolve_endpoint
from ..items import Dataset
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StageOptions, StagingError, join_items
from ..tiny import rl_rows, sft_rows
from .row_source import FROM_SHARED_ROOT, Fetched, RowSource, UploadedRows


@dataclass(frozen=True)
class HubRows(RowSource):
    """Rows from files of a dataset repository of the hub. None of its code is run."""

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
            shared_root / HUB_CACHE_DIR,
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
        staged = f"{manifest.revision} (commit {manifest.commit})"
        return f"was staged from revision {staged}, but the request has revision {revision}."

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        repository = self.repository
        if manifest and manifest.commit:
            # The same commit again: a branch may have moved since.
            repository = replace(repository, revision=manifest.commit)
        names = select_files(repository.repo_id, self.patterns, sorted(download_verified(repository, progress)))
        files = {split: [repository.snapshot_dir / name for name in selected] for split, selected in names.items()}
        revision = self.repository.revision
        return Fetched(files, {"revision": revision, "commit": repository.commit, "endpoint": repository.endpoint})


def select_files(repo_id: str, patterns: Mapping[str, Sequence[str]], names: Sequence[str]) -> dict[str, list[str]]:
    """The files of each split in the order of its patterns. Raises StagingError for a pattern that matches none."""
    files_by_split: dict[str, list[str]] = {}
    for split, split_patterns in patterns.items():
        selected: dict[str, None] = {}
        for pattern in split_patterns:
            matched = [name for name in names if name_matches(name, [pattern])]
            if not matched:
                problem = f"has no file {pattern} (files.{split}); it has: {join_items(names)}."
                raise StagingError(repo_id, problem, "Correct the pattern, or the revision.")
            selected.update(dict.fromkeys(matched))
        files_by_split[split] = list(selected)
    return files_by_split


@dataclass(frozen=True)
class SharedRootPaths:
    """The path of the shared root in this node, and on the node's machine; each is empty if it is not known."""

    in_node: str = ""
    on_machine: str = ""


@dataclass(frozen=True)
class FileRows(RowSource):
    """Rows from files that this node sees."""

    patterns: Mapping[str, Sequence[str]]  # by split, absolute paths with wildcards
    matched_files: Mapping[str, Sequence[Path]]  # by split, the files that the patterns match
    shared_root: SharedRootPaths = SharedRootPaths()

    @classmethod
    def of(
        cls,
        patterns: Mapping[str, Sequence[str]],
        shared_root: SharedRootPaths = SharedRootPaths(),
        place: str | None = None,
    ) -> FileRows:
        """place: the value of the option `from`. Raises StagingError for a pattern that it does not allow."""
        absolute = {
            split: [absolute_pattern(split, pattern, shared_root, place) for pattern in split_patterns]
            for split, split_patterns in patterns.items()
        }
        matched_files = {
            split: list(dict.fromkeys(path for pattern in split_patterns for path in matching_files(pattern)))
            for split, split_patterns in absolute.items()
        }
        return cls(absolute, matched_files, shared_root)

    @property
    def label(self) -> str:
        patterns = [pattern for split in SPLITS for pattern in self.patterns.get(split, ())]
        return ", ".join(patterns[:2]) + (f" and {len(patterns) - 2} more" if len(patterns) > 2 else "")

    @property
    def identity(self) -> Facts:
        """The files as they are; a SHA-256 of gigabytes would take too long."""
        files = self.matched_files.items()
        return {"source_files": {split: [file_identity(path) for path in paths] for split, paths in files}}

    def check_patterns(self) -> None:
        """Raises StagingError for a pattern that matches no file."""
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                if not matching_files(pattern):
                    text = no_match_problem_and_remedy(pattern, socket.gethostname(), self.shared_root)
                    raise StagingError(f"files.{split}", *text)

    def size(self) -> int:
        self.check_patterns()
        return sum(path.stat().st_size for paths in self.matched_files.values() for path in paths)

    def mismatch(self, manifest: Manifest) -> str:
        """See RowSource. Files that no longer exist are no mismatch: only the dataset may be left."""
        staged_files = manifest.mapping("identity")["source_files"]
        for split in SPLITS:
            files = staged_files.get(split, ()) if isinstance(staged_files, dict) else ()
            mismatch = self._split_mismatch(split, {str(file[0]): file for file in files})
            if mismatch:
                return mismatch
        return ""

    def _split_mismatch(self, split: str, staged_files: Mapping[str, list[str | int]]) -> str:
        """staged_files: by path, file_identity of the files from which the split was staged."""
        current = {str(path): file_identity(path) for path in self.matched_files.get(split, ())}
        for path, file in current.items():
            if path not in staged_files:
                return f"was staged without {path}, which files.{split} has now."
            if (previous := staged_files[path]) != file:
                problem = f"{previous[1]} bytes before, {file[1]} now" if previous[1] != file[1] else "another time"
                return f"was staged from {path}, which has changed since ({problem})."
        remaining = [path for path in staged_files if path in current or Path(path).exists()]
        for path in remaining:
            if path not in current:
                return f"was also staged from {path}, which files.{split} does not have now."
        return f"was staged from the files of files.{split} in another order." if remaining != [*current] else ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        self.check_patterns()
        return Fetched(self.matched_files)


def file_identity(path: Path) -> list[str | int]:
    """The path, the size in bytes and the modification time of a file."""
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns]


def absolute_pattern(split: str, pattern: str, shared_root: SharedRootPaths, place: str | None) -> str:
    """The absolute path. Raises StagingError for a relative one or, with from: shared_root, one not below that."""
    path = str(Path(pattern).expanduser())
    if place == FROM_SHARED_ROOT:
        root, machine = shared_root.in_node, shared_root.on_machine
        path = path if path.startswith("/") else f"{root}/{path}"
        if not is_under_root(path, root):
            also = f" in nodes, and {machine} on the head's machine" if machine else ""
            problem = f'"{pattern}" is not below the shared root, which is {root}{also}.'
            raise StagingError(f"files.{split}", problem, "Give the path relative to the shared root.")
    elif not path.startswith("/"):
        raise StagingError(f"files.{split}", f'"{path}" is not an absolute path.', "Begin it with a slash.")
    return path


def no_match_problem_and_remedy(pattern: str, host: str, shared_root: SharedRootPaths) -> tuple[str, str]:
    """What to tell a user whose pattern matches no file."""
    root, machine = shared_root.in_node, shared_root.on_machine
    also = f" ({machine} on its machine)" if machine and machine != root else ""
    remedy = "Give a path as this node sees it. With from: controller, files of the controller are uploaded."
    if root and machine and is_under_root(pattern, machine):
        remedy = f"Give {root}{pattern[len(machine) :]}: nodes see the shared root there."
    return f"no file matches {pattern} on {host}, where the shared root is {root}{also}.", remedy


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
