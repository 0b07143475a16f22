# SPDX-License-Identifier: Apache-2.0
"""Reads the log of a job: its last lines, those after a position, of a rank or an attempt, or the first errors."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..archive.archive import Archive
from ..archive.status import JobState
from ..io.output import ANSI, FRAME, REMOTE_ERROR, USER_CODE, PrintedError, printed_errors
from ..io.reading import UnreadableError
from ..queue import attempts
from .info import JobInfo
from .services import OperationError

# The maximum size of the log that one call returns.
MAX_LOG_BYTES = 1 << 20
# The size of the end of the log that is searched.
MAX_TAIL_BYTES = 8 << 20
# The maximum number of processes whose first error is shown, and of lines of one.
MAX_ERRORS, MAX_LINES = 20, 200
# The number of attempts to read while the log's files are renamed.
READ_ATTEMPTS = 3
# Longer lines are rare; the tail is read in units of this size.
LINE_BYTES = 4096
BEGINNING = "1:0"
POSITION = re.compile(r"(?P<file>[0-9]{1,9}):(?P<byte>[0-9]{1,18})")
# The processes that a line names at its beginning.
PREFIX = re.compile(rf"(?:(?:{ANSI.pattern}){{,4}}\([^()]{{,200}}pid=[^()]{{,200}}\)(?:{ANSI.pattern}){{,4}} ?){{1,4}}")


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
    """The last state of a progress bar, with its process, which only the first state may name."""
    before, _return, last = line.rstrip("\r").rpartition("\r")
    process = PREFIX.match(before) if before and last and not PREFIX.match(last) else None
    return f"{process[0]}{last}" if process else last


def read_log(archive: Archive, read: Callable[[dict[int, Path]], LogPart], nothing: LogPart) -> LogPart:
    """The result of `read` for the log's files. It is called again if they were renamed meanwhile.

    Raises UnreadableError.
    """
    for attempt in range(READ_ATTEMPTS):
        parts = archive.log_parts()
        try:
            answer = read(parts)
        except FileNotFoundError:
            continue
        except (OSError, UnreadableError) as error:
            if attempt < READ_ATTEMPTS - 1:
                continue
            raise UnreadableError(archive.driver_log.parent, f"cannot be read ({error})") from error
        if archive.log_parts() == parts:
            return answer
    return nothing


def log_tail(archive: Archive, lines: int | None) -> LogPart:
    """The last lines of the driver's log, and the position after them, see log_since. None: all of MAX_TAIL_BYTES."""

    def read(parts: dict[int, Path]) -> LogPart:
        data, position = archive.read_end(parts, MAX_TAIL_BYTES if lines is None else lines * LINE_BYTES)
        shown = terminal_lines(data) if lines != 0 else []
        return LogPart(shown if lines is None else shown[-lines:], position or BEGINNING)

    return read_log(archive, read, LogPart([], BEGINNING))


def parse_position(position: str) -> tuple[int, int]:
    """A file of the log, and a byte in it. Raises PositionError."""
    match = POSITION.fullmatch(position or BEGINNING)
    if not match:
        raise PositionError(f"{position!r} is not a position in a log, which is FILE:BYTE")
    return int(match["file"]), int(match["byte"])


