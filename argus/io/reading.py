# SPDX-License-Identifier: Apache-2.0
"""Reads files that jobs can write: regular files only, without blocking, and never more than a limit.

Links are followed: the reading processes run as the same user as jobs, and so can read no more than a job.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import math
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

MIB = 1 << 20
# More than our largest files have: a status with many attempts, a composed configuration, a manifest of 100,000 files.
MAX_JSON_BYTES = 32 * MIB
# Recursive functions over a JSON value must stay within Python's recursion limit.
MAX_JSON_DEPTH = 64
# More than the shards of a checkpoint of thousands of GPUs, which are in one directory.
MAX_DIRECTORY_ENTRIES = 100_000
# The directories above a file that another machine may have replaced: that of all archives, an archive, one below it.
DIRECTORY_LEVELS = 3
# The errors of a network file system that hangs, or of a file on it that was just replaced.
TRANSIENT_ERRORS = (errno.ESTALE, errno.EIO, errno.ETIMEDOUT)
MAX_READ_ATTEMPTS, READ_RETRY_INTERVAL_SECONDS = 5, 0.2
SNAPSHOT_MARKER = re.compile(r"""^MARKER[ \t]*=[ \t]*(["'])([^"'\\\n]*)\1[ \t]*(?:#.*)?$""", re.MULTILINE)
MAX_MARKER_BYTES = 4096


class UnreadableError(Exception):
    """An existing file is unreadable or malformed. The message names the file and the problem."""

    def __init__(self, path: Path | str, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.path = str(path)
        self.why = why

    @property
    def is_transient(self) -> bool:
        return isinstance(self.__cause__, OSError) and self.__cause__.errno in TRANSIENT_ERRORS


def reason(error: OSError | ValueError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def refresh_nfs_cache(path: Path) -> None:
    """Make an NFS client look up a path in an archive anew, as another machine may have changed it.

    NFS clients cache lookups for up to a minute. Opening each parent directory makes them ask the server.
    """
    for directory in reversed(path.parents[:DIRECTORY_LEVELS]):
        with contextlib.suppress(OSError, ValueError):
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def exists(path: Path) -> bool:
    """Whether a path exists now, also as a link that leads nowhere."""
    refresh_nfs_cache(path)
    return os.path.lexists(path)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading. Raises FileNotFoundError, and UnreadableError for anything else."""
    refresh_nfs_cache(path)
    descriptor = -1
    try:
        # Without O_NONBLOCK, opening a FIFO waits for a writer for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        # If another machine has just replaced the file, NFS may report only here that it is gone.
        is_regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        if descriptor != -1:
            os.close(descriptor)
        raise UnreadableError(path, f"cannot be opened ({reason(error)})") from error
    if not is_regular:
        os.close(descriptor)
        raise UnreadableError(path, "is not a regular file")
    return os.fdopen(descriptor, "rb")


def list_directory(path: Path, kind: Callable[[os.DirEntry[str]], bool] | None = None) -> list[str]:
    """The names in a directory, unsorted; empty if it does not exist. kind: keeps only some entries.

    Raises UnreadableError, also for too many names.
    """
    refresh_nfs_cache(path)
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in itertools.islice(filter(kind, entries), MAX_DIRECTORY_ENTRIES + 1)]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UnreadableError(path, f"cannot be listed ({reason(error)})") from error
    if len(names) > MAX_DIRECTORY_ENTRIES:
        raise UnreadableError(path, f"cannot be listed (it has more than {MAX_DIRECTORY_ENTRIES} entries)")
    return names


def read_bytes(path: Path, limit: int = MAX_JSON_BYTES) -> bytes:
    """The content of a file of at most `limit` bytes, with retries after transient errors; raises as open_file does."""
    for attempt in range(MAX_READ_ATTEMPTS):
        try:
            return read_once(path, limit)
        except UnreadableError as error:
            if not error.is_transient or attempt == MAX_READ_ATTEMPTS - 1:
                raise
            time.sleep(READ_RETRY_INTERVAL_SECONDS)
    raise AssertionError


def read_once(path: Path, limit: int) -> bytes:
    with open_file(path) as file:
        try:
            content = file.read(limit + 1)
        except OSError as error:
            raise UnreadableError(path, f"cannot be read ({error.strerror})") from error
    if len(content) > limit:
        raise UnreadableError(path, f"has more than {limit / MIB:g} MiB")
    return content


def read_text(path: Path, limit: int = MAX_JSON_BYTES) -> str:
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableError(path, f"is not UTF-8 ({error.reason} at byte {error.start})") from error


def read_marker(file: Path) -> str | None:
    """The id in a snapshot's marker module, or None. It is not imported, because jobs can write the file."""
    with contextlib.suppress(OSError, UnreadableError):
        match = SNAPSHOT_MARKER.search(read_text(file, MAX_MARKER_BYTES))
        return match[2] if match else None
    return None


def reject_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def finite_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else reject_constant(text)


# One decoder for all texts: json.loads with these arguments would create one for each text.
DECODER = json.JSONDecoder(parse_constant=reject_constant, parse_float=finite_float)


def parse_json(text: str, path: Path | str) -> Any:
    """The value of a JSON text. Raises UnreadableError, also for NaN, deep nesting and unencodable text."""
    try:
        value = DECODER.decode(text)
    except RecursionError as error:
        raise UnreadableError(path, "is nested too deeply") from error
    except ValueError as error:
        raise UnreadableError(path, f"is not JSON ({error})") from error
    if is_deep(value):
        raise UnreadableError(path, "is nested too deeply")
    if "\\u0000" in text or ("\\u" in text and not is_encodable(json.dumps(value, ensure_ascii=False))):
        raise UnreadableError(path, "contains null bytes or lone surrogates")
    return value


def is_deep(value: object, depth: int = MAX_JSON_DEPTH) -> bool:
    """Whether lists and mappings are nested in more than `depth` levels."""
    if not isinstance(value, (dict, list)):
        return False
    entries = value.values() if isinstance(value, dict) else value
    return not depth or any(is_deep(entry, depth - 1) for entry in entries if isinstance(entry, (dict, list)))


def is_encodable(value: str) -> bool:
    """Whether text can be written to a file and be part of a path: it has no null byte and no lone surrogate."""
    try:
        return b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> Any:
    return parse_json(read_text(path, limit), path)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a JSON value is an integer, and not a bool, which is a subclass of int."""
    return isinstance(value, int) and not isinstance(value, bool)


def read_mapping(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    value = read_json(path, limit)
    if not isinstance(value, dict):
        raise UnreadableError(path, "is not a mapping")
    return value
