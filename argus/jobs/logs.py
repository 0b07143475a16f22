# SPDX-License-Identifier: Apache-2.0
"""Reads the log of a job's driver: its last lines, or the lines after a position."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..archive.archive import Archive
from ..io.output import ANSI
from ..io.reading import UnreadableError

# The maximum size of the log that one call returns.
MAX_LOG_BYTES = 1 << 20
# The size of the end of the log that is read for all of its lines.
MAX_TAIL_BYTES = 8 << 20
# How often the log is read again if its files were renamed meanwhile.
MAX_READ_ATTEMPTS = 3
# For each of the last lines, so many bytes are read; longer lines are rare.
LINE_BYTES = 4096
# A position in a log: the number of a file, and a byte in it.
POSITION = re.compile(r"(?P<file>[0-9]{1,9}):(?P<byte>[0-9]{1,18})")
BEGINNING = "1:0"
# The beginning of a line, where Ray names the processes that wrote it.
PROCESS_PREFIX = re.compile(
    rf"(?:(?:{ANSI.pattern}){{,4}}\([^()]{{,200}}pid=[^()]{{,200}}\)(?:{ANSI.pattern}){{,4}} ?){{1,4}}"
)


class PositionError(ValueError):
    """A position in a log is malformed."""


class LogPart(NamedTuple):
    """Lines of a log, and the position after them."""

    lines: list[str]
    position: str


def terminal_lines(data: bytes) -> list[str]:
    """The lines as a terminal would show them: the last state of each progress bar, and no empty lines."""
    return [line for line in map(last_state, data.decode(errors="replace").split("\n")) if line.strip()]


def last_state(line: str) -> str:
    """The last state of a progress bar, after the name of its process, which may be before the first state only."""
    before, _return, last = line.rstrip("\r").rpartition("\r")
    process = PROCESS_PREFIX.match(before) if before and last and not PROCESS_PREFIX.match(last) else None
    return f"{process[0]}{last}" if process else last


def read_log(archive: Archive, read: Callable[[dict[int, Path]], LogPart], default: LogPart) -> LogPart:
    """Call `read` with the numbered files of the log, and again if they were renamed meanwhile; return its result.

    default: the result if the files are renamed or gone each time. Raises UnreadableError.
    """
    for attempt in range(MAX_READ_ATTEMPTS):
        parts = archive.log_parts()
        try:
            result = read(parts)
        except FileNotFoundError:
            continue
        except (OSError, UnreadableError) as error:
            if attempt < MAX_READ_ATTEMPTS - 1:
                continue
            raise UnreadableError(archive.driver_log.parent, f"cannot be read ({error})") from error
        if archive.log_parts() == parts:
            return result
    return default


def log_tail(archive: Archive, lines: int | None) -> LogPart:
    """The last lines of the log, and the position after them. lines: None for all in the last MAX_TAIL_BYTES."""

    def read(parts: dict[int, Path]) -> LogPart:
        data, position = archive.read_end(parts, MAX_TAIL_BYTES if lines is None else lines * LINE_BYTES)
        shown = terminal_lines(data) if lines != 0 else []
        return LogPart(shown if lines is None else shown[-lines:], position or BEGINNING)

    return read_log(archive, read, LogPart([], BEGINNING))


def parse_position(position: str) -> tuple[int, int]:
    """The number of a file of the log, and a byte in it. Raises PositionError."""
    match = POSITION.fullmatch(position or BEGINNING)
    if not match:
        raise PositionError(f"{position!r} is not a position in a log, which is FILE:BYTE")
    return int(match["file"]), int(match["byte"])


def log_since(archive: Archive, position: str, final: bool = False, size: int = MAX_LOG_BYTES) -> LogPart:
    """The whole lines of the log after a position, from at most `size` bytes, and the position after these lines.

    position: ``FILE:BYTE``, which stays valid when driver.log is renamed; empty for the beginning.
    final: whether the log is complete, so that a last line without a line end counts as well.

    Raises PositionError for a malformed position, and UnreadableError.
    """
    first, offset = parse_position(position)

    def read(parts: dict[int, Path]) -> LogPart:
        chunks, left = [], size
        for number in sorted(number for number in parts if number >= first):
            begin = offset if number == first else 0
            with archive.open(f"logs/{parts[number].name}") as log:
                log.seek(begin)
                chunks.append((number, begin, log.read(left)))
            left -= len(chunks[-1][2])
            if not left:
                break
        data = b"".join(chunk for _number, _begin, chunk in chunks)
        end = len(data) if final and left else data.rfind(b"\n") + 1
        if not end and not left:
            # A line longer than `size` is returned in pieces: otherwise, the position would never advance.
            end = len(data)
        lines, after = terminal_lines(data[:end]), position
        for number, begin, chunk in chunks:
            after = f"{number}:{begin + min(end, len(chunk))}"
            end -= len(chunk)
            if end <= 0:
                break
        return LogPart(lines, after)

    return read_log(archive, read, LogPart([], position))
