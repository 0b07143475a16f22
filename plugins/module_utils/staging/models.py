# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models under the shared root: from a repository of the hub, from a directory, or tiny and random.

Of the hub, a model is a link to a commit in the hub's own cache, where jobs have their HF_HOME: on disk once, and the
library takes care of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ..checks import common as checks_common
from ..checks import model as model_checks
from . import hub, hub_files, tiny
from .errors import StagingError
from .files import THREADS, is_litter
from .lock import Progress
from .manifest import MANIFEST, manifest_of, named
from .options import NAME_WITH_CAPITALS, REMOVED, Staged, check_name, check_shared_root
from .store import Request, remove

KIND = "model"
# Below the shared root.
MODELS = "common/models"
TINY = "tiny"
# Of a copy, ours has this name.
NEVER = (MANIFEST,)
# Weights in other forms than the one that jobs read, of which repositories often have several.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
OTHER_FORMS = (
    *("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.ot", "*.gguf", "consolidated*.safetensors"),
    *("onnx/*", "original/*", "openvino/*", "coreml/*"),
)
CHUNK = 16 << 20
# What says that the kernel, or a file system, cannot copy between these two files.
CANNOT_COPY = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.ETXTBSY, errno.EPERM)


def left_out(names: Sequence[str]) -> list[str]:
    """The patterns of what a model does without, when nobody said."""
    return list(OTHER_FORMS) if any(name in SAFETENSORS for name in names) else []


