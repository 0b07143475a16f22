# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files that jobs can write: regular files only, never through a link, never more than a limit."""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

MIB = 1 << 20
# What our own files need at most: a status with many attempts, a composed configuration, a manifest of 100,000 files.
JSON_BYTES = 32 * MIB
# Functions that walk through a value or print it call themselves for each level.
JSON_DEPTH = 64
# Shards of a checkpoint of thousands of GPUs are in one directory.
DIRECTORY_ENTRIES = 100_000
DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# What a network file system answers while it hangs, or about a file that was just replaced.
TRANSIENT = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)


class UnreadableError(Exception):
    """A file that exists is not what it should be. The message says which file, and what is wrong with it."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = str(path)
        self.why = why

    @property
    def is_transient(self) -> bool:
        """Whether the file may be readable a moment later."""
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in TRANSIENT


def open_directory(root: Path, name: str = "") -> int:
    """A descriptor of a directory below `root`; no component below `root` may be a link.

    Raises FileNotFoundError, and UnreadableError for anything but directories.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise UnreadableError(root / name, "lies outside")
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in parts:
            above, descriptor = descriptor, open_below(descriptor, part)
            os.close(above)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UnreadableError(root / name, f"cannot be opened as a directory ({reason(error)})") from error
    return descriptor


def open_below(directory: int, name: str) -> int:
    """A descriptor of a directory in another one; closes the other one if that fails."""
    try:
        return os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
    except BaseException:
        os.close(directory)
        raise


def reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class NotRegularError(OSError):
    """There is a directory, a FIFO, a device or a socket instead of a file."""


def open_regular(directory: int, name: str) -> BinaryIO:
    """Open a regular file in a directory for reading. Raises OSError, for anything but regular files as well."""
    # Opening a device may do something.
    require_regular(os.stat(name, dir_fd=directory, follow_symlinks=False))
    # Without O_NONBLOCK, opening a FIFO waits for a writer for ever.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(name, flags, dir_fd=directory)
    try:
        require_regular(os.fstat(descriptor))
    except NotRegularError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def require_regular(found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(found.st_mode):
        raise NotRegularError(errno.EINVAL, "it is not a regular file")


def open_file(root: Path, name: str) -> BinaryIO:
    """Open the regular file `name` below `root` for reading; no component below `root` may be a link.

    Raises FileNotFoundError, and UnreadableError for anything else that is there.
    """
    above, slash, base = name.rpartition("/")
    directory = open_directory(root, above + slash)
    try:
        return open_regular(directory, base)
    except FileNotFoundError:
        raise
    except NotRegularError as error:
        raise UnreadableError(root / name, "is not a regular file") from error
    except (OSError, ValueError) as error:
        raise UnreadableError(root / name, f"cannot be opened ({reason(error)})") from error
    finally:
        os.close(directory)


Kind = Callable[["os.DirEntry[str]"], bool]


def list_directory(root: Path, name: str = "", kind: Kind | None = None) -> list[str]:
    """The names in a directory, without an order; none if it does not exist. Raises UnreadableError."""
    try:
        directory = open_directory(root, name)
    except FileNotFoundError:
        return []
    try:
        return names_in(directory, kind)
    except OSError as error:
        raise UnreadableError(root / name, f"cannot be listed ({reason(error)})") from error
    finally:
        os.close(directory)


def names_in(directory: int, kind: Kind | None = None) -> list[str]:
    """The names in an open directory, of a kind or all. Raises OSError, for too many of them as well."""
    with os.scandir(directory) as entries:
        found = [entry.name for entry in itertools.islice(filter(kind, entries), DIRECTORY_ENTRIES + 1)]
    if len(found) > DIRECTORY_ENTRIES:
        raise OSError(errno.E2BIG, f"it has more than {DIRECTORY_ENTRIES} entries")
    return found


def status_of(root: Path, name: str) -> os.stat_result | None:
    """The type, size and times of a path, without following a link; None if it does not exist or is out of reach."""
    above, slash, base = name.rpartition("/")
    try:
        directory = open_directory(root, above + slash)
    except (FileNotFoundError, UnreadableError):
        return None
    try:
        return os.stat(base or ".", dir_fd=directory, follow_symlinks=False)
    except (OSError, ValueError):
        return None
    finally:
        os.close(directory)


def read_bytes(root: Path, name: str, limit: int = JSON_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes; raises as open_file does."""
    with open_file(root, name) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise UnreadableError(root / name, f"cannot be read ({error.strerror})") from error
    if len(content) > limit:
        raise UnreadableError(root / name, f"has more than {limit / MIB:g} MiB")
    return content


def read_text(root: Path, name: str, limit: int = JSON_BYTES) -> str:
    """The same as text."""
    try:
        return read_bytes(root, name, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(root / name, f"is not UTF-8 ({error.reason} at byte {error.start})") from error


def refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else refuse(text)


# Faster than json.loads, which would make one for each text.
DECODER = json.JSONDecoder(parse_constant=refuse, parse_float=finite)


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text; raises UnreadableError."""
    try:
        value = DECODER.decode(text)
    except RecursionError as error:
        raise UnreadableError(path, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(path, f"is not JSON ({error})") from error
    if is_deep(value):
        raise UnreadableError(path, "is nested too deeply")
    return value


def is_deep(value: object) -> bool:
    """Whether a JSON value has more levels than JSON_DEPTH."""
    level = [value]
    for _depth in range(JSON_DEPTH):
        values = itertools.chain.from_iterable(
            each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))
        )
        level = [each for each in values if isinstance(each, (dict, list))]
        if not level:
            return False
    return True


def read_json(root: Path, name: str, limit: int = JSON_BYTES) -> Any:
    """The value of a JSON file; raises as open_file does."""
    return parse_json(read_text(root, name, limit), root / name)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number; Python takes truth values for numbers."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_mapping(root: Path, name: str, limit: int = JSON_BYTES) -> dict[str, Any]:
    """The same for a file that has a mapping."""
    value = read_json(root, name, limit)
    if not isinstance(value, dict):
        raise UnreadableError(root / name, "is not a mapping")
    return value