def log_since(archive: Archive, position: str, final: bool = False, size: int = MAX_LOG_BYTES) -> LogPart:
    """The whole lines of the driver's log after a position, from at most `size` bytes, and the position after them.

    position: ``FILE:BYTE``, valid also after driver.log was renamed; empty for the beginning. Raises PositionError if
        it is malformed, and UnreadableError.
    final: whether a last line without a line end counts as well.
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
            # A line longer than `size` must not stop the reader.
            end = len(data)
        lines, after = terminal_lines(data[:end]), position
        for number, begin, chunk in chunks:
            after = f"{number}:{begin + min(end, len(chunk))}"
            end -= len(chunk)
            if end <= 0:
                break
        return LogPart(lines, after)

    return read_log(archive, read, LogPart([], position))


def first_errors(lines: Iterable[str]) -> list[str]:
    """The first error of each process, in the order in which they were printed; the first of all with its traceback.

    In that traceback, the frames of the user's own code come first.
    """
    errors: dict[str, PrintedError] = {}
    for error in printed_errors("\n".join(lines)):
        first = errors.setdefault(error.process, error)
        # Ray's own exception precedes the one copied from another process.
        if REMOTE_ERROR.search(first.first_line):
            errors[error.process] = error
    shown: list[str] = []
    for number, (process, error) in enumerate(errors.items()):
        texts = [*frames_first(error.stack[:MAX_LINES]), *error.text.split("\n")] if number == 0 else [error.first_line]
        shown += [f"{process or 'the driver'}:", *(f"  {text}" for text in texts)]
        if number + 1 == MAX_ERRORS < len(errors):
            return [*shown, f"and {len(errors) - MAX_ERRORS} more processes"]
    return shown


def frames_first(stack: Iterable[str]) -> list[str]:
    """The lines of a traceback, those of frames in the user's code before the others."""
    user_lines, other_lines, is_user = list[str](), list[str](), False
    for line in stack:
        frame = FRAME.match(line)
        is_user = USER_CODE in frame[1] if frame else is_user
        (user_lines if is_user else other_lines).append(line)
    return user_lines + other_lines


# Some lines of a job's log: of a rank, an attempt, or the first errors.

# torchrun's processes write (rank3 pid=7), torch [rank3]:, and verl [Rank 3].
RANK_MARK = re.compile(r"[(\[][Rr]ank ?([0-9]+)\b")
# The end of the first line of each attempt but the first. A progress bar of the one before may have no end.
ATTEMPT_MARK = re.compile(rf"{attempts.ATTEMPT_MARKER}([0-9]{{1,6}})$")
# States in which the current attempt has written nothing; the last one is Ray's.
UNSTARTED_STATES = (JobState.QUEUED, JobState.SUBMITTED, "PENDING")


@dataclass(frozen=True)
class Selection:
    """Which lines of a log are shown: those for which all of this is true. Empty: of all lines.

    rank: of a process of torch, which torchrun's processes tell, and some messages of torch and verl.
    attempt: the number of the attempt; 0 for all.
    first_errors: of these lines, the first error of each process.
    """

    rank: str = ""
    attempt: int = 0
    first_errors: bool = False

    def of(self, lines: Sequence[str], first: int, max_lines: int) -> list[str]:
        """The last of these lines. first: the attempt that wrote the first of them."""
        chosen = []
        for line in lines:
            match = ATTEMPT_MARK.search(line)
            first = int(match[1]) if match else first
            if self.attempt in (0, first) and (not self.rank or self.rank in RANK_MARK.findall(ANSI.sub("", line))):
                chosen.append(line)
        if self.first_errors:
            return first_errors(chosen)
        return chosen[-max_lines:] if max_lines else chosen


def select_lines(archive: Archive, job: JobInfo, selection: Selection, tail: int, position: str | None) -> list[str]:
    """The last `tail` lines of the end of a log that job.log has, or all, which are those after a position.

    Raises OperationError.
    """
    if position is not None:
        if selection.attempt:
            raise OperationError("an attempt chooses lines of the whole log: leave the position out")
        return selection.of(job.log, 1, 0)
    is_whole = False
    with contextlib.suppress(OSError, UnreadableError):
        is_whole = sum(path.stat().st_size for path in archive.log_parts().values()) < MAX_TAIL_BYTES
    # Lines without a mark of a next attempt belong to the latest attempt that has begun.
    latest = job.attempt - (job.state in UNSTARTED_STATES)
    first = next((int(match[1]) - 1 for line in job.log if (match := ATTEMPT_MARK.search(line))), latest)
    return selection.of(job.log, 1 if is_whole else first, tail)
