# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of HuggingFace's hub, in the hub's own cache: fetched by its library, checked against its promises.

The library knows the protocol: redirects, retries, Xet, resuming after a broken connection. What it does not do is done
here: it believes a file that is there, it begins anew what a killed process left unfinished, it waits for some answers
without end, and its errors do not say what to do. Read in huggingface_hub 1.33.0: file_download.py, utils/_http.py,
utils/_xet.py, utils/_cache_manager.py.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from .errors import StagingError
from .files import THREADS
from .hub_errors import (
    CONSISTENCY,
    causes,
    is_of_the_file_system,
    may_pass,
    one_line,
    shortened,
    status_of,
    without_secrets,
)
from .hub_files import followed, hashes_of, is_left_out, is_relative, links, normal, some
from .lock import Progress

ENDPOINT = "https://huggingface.co"
# Below the shared root; jobs have hf/ as their HF_HOME.
HF_HOME, CACHE = "hf", "hf/hub"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
COMMIT = re.compile(r"[0-9a-f]{40}")
# What a blob is called: the SHA-256 of a file in LFS, git's own SHA-1 of another one.
ETAG = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
GIT_DIGITS = 40
# For an answer. Whoever made a mistake in the address wants to know soon.
ANSWER_SECONDS = 30.0
FIRST_WAITS = (1.0, 3.0)
# What broke while files come may be over in a minute; as long as each try gets further there are more.
WAITS = (1.0, 5.0, 15.0, 40.0)
Result = TypeVar("Result")


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub promises it."""

    name: str
    size: int
    etag: str


@dataclass(frozen=True)
class Repository:
    """One revision of a repository.

    cache: the directory that the library calls cache_dir.
    exclude: patterns of files to leave out; a function gives them for a repository with these files.
    select: which of these files are wanted, of those that are not left out.
    """

    name: str
    revision: str
    cache: Path
    endpoint: str = ENDPOINT
    token: str | None = field(default=None, repr=False)
    exclude: Sequence[str] | Callable[[Sequence[str]], Sequence[str]] = ()
    kind: str = "model"
    select: Callable[[Sequence[str]], Collection[str]] = set

    @property
    def where(self) -> str:
        return f"{self.name} on {self.host}"

    @property
    def host(self) -> str:
        """The endpoint without what is nobody's business."""
        parts = urlsplit(self.endpoint)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def commit(self) -> str:
        return self._info[0]

    @functools.cached_property
    def files(self) -> list[RemoteFile]:
        """Those that are wanted."""
        wanted = self.select(self._names)
        return [file for file in self._info[1] if file.name in wanted and not is_left_out(file.name, self.excluded)]

    @functools.cached_property
    def excluded(self) -> list[str]:
        """The patterns of what is not wanted."""
        return [normal(each) for each in (self.exclude(self._names) if callable(self.exclude) else self.exclude)]

    @property
    def _names(self) -> list[str]:
        return [file.name for file in self._info[1]]

    @property
    def storage(self) -> Path:
        return storage(self.cache, self.kind, self.name)

    @property
    def snapshot(self) -> Path:
        return self.storage / "snapshots" / self.commit

    def missing(self) -> int:
        """How many bytes of the wanted files are not in the cache."""
        return sum(file.size for file in self.files if not self._is_there(file))

    def fetch(self, progress: Progress) -> dict[str, str]:
        """Bring all wanted files into the cache, and return their SHA-256: each is what the hub promises.

        What does not fit is fetched once more: it may have been damaged in the cache, or on its way.
        """
        hashes = self._download_and_check(self.files, progress)
        wrong = [file for file in self.files if file.name not in hashes]
        if wrong:
            self._discard(wrong)
            hashes |= self._download_and_check(wrong, progress)
            wrong = [file for file in wrong if file.name not in hashes]
        if wrong:
            self._discard(wrong)
            raise self._broken_promise(some(file.name for file in wrong))
        # By this the library finds the repository offline by its name, as verl does with a reward model's.
        main = self.storage / "refs" / "main"
        if not main.exists():
            main.parent.mkdir(parents=True, exist_ok=True)
            main.write_text(self.commit, encoding="utf-8")
        return hashes

    # --- The hub -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _info(self) -> tuple[str, list[RemoteFile]]:
        """The commit, and its files."""
        api = self._library.HfApi(endpoint=self.endpoint, token=self.token or False)

        def ask() -> Any:
            return api.repo_info(
                self.name, repo_type=self.kind, revision=self.revision, files_metadata=True, timeout=ANSWER_SECONDS
            )

        said = self._patiently(ask, FIRST_WAITS)
        files = []
        for each in said.siblings or ():
            etag = str(each.lfs.sha256 if each.lfs else each.blob_id)
            size = each.lfs.size if each.lfs else each.size
            # Both become part of paths.
            if size is None or not ETAG.fullmatch(etag) or not is_relative(each.rfilename):
                raise StagingError(
                    self.where,
                    f"does not tell size and hash of {each.rfilename}, so that nobody can check what it sends.",
                    "Take another endpoint, or download it elsewhere and give the directory as source.",
                )
            files.append(RemoteFile(each.rfilename, size, etag))
        if not COMMIT.fullmatch(str(said.sha)):
            raise StagingError(self.where, "does not tell its commit.", "Take another endpoint.")
        return said.sha, files

    @functools.cached_property
    def _library(self) -> Any:
        return library(self.cache)

    def _patiently(self, call: Callable[[], Result], waits: Sequence[float], got: Callable[[], int] = int) -> Result:
        """What the call returns, with further tries when something fails that may pass."""
        left, had = iter(waits), got()
        while True:
            try:
                return call()
            except StagingError:
                raise
            except Exception as error:
                # Errors of HTTP, of sockets, of the library, of Xet's.
                if is_of_the_file_system(error):
                    raise
                now = got()
                if now > had:
                    left, had = iter(waits), now
                wait = next(left, None) if may_pass(error) else None
                if wait is None:
                    raise self._refusal(error) from error
                time.sleep(wait)

    def _refusal(self, error: BaseException) -> StagingError:
        """What went wrong, and what to do about it; never with the token in it."""
        errors = self._library.errors
        chain = list(causes(error))

        def is_a(*kinds: type[BaseException]) -> bool:
            return any(isinstance(each, kinds) for each in chain)

        token = "the token (staging_hf_token)" if self.token else "a token (staging_hf_token)"
        path = self.name if self.kind == "model" else f"{self.kind}s/{self.name}"
        # A gated repository is one that is not found, to the library.
        if is_a(errors.GatedRepoError):
            todo = f"Accept its license on {self.host}/{path}, and give {token} of that account."
            return StagingError(self.where, "is gated, and there is no access to it.", todo)
        if is_a(errors.RepositoryNotFoundError):
            todo = f"Correct its name; if it is private, give {token} of somebody who may read it."
            return StagingError(self.where, "is not there, or is private.", todo)
        if is_a(errors.RevisionNotFoundError):
            todo = "Give a branch, a tag, or a commit with all its 40 digits."
            return StagingError(self.where, f"has no revision {self.revision}.", todo)
        status = next(filter(None, map(status_of, chain)), None)
        if status in (401, 403):
            what = "does not accept the token." if self.token else "wants a token."
            return StagingError(self.where, f"{what[:-1]} ({status}).", f"Give {token} of somebody who may read it.")
        if status is not None:
            said = next(filter(None, (getattr(each, "server_message", "") for each in chain)), "no reason")
            what = f"answered with status {status} ({self._without_secrets(shortened(said))})."
            return StagingError(self.where, what, "Run it again later: what has come is kept.")
        # The innermost says most: the library's own say that something went wrong.
        said = self._without_secrets(one_line(next(filter(may_pass, reversed(chain)), error)))
        if CONSISTENCY in said:
            return self._broken_promise(said)
        return StagingError(
            self.where,
            f"cannot be fetched: {said}.",
            "See that this node gets there, through its proxy perhaps; take a mirror (staging_hf_endpoint, or "
            "HF_ENDPOINT on the node), or give a directory as source. What has come is kept.",
        )

    def _broken_promise(self, what: str) -> StagingError:
        todo = "Run it again later; if that does not help, take another endpoint, or a directory as source."
        return StagingError(self.where, f"sent other content than it promised: {what}.", todo)

    def _without_secrets(self, text: str) -> str:
        return without_secrets(text, self.token, self.endpoint)

    # --- Into the cache ----------------------------------------------------------------------------------------------

    def _download_and_check(self, files: Sequence[RemoteFile], progress: Progress) -> dict[str, str]:
        """The SHA-256 of those of the files that are what the hub promises."""

        def got() -> int:
            return self._bytes(files)

        before = got()
        progress.begin(f"downloading {self.name}", sum(file.size for file in files) - before)
        with followed(progress, lambda: got() - before):
            self._patiently(self._download, WAITS, got)
        progress.begin(f"verifying {self.name}", sum(file.size for file in files))
        found = hashes_of(
            {file.name: self.snapshot / file.name for file in files},
            progress,
            git={file.name for file in files if len(file.etag) == GIT_DIGITS},
        )
        # Of a file that is not there, neither.
        return {file.name: found[file.name][0] for file in files if file.etag in found.get(file.name, ())}

    def _download(self) -> None:
        """File by file: the library's snapshot_download waits without end for a list of them, and keeps it, so that the
        library refuses the snapshot offline if something was left out."""
        begun = {path.name.partition(".")[0] for path in (self.storage / "blobs").glob("*.incomplete")}
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(self._go_on, [file for file in self.files if file.etag in begun]))
            list(pool.map(self._download_file, self.files))

    def _download_file(self, file: RemoteFile) -> None:
        self._library.hf_hub_download(
            self.name,
            file.name,
            repo_type=self.kind,
            # A commit, even where a branch has moved since.
            revision=self.commit,
            cache_dir=self.cache,
            endpoint=self.endpoint,
            token=self.token or False,
            etag_timeout=ANSWER_SECONDS,
        )

    def _go_on(self, file: RemoteFile) -> None:
        """Go on with a file that a killed process left unfinished. The library's own function does it, but it calls it
        only where the process is the same; otherwise it begins anew, and what was left stays there for ever."""
        from filelock import Timeout
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import WeakFileLock, build_hf_headers

        library = self._library
        # The library's own lock of this blob: a job may be fetching it.
        lock = self.cache / ".locks" / self.storage.name / f"{file.etag}.lock"
        lock.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(Timeout), WeakFileLock(lock, timeout=0.1):
            found = self._leftovers(file)
            for each in found[:-1]:
                each.unlink(missing_ok=True)
            if not found:
                return
            most = found[-1]
            where = {"repo_type": self.kind, "revision": self.commit, "endpoint": self.endpoint}
            url = library.hf_hub_url(self.name, file.name, **where)
            promised = library.get_hf_file_metadata(url, token=self.token or False, endpoint=self.endpoint)
            # Xet does not write a file from its beginning to its end.
            if self._is_there(file) or getattr(promised, "xet_file_data", None) or most.stat().st_size > file.size:
                most.unlink(missing_ok=True)
                return
            try:
                with most.open("r+b") as content:
                    content.seek(0, os.SEEK_END)
                    http_get(
                        url,
                        content,
                        resume_size=content.tell(),
                        headers=build_hf_headers(token=self.token or False),
                        expected_size=file.size,
                    )
            except Exception as error:
                if may_pass(error) or is_of_the_file_system(error):
                    raise
                # Such as that the hub has no more than this of it: whoever begins anew is told what is wrong.
                most.unlink(missing_ok=True)
                return
            most.replace(self.storage / "blobs" / file.etag)

    def _leftovers(self, file: RemoteFile) -> list[Path]:
        """What processes that were killed, or are at work, have of a file, the most at the end."""
        # Up to 0.36 it was <etag>.incomplete, and the library goes on with that by itself.
        found = (self.storage / "blobs").glob(f"{file.etag}.*.incomplete")
        return sorted(found, key=lambda path: path.stat().st_size)

    def _is_there(self, file: RemoteFile) -> bool:
        return (self.storage / "blobs" / file.etag).exists() or (self.snapshot / file.name).exists()

    def _bytes(self, files: Iterable[RemoteFile]) -> int:
        """How many bytes of some files are in the cache, finished or not."""
        sizes: dict[str, int] = {}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.storage / "blobs") as found:
            for each in found:
                # A file that is renamed just now is found by its other name the next time.
                with contextlib.suppress(FileNotFoundError):
                    etag = each.name.partition(".")[0]
                    sizes[etag] = max(sizes.get(etag, 0), each.stat().st_size)
        return sum(min(sizes.get(file.etag, 0), file.size) for file in files)

    def _discard(self, files: Iterable[RemoteFile]) -> None:
        """Take files out of the cache, with all that they are links to: the library would believe them."""
        cache = self.cache.resolve()
        for file in files:
            for path in (self.snapshot / file.name, self.storage / "blobs" / file.etag):
                for each in reversed(list(links(path))):
                    if each.parent.resolve().is_relative_to(cache):
                        each.unlink(missing_ok=True)


