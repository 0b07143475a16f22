# SPDX-License-Identifier: Apache-2.0
"""Downloads and verifies one commit of a repository of the Hugging Face hub, removes commits, and translates errors.

The files are in the cache of huggingface_hub under the shared root, which jobs use, too. This library is imported
inside functions, because only nodes have it; the type checker does not know its classes.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..common.text import one_line
from ..ray.api import is_loopback
from .files import file_sha256, parallel_map
from .git import COMMIT, without_password
from .lock import Progress
from .options import StagingError, join_items

DEFAULT_ENDPOINT = "https://huggingface.co"
REPO_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
ENDPOINT_URL = re.compile(r"(?P<scheme>https?)://(?P<host>\[[0-9A-Fa-f:.]+\]|[^][/:?#\s]+)(:[0-9]+)?(/[^?#\s]*)?")
# The hash of a file, and its name in the cache: SHA-256 for a file in LFS, git's own SHA-1 for any other.
ETAG = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
SHA256_DIGITS = 64
# Short, so that a wrong address is reported soon.
REQUEST_TIMEOUT_SECONDS = 30.0
MAX_MESSAGE_CHARS = 300


@dataclass(frozen=True)
class RemoteFile:
    """A file as the hub reports it."""

    name: str
    size: int
    etag: str


@dataclass(frozen=True)
class RepoRevision:
    """One revision of a repository. commit, snapshot_dir, files, all_names ask the hub once, and raise StagingError."""

    repo_id: str
    revision: str  # a branch, a tag or a commit
    cache_dir: Path  # of huggingface_hub
    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    repo_type: str = "model"  # "model" or "dataset", as huggingface_hub calls them
    # Takes the names of all files, and returns those to download. The built-in `set` returns all.
    select: Callable[[Sequence[str]], Collection[str]] = set

    @property
    def display_name(self) -> str:
        return f"{self.repo_id} on {self.endpoint}"

    @property
    def repo_dir(self) -> Path:
        """The directory of the repository in the cache."""
        return self.cache_dir / f"{self.repo_type}s--{self.repo_id.replace('/', '--')}"

    @property
    def commit(self) -> str:
        """The commit that the revision has on the hub."""
        return self._commit_and_files[0]

    @property
    def snapshot_dir(self) -> Path:
        return self.repo_dir / "snapshots" / self.commit

    @functools.cached_property
    def files(self) -> list[RemoteFile]:
        """The selected files."""
        selected = self.select(self.all_names)
        return [file for file in self._commit_and_files[1] if file.name in selected]

    @property
    def all_names(self) -> list[str]:
        return [file.name for file in self._commit_and_files[1]]

    @functools.cached_property
    def library(self) -> Any:
        return import_huggingface_hub(self.cache_dir)

    @functools.cached_property
    def _commit_and_files(self) -> tuple[str, list[RemoteFile]]:
        api = self.library.HfApi(endpoint=self.endpoint, token=self.token or False)
        options = {"repo_type": self.repo_type, "revision": self.revision, "files_metadata": True}
        with hub_errors_as_staging_errors(self):
            answer = api.repo_info(self.repo_id, **options, timeout=REQUEST_TIMEOUT_SECONDS)
        if not COMMIT.fullmatch(str(answer.sha)):
            raise StagingError(self.display_name, "does not report its commit.", "Set another endpoint.")
        return answer.sha, [self._remote_file(sibling) for sibling in answer.siblings or ()]

    def _remote_file(self, sibling: Any) -> RemoteFile:
        etag = str(sibling.lfs.sha256 if sibling.lfs else sibling.blob_id)
        size = sibling.lfs.size if sibling.lfs else sibling.size
        path = PurePosixPath(sibling.rfilename)
        # Name and hash become part of paths.
        if size is None or not ETAG.fullmatch(etag) or path.is_absolute() or ".." in path.parts:
            problem = f"does not report size and hash of {sibling.rfilename}, so its content cannot be verified."
            remedy = "Set another endpoint, or download it elsewhere and give the directory as source."
            raise StagingError(self.display_name, problem, remedy)
        return RemoteFile(sibling.rfilename, size, etag)

    def blob(self, file: RemoteFile) -> Path:
        """The file in the cache with the content; snapshot_dir has a link to it."""
        return self.repo_dir / "blobs" / file.etag


def expand_directory_pattern(pattern: str) -> str:
    """Append * to a pattern that ends with /, as huggingface_hub does: a directory means everything in it."""
    return f"{pattern}*" if pattern.endswith("/") else pattern


def name_matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, expand_directory_pattern(pattern)) for pattern in patterns)


def resolve_endpoint(endpoint: str | None, token: str | None = None) -> str:
    """The given address of the hub, the node's, or the default. Raises StagingError for a malformed or unsafe one."""
    address = (endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    shown = without_password(address)
    if "@" in address:
        remedy = "Remove them from it: it is stored in manifests. A token is set by staging_hf_token."
        raise StagingError("endpoint", f'"{shown}" has a user or a password.', remedy)
    match = ENDPOINT_URL.fullmatch(address)
    if not match or not address.isprintable():
        remedy = f"Give one such as {DEFAULT_ENDPOINT}, without a query or a fragment."
        raise StagingError("endpoint", f'"{shown}" is not an address.', remedy)
    if token and match["scheme"] == "http" and not is_loopback(match["host"].strip("[]")):
        remedy = "Use an https address (staging_hf_endpoint, or HF_ENDPOINT on the node), or unset staging_hf_token."
        raise StagingError("endpoint", f'"{shown}" would get the token unencrypted.', remedy)
    return address


def import_huggingface_hub(cache_dir: Path) -> Any:
    """The module huggingface_hub, set up for this cache: it reads environment variables when it is imported."""
    os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DISABLE_TELEMETRY="1")
    os.environ.setdefault("HF_HOME", str(cache_dir.parent))
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        remedy = "Run this inside a node, whose image has it."
        raise StagingError("huggingface_hub", f"cannot be imported ({error}).", remedy) from error
    huggingface_hub.logging.set_verbosity_error()
    if hasattr(huggingface_hub, "set_client_factory"):
        # Since 1.0. The client of the library has no timeout for some requests, such as the one for Xet's token.
        import httpx

        hooks = huggingface_hub.get_session().event_hooks
        huggingface_hub.set_client_factory(
            lambda: httpx.Client(event_hooks=hooks, follow_redirects=True, timeout=REQUEST_TIMEOUT_SECONDS)
        )
    return huggingface_hub


