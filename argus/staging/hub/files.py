# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a repository: hashes, patterns, links, and the progress of a download."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import hashlib
import os
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ..files import THREADS
from ..lock import PROGRESS_SECONDS, Progress

CHUNK = 4 << 20


def hashes_of(
    paths: Mapping[str, Path], progress: Progress, git: Collection[str] = ()
) -> dict[str, tuple[str, str | None]]:
    """The SHA-256 of each file that exists, and git's SHA-1 of those that `git` names."""

    def hashes(name: str) -> tuple[str, str | None] | None:
        try:
            file = paths[name].open("rb")
        except FileNotFoundError:
            return None
        with file:
            sha256 = hashlib.sha256()
            size = os.fstat(file.fileno()).st_size
            sha1 = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False) if name in git else None
            while part := file.read(CHUNK):
                sha256.update(part)
                if sha1:
                    sha1.update(part)
                progress.add(len(part))
        return sha256.hexdigest(), sha1.hexdigest() if sha1 else None

    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(paths, pool.map(hashes, paths), strict=True))
    return {name: both for name, both in found.items() if both is not None}


@contextlib.contextmanager
def followed(progress: Progress, done: Callable[[], int]) -> Iterator[None]:
    """Writes the progress every second while another library or process works."""
    end = threading.Event()

    def write() -> None:
        while not end.wait(PROGRESS_SECONDS):
            progress.done = max(0, done())
            progress.write()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def links(path: Path) -> Iterator[Path]:
    """A path, and if it is a link, its destination, and so on."""
    yield path
    while path.is_symlink():
        path = path.parent / path.readlink()
        yield path


def is_relative(name: str) -> bool:
    """Whether a path stays below the directory to which it is relative."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def normal(pattern: str) -> str:
    """A pattern as the library reads it: a directory means everything in it."""
    return f"{pattern}*" if pattern.endswith("/") else pattern


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(compiled(pattern), name) for pattern in patterns)


@functools.lru_cache
def compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(normal(pattern)))
