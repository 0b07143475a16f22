# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Downloads the files of a repository into the hub's own cache, and removes them from it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..errors import listed
from ..files import THREADS
from ..lock import Progress
from . import library, retry
from .errors import hash_mismatch, is_file_system_error, is_transient
from .files import followed, hashes_of, links
from .location import storage
from .repository import RemoteFile, Repository

GIT_DIGITS = 40


def missing_bytes(repository: Repository) -> int:
    """The size of the wanted files that are not in the cache."""
    return sum(file.size for file in repository.files if not _is_cached(repository, file))


def fetch(repository: Repository, progress: Progress) -> dict[str, str]:
    """Downloads all wanted files into the cache, and returns their SHA-256.

    A file that does not match the hub's hash is downloaded once more: it may have been damaged in the cache, or on its
    way.
    """
    download = Download(repository, progress)
    hashes = download.run(repository.files)
    wrong = [file for file in repository.files if file.name not in hashes]
    if wrong:
        _discard(repository, wrong)
        hashes |= download.run(wrong)
        wrong = [file for file in wrong if file.name not in hashes]
    if wrong:
        _discard(repository, wrong)
        raise hash_mismatch(repository, listed(file.name for file in wrong))
    # The library looks a name up here when it is offline; verl asks for a reward model by its name.
    main = repository.storage / "refs" / "main"
    if not main.exists():
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_text(repository.commit, encoding="utf-8")
    return hashes


@dataclass(frozen=True)
class Download:
    """Downloads files of a repository and verifies them."""

    repository: Repository
    progress: Progress

    def run(self, files: Sequence[RemoteFile]) -> dict[str, str]:
        """The SHA-256 of those of the files that match the hub's hashes."""
        repository, progress = self.repository, self.progress

        def cached() -> int:
            return _cached_bytes(repository, files)

        before = cached()
        progress.begin(f"downloading {repository.name}", sum(file.size for file in files) - before)
        with followed(progress, lambda: cached() - before):
            retry.with_retries(repository, repository.library, self._download, retry.DOWNLOAD_WAITS, cached)
        progress.begin(f"verifying {repository.name}", sum(file.size for file in files))
        found = hashes_of(
            {file.name: repository.snapshot / file.name for file in files},
            progress,
            git={file.name for file in files if len(file.etag) == GIT_DIGITS},
        )
        # A file that does not exist has neither hash.
        return {file.name: found[file.name][0] for file in files if file.etag in found.get(file.name, ())}

    def _download(self) -> None:
        """Downloads file by file.

        The library's snapshot_download asks for a list of the files without a timeout. It also stores the list, and
        then refuses the snapshot offline if a file was excluded.
        """
        blobs = self.repository.storage / "blobs"
        started = {path.name.partition(".")[0] for path in blobs.glob("*.incomplete")}
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(self._resume, [file for file in self.repository.files if file.etag in started]))
            list(pool.map(self._download_file, self.repository.files))

    def _download_file(self, file: RemoteFile) -> None:
        repository = self.repository
        repository.library.hf_hub_download(
            repository.name,
            file.name,
            repo_type=repository.kind,
            # The commit, even if a branch has moved since.
            revision=repository.commit,
            cache_dir=repository.cache,
            endpoint=repository.endpoint,
            token=repository.token or False,
            etag_timeout=library.ANSWER_SECONDS,
        )

    def _resume(self, file: RemoteFile) -> None:
        """Completes a file that a killed process left unfinished.

        The library has a function for this, but calls it only in the same process; otherwise it starts again, and the
        unfinished file stays there forever.
        """
        from filelock import Timeout
        from huggingface_hub.utils import WeakFileLock

        repository = self.repository
        # The library's own lock of this blob: a job may be downloading it.
        lock = repository.cache / ".locks" / repository.storage.name / f"{file.etag}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(Timeout), WeakFileLock(lock, timeout=0.1):
            found = self._leftovers(file)
            for each in found[:-1]:
                each.unlink(missing_ok=True)
            if found and self._append(file, found[-1]):
                found[-1].replace(repository.storage / "blobs" / file.etag)

    def _append(self, file: RemoteFile, unfinished: Path) -> bool:
        """Downloads the rest of an unfinished file; if that is not possible, removes it and returns False."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        repository = self.repository
        address = {"repo_type": repository.kind, "revision": repository.commit, "endpoint": repository.endpoint}
        url = repository.library.hf_hub_url(repository.name, file.name, **address)
        token = repository.token or False
        metadata = repository.library.get_hf_file_metadata(url, token=token, endpoint=repository.endpoint)
        # Xet does not write a file from its beginning to its end.
        is_xet = bool(getattr(metadata, "xet_file_data", None))
        if is_xet or _is_cached(repository, file) or unfinished.stat().st_size > file.size:
            unfinished.unlink(missing_ok=True)
            return False
        try:
            with unfinished.open("r+b") as content:
                content.seek(0, os.SEEK_END)
                headers = build_hf_headers(token=token)
                http_get(url, content, resume_size=content.tell(), headers=headers, expected_size=file.size)
        except Exception as error:
            if is_transient(error) or is_file_system_error(error):
                raise
            # For example if the hub has no more content than this: the new download reports the problem.
            unfinished.unlink(missing_ok=True)
            return False
        return True

    def _leftovers(self, file: RemoteFile) -> list[Path]:
        """The unfinished files of killed or running processes, the largest last."""
        # Up to 0.36 it was <etag>.incomplete, which the library itself completes.
        found = (self.repository.storage / "blobs").glob(f"{file.etag}.*.incomplete")
        return sorted(found, key=lambda path: path.stat().st_size)


def _is_cached(repository: Repository, file: RemoteFile) -> bool:
    return (repository.storage / "blobs" / file.etag).exists() or (repository.snapshot / file.name).exists()


def _cached_bytes(repository: Repository, files: Iterable[RemoteFile]) -> int:
    """How many bytes of some files are in the cache, finished or not."""
    sizes: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError), os.scandir(repository.storage / "blobs") as found:
        for each in found:
            # A file that is being renamed is found by its new name the next time.
            with contextlib.suppress(FileNotFoundError):
                etag = each.name.partition(".")[0]
                sizes[etag] = max(sizes.get(etag, 0), each.stat().st_size)
    return sum(min(sizes.get(file.etag, 0), file.size) for file in files)


def _discard(repository: Repository, files: Iterable[RemoteFile]) -> None:
    """Removes files from the cache with the links to them, because the library trusts files that exist."""
    cache = repository.cache.resolve()
    for file in files:
        for path in (repository.snapshot / file.name, repository.storage / "blobs" / file.etag):
            for each in reversed(list(links(path))):
                if each.parent.resolve().is_relative_to(cache):
                    each.unlink(missing_ok=True)


def forget(cache: Path, name: str, commit: str, kind: str = "model") -> None:
    """Removes a revision from the cache; files that other revisions need stay."""
    home = storage(cache, kind, name)
    snapshot = home / "snapshots" / commit
    if not snapshot.is_dir():
        return
    library.load_library(cache).scan_cache_dir(cache).delete_revisions(commit).execute()
    if not snapshot.is_dir():
        return
    # The library ignores a repository that has a broken link.
    shutil.rmtree(snapshot)
    used = {each.resolve() for path in home.glob("snapshots/**/*") for each in links(path) if path.is_symlink()}
    for blob in (home / "blobs").iterdir():
        if blob.resolve() not in used and blob.suffix != ".incomplete":
            blob.unlink()