def missing_bytes(repository: RepoRevision) -> int:
    """The size of the selected files that are not in the cache."""
    return sum(file.size for file in repository.files if not repository.blob(file).exists())


def download_verified(repository: RepoRevision, progress: Progress) -> dict[str, str]:
    """Downloads all selected files into the cache, and returns their SHA-256 by name. Raises StagingError.

    A file that does not match the hub's hash is downloaded once more: it may have been damaged in the cache, or on its
    way.
    """
    hashes: dict[str, str] = {}
    pending = repository.files
    for _try in range(2):
        hashes |= download_once(repository, pending, progress) if pending else {}
        pending = [file for file in repository.files if file.name not in hashes]
    if pending:
        problem = f"sent content that does not match its size or hash: {join_items(file.name for file in pending)}."
        remedy = "Run it again later; if that does not help, set another endpoint, or give a directory as source."
        raise StagingError(repository.display_name, problem, remedy)
    for file in repository.files:
        # Remove the files of killed downloads: the library does not resume those of another process.
        for unfinished in repository.blob(file).parent.glob(f"{file.etag}*.incomplete"):
            unfinished.unlink(missing_ok=True)
    # When it is offline, the library looks the commit of a repository up here: verl names a reward model without one.
    main = repository.repo_dir / "refs" / "main"
    if not main.exists():
        main.parent.mkdir(parents=True, exist_ok=True)
        main.write_text(repository.commit, encoding="utf-8")
    return hashes


def download_once(repository: RepoRevision, files: Sequence[RemoteFile], progress: Progress) -> dict[str, str]:
    """Downloads files, and returns the SHA-256 of those that match the hub's hashes; removes the others.

    Each file by itself: the library's snapshot_download asks for a list of the files without a timeout. It also stores
    the list, and then refuses the snapshot offline if a file was excluded.
    """

    def download_file(file: RemoteFile) -> None:
        repository.library.hf_hub_download(
            repository.repo_id,
            file.name,
            repo_type=repository.repo_type,
            # The commit, even if a branch has moved since.
            revision=repository.commit,
            cache_dir=repository.cache_dir,
            endpoint=repository.endpoint,
            token=repository.token or False,
            etag_timeout=REQUEST_TIMEOUT_SECONDS,
        )

    start, total = cached_bytes(repository, files), sum(file.size for file in files)
    progress.begin(f"downloading {repository.repo_id}", total - start, lambda: cached_bytes(repository, files) - start)
    with hub_errors_as_staging_errors(repository):
        parallel_map(download_file, files)
    progress.begin(f"verifying {repository.repo_id}", total)
    paths = [repository.snapshot_dir / file.name for file in files]
    digests = parallel_map(lambda path: file_sha256(path, progress.add), paths)
    hashes: dict[str, str] = {}
    for file, path, sha256 in zip(files, paths, digests, strict=True):
        if file.etag == (sha256 if len(file.etag) == SHA256_DIGITS else git_sha1(path)):
            hashes[file.name] = sha256
        else:
            # Otherwise the library would take the existing file for complete.
            for cached in (path.resolve(), path):
                if cached.parent.resolve().is_relative_to(repository.cache_dir.resolve()):
                    cached.unlink(missing_ok=True)
    return hashes