class Source(Protocol):
    """Where a model comes from."""

    @property
    def quick(self) -> bool:
        """Whether it is made in a moment."""

    def size(self) -> int:
        """How many bytes it will take."""

    def differs(self, manifest: Mapping[str, Any]) -> str:
        """Why a manifest is not of this source; nothing when it is. Asks nobody."""

    def fill(self, directory: Path, progress: Progress, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Put the model into an empty directory, and return what the manifest shall say.

        manifest: of what is there already and is to be repaired.
        """


@dataclass(frozen=True)
class HubSource:
    """A repository of the hub."""

    repository: hub.Repository
    # What the user wants to be left out; None when nobody said.
    excluded: Sequence[str] | None = None

    @classmethod
    def of(cls, repository: hub.Repository, exclude: Sequence[str] | None = None) -> HubSource:
        if exclude is None:
            return cls(replace(repository, exclude=left_out))
        return cls(replace(repository, exclude=list(exclude)), [*map(hub_files.normal, exclude)])

    quick = False

    def size(self) -> int:
        return self.repository.missing()

    def differs(self, manifest: Mapping[str, Any]) -> str:
        name, revision = self.repository.name, self.repository.revision
        if manifest.get("source") != name:
            return f"holds {manifest.get('source')}, not {name}."
        # A branch counts for what it was when it was staged.
        if revision != manifest.get("commit" if hub.COMMIT.fullmatch(revision) else "revision"):
            return f"holds revision {manifest.get('revision')} ({manifest.get('commit')}) of {name}, not {revision}."
        if self.excluded is not None and self.excluded != manifest.get("excluded"):
            return f"holds {name} without {', '.join(manifest.get('excluded', []))}, which is not what exclude says."
        return ""

    def fill(self, directory: Path, progress: Progress, manifest: Mapping[str, Any]) -> dict[str, Any]:
        repository = self.repository
        if "commit" in manifest:
            # A branch may have moved since, and what was left out by default may be something else today.
            repository = replace(repository, revision=manifest["commit"], exclude=manifest["excluded"])
        hashes = repository.fetch(progress)
        directory.rmdir()
        # Relative: the nodes may see the shared root at another path.
        directory.symlink_to(os.path.relpath(repository.snapshot.resolve(), directory.parent.resolve()))
        return {
            "source": repository.name,
            "revision": self.repository.revision,
            "commit": repository.commit,
            "endpoint": repository.host,
            "excluded": repository.excluded,
            "hashes": hashes,
        }


@dataclass(frozen=True)
class DirectorySource:
    """A directory that the node sees."""

    path: Path
    exclude: Sequence[str] | None = None

    quick = False

    def size(self) -> int:
        return sum(self._files().values())

    def differs(self, manifest: Mapping[str, Any]) -> str:
        if not self.path.is_dir():
            # What was copied does not need it any more.
            source = manifest.get("source")
            return "" if source == str(self.path) else f"holds {source}, not {self.path}, which is not there."
        here, there = self._files(), {name: entry["size"] for name, entry in manifest.get("files", {}).items()}
        differences = {
            name: "is new" if name not in there else "is gone" if name not in here else "has another size"
            for name in sorted({*here, *there})
            if here.get(name) != there.get(name)
        }
        return (
            f"does not hold the files of {self.path} (by name and size): {named(differences)}." if differences else ""
        )

    def fill(self, directory: Path, progress: Progress, manifest: Mapping[str, Any]) -> dict[str, Any]:
        files = self._files()
        progress.begin(f"copying {self.path}", sum(files.values()))
        copy_all(self.path, directory, files, progress)
        progress.begin(f"reading what was copied of {self.path}", sum(files.values()))
        hashes = hub_files.hashes_of({name: directory / name for name in files}, progress)
        return {"source": str(self.path), "hashes": {name: sha256 for name, (sha256, _git) in hashes.items()}}

    def _files(self) -> dict[str, int]:
        """The sizes of the files to take, by their relative paths."""
        if not self.path.is_dir():
            todo = "Give a directory that this node sees, or a repository of the hub (org/name)."
            raise StagingError(self.path, "is no directory here.", todo)
        names = sorted(model_files(self.path))
        patterns = [*NEVER, *(left_out(names) if self.exclude is None else self.exclude)]
        return {name: (self.path / name).stat().st_size for name in names if not hub_files.is_left_out(name, patterns)}


@dataclass(frozen=True)
class TinySource:
    """Made on the spot: two layers of random numbers, and a tokenizer."""

    quick = True

    def size(self) -> int:
        return 0

    def differs(self, manifest: Mapping[str, Any]) -> str:
        source = manifest.get("source")
        return "" if source == TINY else f"holds {source}, not the tiny model."

    def fill(self, directory: Path, progress: Progress, manifest: Mapping[str, Any]) -> dict[str, Any]:
        progress.begin("making a tiny model")
        tiny.let_torch_see_a_function()
        lacking = tiny.missing_library(tiny.MODEL_LIBRARIES)
        if lacking:
            raise StagingError(lacking[0], "cannot be imported.", "Run this inside a node, whose image has it.")
        tiny.build_model(directory)
        return {"source": TINY}


def source_of(
    text: str,
    shared_root: Path,
    *,
    revision: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    exclude: Sequence[str] | None = None,
) -> Source:
    """The source that a user names: a repository of the hub, a directory, or "tiny"."""
    if text == TINY:
        return TinySource()
    if text.startswith("/"):
        return DirectorySource(Path(os.path.normpath(text)), exclude)
    if not hub.NAME.fullmatch(text):
        todo = "Give a repository of the hub (org/name), the absolute path of a directory, or tiny."
        raise StagingError("source", f'"{text}" is none.', todo)
    address = hub.address_of(endpoint)
    repository = hub.Repository(text, revision or "main", shared_root / hub.CACHE, address, token or None)
    return HubSource.of(repository, exclude)


def request(shared_root: Path, name: str, source: Source) -> Request:
    target = check_shared_root(shared_root) / MODELS / check_name("name", name, NAME_WITH_CAPITALS)

    def build(directory: Path, progress: Progress) -> Mapping[str, Any]:
        said = source.fill(directory, progress, manifest_of(target) or {})
        check_complete(target, directory)
        return said

    return Request(KIND, name, target, build, source.differs, size=source.size, quick=source.quick)


def check_complete(target: Path, directory: Path) -> None:
    """Whether a directory has what a job reads of a model, as the gate before a job looks at it."""
    found = model_checks.config_findings(KIND, directory)
    found += model_checks.tokenizer_findings(KIND, directory, has_template=False)
    found += model_checks.weight_findings(KIND, directory)[0]
    wrong = [each["what"] for each in found if each["severity"] == checks_common.ERROR]
    if wrong:
        what = "; ".join(wrong).replace(f"{directory}/", "").replace(str(directory), "it")
        todo = "Nothing was staged. Take another source or revision, or let exclude leave out less."
        raise StagingError(target, f"would not be a whole model: {what}.", todo)


def remove_model(
    shared_root: Path, name: str, users: Callable[[Path], Sequence[str]], *, check: bool = False
) -> Staged:
    """Remove a model, and from the hub's cache what no other one needs."""
    models = check_shared_root(shared_root) / MODELS
    target = models / check_name("name", name, NAME_WITH_CAPITALS)
    cache, manifest = shared_root / hub.CACHE, manifest_of(target) or {}
    is_of_the_hub = "commit" in manifest and not check
    if is_of_the_hub:
        # Where it is missing, before anything is removed.
        hub.library(cache)
    removed = remove(KIND, name, target, lambda: users(target), check=check)
    if is_of_the_hub and removed.status == REMOVED and manifest["commit"] not in commits(models):
        hub.forget(cache, manifest["source"], manifest["commit"])
    return removed


def commits(models: Path) -> set[str]:
    """The commits that models are of; also those of links that somebody made by hand."""
    found = set()
    for path in models.iterdir():
        with contextlib.suppress(StagingError):
            found.add(str((manifest_of(path) or {}).get("commit")))
        found.add(path.resolve().name)
    return found


def model_files(directory: Path) -> Iterator[str]:
    """The files of a model by their relative paths, without what tools leave."""
    for parent, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if name != ".cache" and not is_litter(name)]
        linked = [name for name in directories if Path(parent, name).is_symlink()]
        for path in (Path(parent, name) for name in (*linked, *names) if not is_litter(name)):
            # A link to a file is followed: the hub's cache has nothing else.
            if not path.is_file():
                what = "is a link to a directory, a broken link or a special file, and would be missing."
                raise StagingError(path, what, "Put there what it points at, or remove it.")
            yield path.relative_to(directory).as_posix()


def copy_all(source: Path, target: Path, files: Mapping[str, int], progress: Progress) -> None:
    lock = threading.Lock()

    def count(size: int) -> None:
        with lock:
            progress.add(size)

    def copy(name: str) -> None:
        before = (source / name).stat()
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / name, target / name, count)
        after = (source / name).stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or after.st_size != files[name]:
            todo = "Stage it again when nobody writes to it."
            raise StagingError(source / name, "changed while it was copied.", todo)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(copy, files))


def copy_file(source: Path, target: Path, count: Callable[[int], None]) -> None:
    """Copy content; where the file system can, without moving a byte through this machine, or at all."""
    with source.open("rb", buffering=0) as reading, target.open("wb") as writing:
        try:
            while copied := os.copy_file_range(reading.fileno(), writing.fileno(), CHUNK):
                count(copied)
        except OSError as error:
            if error.errno not in CANNOT_COPY:
                raise
        # Where it cannot, and where it says at once that nothing is left: it goes on from where the other came to.
        while part := reading.read(CHUNK):
            writing.write(part)
            count(len(part))
