# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a job: from its archive, and from the head as long as there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..launcher.archive import (
    Archive,
)

# What one look takes from the log for those who follow it.
LOG_BYTES = 1 << 20
# Lines, and the place after them.
LogPart = tuple[list[str], str]


def shown_lines(data: bytes) -> list[str]:
    """A log as people see it: of a progress bar, what it showed last; no empty lines."""
    shown = (line.rstrip("\r").rpartition("\r")[2] for line in data.decode(errors="replace").split("\n"))
    return [line for line in shown if line.strip()]


def log_parts(archive: Archive) -> dict[int, Path]:
    """The files of the driver's log, by numbers that stay theirs: driver.log has that of its name to be."""
    files = archive.log_files()
    parts = {int(path.suffix[1:]): path for path in files if path != archive.driver_log}
    if archive.driver_log in files:
        parts[max(parts, default=0) + 1] = archive.driver_log
    return parts


def read_log(archive: Archive, read: Callable[[dict[int, Path]], LogPart], nothing: LogPart) -> LogPart:
    """What `read` makes of the log's files; once more when they were renamed under its hands."""
    for _attempt in range(3):
        parts = log_parts(archive)
        try:
            answer = read(parts)
        except OSError:
            continue
        if log_parts(archive) == parts:
            return answer
    return nothing


def log_tail(archive: Archive, lines: int) -> LogPart:
    """The last lines of the driver's log, and the place after them, see log_since."""

    def read(parts: dict[int, Path]) -> LogPart:
        wanted, data, position = lines * 4096, b"", ""
        for number in sorted(parts, reverse=True):
            with parts[number].open("rb") as log:
                begin = max(0, log.seek(0, 2) - (wanted - len(data)))
                log.seek(begin)
                part = log.read()
            position = position or f"{number}:{begin + len(part)}"
            data = part + data
            if len(data) >= wanted:
                break
        return (shown_lines(data)[-lines:] if lines else []), position or "1:0"

    return read_log(archive, read, ([], "1:0"))


def log_since(archive: Archive, position: str, final: bool = False, size: int = LOG_BYTES) -> LogPart:
    """The whole lines of the driver's log after a place, from at most `size` bytes, and the place after them.

    position: ``FILE:BYTE``, which stays right when driver.log is renamed; empty for the beginning. Raises ValueError.
    final: whether a line without an end counts as well.
    """
    file, _dummy, byte = (position or "1:0").partition(":")
    first, offset = int(file), int(byte)

    def read(parts: dict[int, Path]) -> LogPart:
        chunks, left = [], size
        for number in sorted(number for number in parts if number >= first):
            begin = offset if number == first else 0
            with parts[number].open("rb") as log:
                log.seek(begin)
                chunks.append((number, begin, log.read(left)))
            left -= len(chunks[-1][2])
            if not left:
                break
        data = b"".join(chunk for _number, _begin, chunk in chunks)
        end = len(data) if final and left else data.rfind(b"\n") + 1
        if not end and not left:
            # A line that is longer than one look does not stop the reader.
            end = len(data)
        lines, after = shown_lines(data[:end]), position
        for number, begin, chunk in chunks:
            after = f"{number}:{begin + min(end, len(chunk))}"
            end -= len(chunk)
            if end <= 0:
                break
        return lines, after

    return read_log(archive, read, ([], position))
