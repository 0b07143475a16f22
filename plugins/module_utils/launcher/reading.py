# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read files that jobs can write: regular files only, never through a link, never more than a limit."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

MIB = 1 << 20
# What our own files need at most: a status with many attempts, a composed configuration, a manifest of 100,000 files.
JSON_BYTES = 32 * MIB


class UnreadableError(Exception):
    """A file that exists is not what it should be. The message says which file, and what is wrong with it."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = str(path)
        self.why = why


def open_directory(root: Path, name: str = "") -> int:
    """A descriptor of a directory below `root`; no component below `root` may be a link.

    Raises FileNotFoundError, and UnreadableError for anything but directories.
    """
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in PurePosixPath(name).parts:
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise UnreadableError(root / name, f"cannot be opened as a directory ({error.strerror})") from error
            os.close(descriptor)
            descriptor = below
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_file(root: Path, name: str) -> BinaryIO:
    """Open the regular file `name` below `root` for reading; no component below `root` may be a link.

    Raises FileNotFoundError, and UnreadableError for anything else that is there.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UnreadableError(root / name, "lies outside")
    directory = open_directory(root, str(path.parent))
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer for ever.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        descriptor = os.open(path.name, flags, dir_fd=directory)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableError(root / name, f"cannot be opened ({error.strerror})") from error
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError(root / name, "is not a regular file")
    return os.fdopen(descriptor, "rb")


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


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text; raises UnreadableError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise UnreadableError(path, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(path, f"is not JSON ({error})") from error


def read_json(root: Path, name: str, limit: int = JSON_BYTES) -> Any:
    """The value of a JSON file; raises as open_file does."""
    return parse_json(read_text(root, name, limit), root / name)


def read_mapping(root: Path, name: str, limit: int = JSON_BYTES) -> dict[str, Any]:
    """The same for a file that has a mapping."""
    value = read_json(root, name, limit)
    if not isinstance(value, dict):
        raise UnreadableError(root / name, "is not a mapping")
    return value
