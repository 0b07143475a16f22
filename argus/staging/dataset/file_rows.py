# SPDX-License-Identifier: Apache-2.0
"""Rows from files that this node sees."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...checks.dataset import SPLITS
from ...common.shared_root import under_root
from ..files import matching_files
from ..manifest import Facts, Manifest
from ..options import StagingError
from ..progress import Progress
from .row_source import FROM_SHARED_ROOT, Fetched, RowSource


@dataclass(frozen=True)
class SharedRootPaths:
    """The path of the shared root in this node, and on the node's machine; each is empty if it is not known."""

    in_node: str = ""
    on_machine: str = ""


@dataclass(frozen=True)
class FileRows(RowSource):
    """Rows from files that this node sees."""

    # By split: absolute paths with wildcards, and the files that these match.
    patterns: Mapping[str, Sequence[str]]
    paths: Mapping[str, Sequence[Path]]
    shared_root: SharedRootPaths = SharedRootPaths()

    @classmethod
    def of(
        cls,
        patterns: Mapping[str, Sequence[str]],
        shared_root: SharedRootPaths = SharedRootPaths(),
        origin: str | None = None,
    ) -> FileRows:
        """origin: the value of the option `from`. Raises StagingError for a pattern that it does not allow."""
        absolute = {
            split: [absolute_pattern(split, pattern, shared_root, origin) for pattern in split_patterns]
            for split, split_patterns in patterns.items()
        }
        paths = {
            split: list(dict.fromkeys(path for pattern in split_patterns for path in matching_files(pattern)))
            for split, split_patterns in absolute.items()
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

    def check_patterns(self) -> None:
        """Raises StagingError for a pattern that matches no file."""
        for split, patterns in self.patterns.items():
            for pattern in patterns:
                if not matching_files(pattern):
                    text = no_match_problem_and_remedy(pattern, socket.gethostname(), self.shared_root)
                    raise StagingError(f"files.{split}", *text)

    def size(self) -> int:
        self.check_patterns()
        return sum(path.stat().st_size for paths in self.paths.values() for path in paths)

    def mismatch(self, manifest: Manifest) -> str:
        """See RowSource. Files that no longer exist are no mismatch: only the dataset may be left."""
        before = manifest.mapping("identity")["source_files"]
        for split in SPLITS:
            files = before.get(split, ()) if isinstance(before, dict) else ()
            mismatch = self._split_mismatch(split, {str(file[0]): file for file in files})
            if mismatch:
                return mismatch
        return ""

    def _split_mismatch(self, split: str, before: Mapping[str, list[str | int]]) -> str:
        """before: the identities of the files from which the split was staged, by path."""
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
        self.check_patterns()
        return Fetched(self.paths)


def file_identity(path: Path) -> list[str | int]:
    """The path, the size in bytes and the modification time of a file."""
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns]


def absolute_pattern(split: str, pattern: str, shared_root: SharedRootPaths, origin: str | None) -> str:
    """The pattern as an absolute path in this node. Raises StagingError unless it is one where `origin` has files."""
    path = str(Path(pattern).expanduser())
    if origin == FROM_SHARED_ROOT:
        root, machine = shared_root.in_node, shared_root.on_machine
        path = path if path.startswith("/") else f"{root}/{path}"
        if not under_root(path, root):
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
    if root and machine and under_root(pattern, machine):
        remedy = f"Give {root}{pattern[len(machine) :]}: nodes see the shared root there."
    return f"no file matches {pattern} on {host}, where the shared root is {root}{also}.", remedy