def address_of(endpoint: str | None) -> str:
    """Where the hub is: as the user says, as the node says, or the hub itself."""
    address = (endpoint or os.environ.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
    if not re.match(r"https?://[^/]", address):
        raise StagingError("endpoint", f'"{address}" is no address.', f"Give one such as {ENDPOINT}.")
    return address


def library(cache: Path) -> Any:
    """huggingface_hub, with what it reads from the environment when it is imported."""
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
    os.environ.setdefault("HF_HOME", str(cache.parent))
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise StagingError(
            "huggingface_hub", f"cannot be imported ({error}).", "Run this inside a node, whose image has it."
        ) from error
    huggingface_hub.logging.set_verbosity_error()
    if hasattr(huggingface_hub, "set_client_factory"):
        # Since 1.0. Its own client waits without end where nothing else is said, such as for Xet's token.
        import httpx

        own = {"event_hooks": huggingface_hub.get_session().event_hooks, "follow_redirects": True}
        huggingface_hub.set_client_factory(lambda: httpx.Client(**own, timeout=ANSWER_SECONDS))
    return huggingface_hub


def forget(cache: Path, name: str, commit: str, kind: str = "model") -> None:
    """Take a revision out of the cache; its files stay as far as others need them."""
    home = storage(cache, kind, name)
    snapshot = home / "snapshots" / commit
    if not snapshot.is_dir():
        return
    library(cache).scan_cache_dir(cache).delete_revisions(commit).execute()
    if not snapshot.is_dir():
        return
    # A repository in which a link leads nowhere is none, to the library.
    shutil.rmtree(snapshot)
    used = {each.resolve() for path in home.glob("snapshots/**/*") for each in links(path) if path.is_symlink()}
    for blob in (home / "blobs").iterdir():
        if blob.resolve() not in used and blob.suffix != ".incomplete":
            blob.unlink()


def storage(cache: Path, kind: str, name: str) -> Path:
    """Where the library keeps a repository."""
    return cache / f"{kind}s--{name.replace('/', '--')}"
