# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the hub for the commit and the files of a repository."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StagingError
from . import library, retry
from .files import is_relative, matches, normal
from .location import COMMIT, Location

# The name of a blob: SHA-256 for a file in LFS, git's own SHA-1 for any other.
ETAG = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub announces it."""

    name: str
    size: int
    etag: str


@dataclass(frozen=True)
class Info:
    """The answer of the hub for one revision."""

    commit: str
    files: Sequence[RemoteFile]


@dataclass(frozen=True)
class Repository(Location):
    """One revision of a repository, and which of its files are wanted.

    exclude: patterns of files to omit, or a function that returns them for the names of all files.
    select: the function that selects the wanted ones of all names; excluded ones are omitted from them.
    """

    exclude: Sequence[str] | Callable[[Sequence[str]], Sequence[str]] = ()
    select: Callable[[Sequence[str]], Collection[str]] = set

    @property
    def commit(self) -> str:
        return self._info.commit

    @property
    def snapshot(self) -> Path:
        return self.storage / "snapshots" / self.commit

    @functools.cached_property
    def files(self) -> list[RemoteFile]:
        """The wanted files."""
        wanted = self.select(self._names)
        return [file for file in self._info.files if file.name in wanted and not matches(file.name, self.excluded)]

    @functools.cached_property
    def excluded(self) -> list[str]:
        """The patterns of files that are omitted."""
        return [normal(each) for each in (self.exclude(self._names) if callable(self.exclude) else self.exclude)]

    @functools.cached_property
    def library(self) -> Any:
        return library.load_library(self.cache)

    @property
    def _names(self) -> list[str]:
        return [file.name for file in self._info.files]

    @functools.cached_property
    def _info(self) -> Info:
        api = self.library.HfApi(endpoint=self.endpoint, token=self.token or False)

        def ask() -> Any:
            return api.repo_info(
                self.name,
                repo_type=self.kind,
                revision=self.revision,
                files_metadata=True,
                timeout=library.ANSWER_SECONDS,
            )

        answer = retry.with_retries(self, self.library, ask, retry.QUESTION_WAITS)
        files = [self._remote_file(each) for each in answer.siblings or ()]
        if not COMMIT.fullmatch(str(answer.sha)):
            raise StagingError(self.where, "does not report its commit.", "Set another endpoint.")
        return Info(answer.sha, files)

    def _remote_file(self, sibling: Any) -> RemoteFile:
        etag = str(sibling.lfs.sha256 if sibling.lfs else sibling.blob_id)
        size = sibling.lfs.size if sibling.lfs else sibling.size
        # Name and hash become part of paths.
        if size is None or not ETAG.fullmatch(etag) or not is_relative(sibling.rfilename):
            raise StagingError(
                self.where,
                f"does not report size and hash of {sibling.rfilename}, so its content cannot be verified.",
                "Set another endpoint, or download it elsewhere and give the directory as source.",
            )
        return RemoteFile(sibling.rfilename, size, etag)
