# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images as files: written to the shared root by one machine, and loaded by others.

Jobs can change what lies on the shared root, and the engine of a machine trusts what it loads. A machine therefore
loads a copy of its own, in a file without a name, that has the SHA-256 which the writing machine has reported.

Runs on machines with Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, cast

from ..privileges import opened_without_root, without_root
from .engine import DOCKER, PODMAN, Image, message, parse_image
from .programs import environment, run_program

# Below the shared root, only while an image is being copied.
DIRECTORY = "images"
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CHUNK_BYTES = 4 << 20
INSPECT_SECONDS = 60.0
# manifest.json and index.json of an image are a few kilobytes.
JSON_BYTES = 4 << 20
# The engine unpacks an archive before it stores the layers.
ENGINE_COPIES = 2
GIB = 2**30
# No copy of an image takes as long.
LEFT_SECONDS = 86_400.0


class ImageError(Exception):
    """An image cannot be built, saved or loaded; the message says what, where, and what to do.

    output: the last lines of the engine.
    """

    def __init__(self, message: str, output: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.output = list(output)


@dataclass(frozen=True)
class Saved:
    """An image in a file. id: of the image on the machine that wrote it, or "" if that is not known."""

    path: str
    sha256: str
    bytes: int = 0
    id: str = ""


@dataclass(frozen=True)
class Contents:
    """What an archive would bring into an engine: names, and the ids that engines give to its images."""

    tags: frozenset[str]
    ids: frozenset[str]


# What an engine prints of its directory.
ROOT_FORMAT = {DOCKER: "{{.DockerRootDir}}", PODMAN: "{{.Store.GraphRoot}}"}


class ImageStore:
    """The images of an engine.

    scratch: directories in which a copy of an archive may be; the engine's own is another one, if it can be written to.
    """

    def __init__(self, engine: str, scratch: Sequence[str] = ("/var/tmp",)) -> None:  # noqa: S108
        self.engine = engine
        self.scratch = scratch

    def find(self, image: str) -> Image | None:
        code, out, _err = run_program([self.engine, "image", "inspect", image], INSPECT_SECONDS)
        return None if code else parse_image(out)

    def root(self) -> str:
        """The directory of the engine; "" if it is not on this machine."""
        form = ROOT_FORMAT[PODMAN if Path(self.engine).name == PODMAN else DOCKER]
        _code, out, _err = run_program([self.engine, "info", "--format", form], INSPECT_SECONDS)
        return out.strip() if out.strip() and Path(out.strip()).is_dir() else ""

    def save(self, image: str, shared_root: Path, cluster: str) -> Saved:
        """Write an image to the shared root, and return what the file has to be for those who load it."""
        found = self.find(image)
        if found is None:
            raise ImageError(f"the image {image} is no longer here: run the playbook again")
        name = f"{cluster}-{secrets.token_hex(8)}.tar"
        descriptor = opened_without_root(shared_root, lambda: create_below(shared_root, name, cluster))
        path = shared_root / DIRECTORY / name
        try:
            digest, size = self._write(image, descriptor)
        except BaseException:
            remove_saved(str(path), shared_root)
            raise
        return Saved(str(path), digest, size, found.id)

    def _write(self, image: str, descriptor: int) -> tuple[str, int]:
        """The SHA-256 and the size of what was written; not read again, because a job may have changed it by then."""
        digest, size = hashlib.sha256(), 0
        with os.fdopen(descriptor, "wb") as target, self._started("save", image, stdout=subprocess.PIPE) as program:
            source = cast("IO[bytes]", program.stdout)
            while content := source.read(CHUNK_BYTES):
                target.write(content)
                digest.update(content)
                size += len(content)
            target.flush()
            os.fsync(descriptor)
        return digest.hexdigest(), size

    def load(self, saved: Saved, image: str, tags: Collection[str], shared_root: Path | None) -> Saved:
        """Load an image from a file that is exactly what it should be.

        tags: the names that it may bring. shared_root: if the file is below it.
        """
        with self._copied(saved, shared_root) as copy:
            known = contents(copy, saved.path)
            check_contents(known, saved, image, tags)
            size = copy.seek(0, os.SEEK_END)
            copy.seek(0)
            with self._started("load", stdin=copy, stdout=subprocess.DEVNULL):
                pass
        found = self.find(image)
        if found is None or found.id not in known.ids:
            what = f"it is {found.id}" if found else "it is not there"
            raise ImageError(f"{image} is not the image of {saved.path} after loading it: {what}. Run it again")
        return replace(saved, id=found.id, bytes=size)

    @contextlib.contextmanager
    def _started(self, *arguments: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
        argv = [self.engine, *arguments]
        with tempfile.TemporaryFile() as errors:
            with subprocess.Popen(argv, stderr=errors, env=environment(), **streams) as program:
                try:
                    yield program
                except BaseException:
                    program.kill()
                    raise
            if program.returncode:
                errors.seek(0)
                said = message("", errors.read(4096).decode(errors="replace"))
                raise ImageError(f'"{" ".join(argv)}" failed with exit code {program.returncode}: {said}')

    @contextlib.contextmanager
    def _copied(self, saved: Saved, shared_root: Path | None) -> Iterator[IO[bytes]]:
        """A copy without a name, which no other user can open, and which is gone when this process is."""
        descriptor = open_archive(saved.path, shared_root)
        with os.fdopen(descriptor, "rb") as source:
            there = os.fstat(descriptor)
            if not stat.S_ISREG(there.st_mode):
                raise ImageError(f"{saved.path} is not a regular file: run the playbook again")
            directory = self.room(there.st_size)
            with tempfile.TemporaryFile(dir=directory) as copy:
                digest, left = hashlib.sha256(), there.st_size
                while left > 0 and (content := source.read(min(CHUNK_BYTES, left))):
                    copy.write(content)
                    digest.update(content)
                    left -= len(content)
                if digest.hexdigest() != saved.sha256:
                    raise ImageError(
                        f"{saved.path} is not what it should be: its SHA-256 is {digest.hexdigest()}, not "
                        f"{saved.sha256}. It was not loaded. Run it again; if this repeats, a job changes the file"
                    )
                copy.flush()
                yield copy

    def room(self, size: int) -> str:
        """The directory for a copy of a file of this size; an error if it or the engine has too little space."""
        root = self.root()
        candidates = [path for path in (*self.scratch, root) if path and os.access(path, os.W_OK | os.X_OK)]
        if not candidates:
            raise ImageError(f"none of {', '.join(self.scratch)} is a directory that this user can write to")
        chosen = max(candidates, key=free_bytes)
        needs = {chosen: size}
        if root:
            same = Path(root).stat().st_dev == Path(chosen).stat().st_dev
            needs[root] = ENGINE_COPIES * size + (size if same else 0)
        for path, need in needs.items():
            free = free_bytes(path)
            if free < need:
                raise ImageError(
                    f"{path} has {free / GIB:.1f} GiB free, and loading an image of {size / GIB:.1f} GiB needs "
                    f"{need / GIB:.1f} GiB: remove images that nothing uses ({self.engine} image prune --all)"
                )
        return chosen


def free_bytes(path: str) -> int:
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def create_below(shared_root: Path, name: str, cluster: str) -> int:
    """Create a file among the images of the shared root; none of the names below that is followed as a link.

    Files that an interrupted run of the cluster has left there are removed.
    """
    root = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o755, dir_fd=root)
        directory = os.open(DIRECTORY, OPEN_DIRECTORY, dir_fd=root)
        try:
            for left in os.listdir(directory):  # noqa: PTH208 - of a descriptor
                there = os.stat(left, dir_fd=directory, follow_symlinks=False)
                is_old = stat.S_ISREG(there.st_mode) and time.time() - there.st_mtime > LEFT_SECONDS
                if is_old and left.startswith(f"{cluster}-"):
                    os.unlink(left, dir_fd=directory)
            return os.open(name, CREATE, 0o600, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as error:
        where = shared_root / DIRECTORY
        raise OSError(
            f"{where / name} cannot be created by the nodes' user ({error.strerror}): remove what is in the place of "
            f"{where}, or change its owner"
        ) from error
    finally:
        os.close(root)


def open_archive(path: str, shared_root: Path | None) -> int:
    """Open a file with an image: below the shared root as the nodes' user, without following links there."""
    try:
        if shared_root is None:
            return os.open(path, READ)
        parts = Path(path).relative_to(shared_root).parts
        return opened_without_root(shared_root, lambda: open_below(shared_root, parts))
    except OSError as error:
        raise ImageError(f"{path} cannot be opened: {error.strerror or error}") from error


def open_below(shared_root: Path, parts: Sequence[str]) -> int:
    directory = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, OPEN_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(parts[-1], READ, dir_fd=directory)
    finally:
        os.close(directory)


def remove_saved(path: str, shared_root: Path) -> bool:
    """Remove a file that was written, and its directory if nothing else is in it; whether there was one."""

    def remove() -> dict[str, Any]:
        root = os.open(shared_root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            directory = os.open(DIRECTORY, OPEN_DIRECTORY, dir_fd=root)
            try:
                os.unlink(Path(path).name, dir_fd=directory)
            finally:
                os.close(directory)
            with contextlib.suppress(OSError):
                os.rmdir(DIRECTORY, dir_fd=root)
            return {"removed": True}
        except OSError:
            return {"removed": False}
        finally:
            os.close(root)

    return bool(without_root(shared_root, remove).get("removed"))


def contents(archive: IO[bytes], path: str) -> Contents:
    """Read what an archive of `docker save` holds: the lists that Docker's engines and containerd read."""
    tags: set[str] = set()
    ids: set[str] = set()
    try:
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:") as tar:
            for entry in _json(tar, "manifest.json") or []:
                tags.update(entry.get("RepoTags") or [])
                ids.add("sha256:" + Path(entry["Config"]).name.removesuffix(".json"))
            for entry in (_json(tar, "index.json") or {}).get("manifests") or []:
                ids.add(str(entry["digest"]))
                named = (entry.get("annotations") or {}).get("io.containerd.image.name")
                tags.update([str(named)] if named else [])
            for name, versions in (_json(tar, "repositories") or {}).items():
                tags.update(f"{name}:{version}" for version in versions)
    except (tarfile.TarError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ImageError(f"{path} is not an image that docker save has written: {error}") from error
    return Contents(frozenset(map(plain_name, tags)), frozenset(ids))


def plain_name(tag: str) -> str:
    """The name of an image as people write it; containerd writes Docker's own registry out, and Podman localhost."""
    return tag.removeprefix("localhost/").removeprefix("docker.io/").removeprefix("library/")


def _json(tar: tarfile.TarFile, name: str) -> Any:
    try:
        member = tar.getmember(name)
    except KeyError:
        return None
    file = tar.extractfile(member) if member.isreg() and member.size <= JSON_BYTES else None
    if file is None:
        raise ValueError(f"{name} is not a small regular file")
    return json.loads(file.read())


def check_contents(known: Contents, saved: Saved, image: str, tags: Collection[str]) -> None:
    others = known.tags - {plain_name(tag) for tag in (*tags, image)}
    if others:
        raise ImageError(
            f"{saved.path} has also the images {', '.join(sorted(others))}, and would replace those of this machine. "
            f"It was not loaded: save only what the cluster needs (docker save {image})"
        )
    if plain_name(image) not in known.tags:
        has = ", ".join(sorted(known.tags)) or "images without a name"
        raise ImageError(f"{saved.path} has {has}, and not {image}. It was not loaded: save it by this name")
    if saved.id and saved.id not in known.ids:
        raise ImageError(f"{saved.path} has another image than {saved.id}. It was not loaded: run the playbook again")