def git_sha1(path: Path) -> str:
    """Git's own hash of a file that is not in LFS, and small."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def cached_bytes(repository: RepoRevision, files: Iterable[RemoteFile]) -> int:
    """The bytes of these files that are in the cache, also of unfinished downloads."""
    sizes: dict[str, int] = {}
    for path in (repository.repo_dir / "blobs").glob("*"):
        try:
            etag = path.name.partition(".")[0]
            sizes[etag] = max(sizes.get(etag, 0), path.stat().st_size)
        except FileNotFoundError:
            # The file was renamed; the next call finds it under its new name.
            continue
    return sum(min(sizes.get(file.etag, 0), file.size) for file in files)


def delete_revision(cache_dir: Path, repo_id: str, commit: str, repo_type: str = "model") -> None:
    """Removes a commit from the cache; files that other commits need stay."""
    repo_dir = RepoRevision(repo_id, commit, cache_dir, repo_type=repo_type).repo_dir
    snapshots = repo_dir / "snapshots"
    shutil.rmtree(snapshots / commit, ignore_errors=True)
    if not snapshots.is_dir() or not any(snapshots.iterdir()):
        shutil.rmtree(repo_dir, ignore_errors=True)
        return
    for ref in (repo_dir / "refs").rglob("*"):
        if ref.is_file() and ref.read_text(encoding="utf-8") == commit:
            ref.unlink()
    used = {path.resolve() for path in snapshots.rglob("*") if path.is_symlink()}
    for blob in (repo_dir / "blobs").iterdir():
        if blob.resolve() not in used and blob.suffix != ".incomplete":
            blob.unlink()


# Errors of the hub and of huggingface_hub as StagingErrors.
@contextlib.contextmanager
def hub_errors_as_staging_errors(repository: RepoRevision) -> Iterator[None]:
    """Turns errors of HTTP, sockets, the library and Xet into StagingErrors, but not others such as a full disk."""
    try:
        yield
    except StagingError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError | TimeoutError):
            raise
        raise staging_error_of(error, repository) from error


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """An error, and the errors that led to it, the innermost one last."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or current.__context__


def without_token(text: str, token: str | None) -> str:
    """A text for messages, with an ellipsis instead of the token."""
    # A token from a file may end with a newline, which the text does not have.
    secret = (token or "").strip()
    return text.replace(secret, "…") if secret else text


def staging_error_of(error: BaseException, repository: RepoRevision) -> StagingError:
    """The error of the library as a StagingError, with a remedy and without the token."""
    chain, kinds = list(error_chain(error)), repository.library.errors
    suitable_token = f"{'the' if repository.token else 'a'} token (staging_hf_token) of an account that may read it"
    prefix = "" if repository.repo_type == "model" else f"{repository.repo_type}s/"
    page = f"{repository.endpoint}/{prefix}{repository.repo_id}"
    # In this order, because the library's class for a gated repository is a subclass of that for a missing one.
    remedies = {
        kinds.GatedRepoError: f"Accept its license on {page}, and set {suitable_token}.",
        kinds.RepositoryNotFoundError: f"Correct its name; if it is private, set {suitable_token}.",
        kinds.RevisionNotFoundError: "Give a branch, a tag, or a commit of 40 digits.",
    }
    default_remedy = (
        "Check that this node can reach it, perhaps through a proxy, and the token; set a mirror (staging_hf_endpoint, "
        "or HF_ENDPOINT on the node), or give a directory as source. What was downloaded is kept: run it again."
    )
    raised = next((cause for cause in chain if isinstance(cause, tuple(remedies))), None)
    remedy = next((remedies[kind] for kind in remedies if isinstance(raised, kind)), default_remedy)
    # Otherwise the innermost error is shown, because the library's own errors say only that something failed.
    cause = raised or chain[-1]
    text = without_token(f"{type(cause).__name__}: {one_line(cause, MAX_MESSAGE_CHARS)}", repository.token)
    return StagingError(repository.display_name, f"cannot be downloaded: {text}.", remedy)
