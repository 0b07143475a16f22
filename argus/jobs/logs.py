# SPDX-License-Identifier: Apache-2.0
"""Reads the log of a job's driver, its end or the part after a position; and chooses lines of it."""

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
MAX_TAIL_BYTES = 8 << 20  # of the end of the log
MAX_READ_ATTEMPTS = 3
# For each of the last lines, so many bytes are read; longer lines are rare.
LINE_BYTES = 4096
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


def read_with_retries(archive: Archive, read: Callable[[dict[int, Path]], LogPart], default: LogPart) -> LogPart:
    """Call `read` with the log's files by number, and again if files were renamed meanwhile; return its result.

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

    return read_with_retries(archive, read, LogPart([], BEGINNING))


def parse_position(position: str) -> tuple[int, int]:
    match = POSITION.fullmatch(position or BEGINNING)
    if not match:
        raise PositionError(f"{position!r} is not a position in a log, which is FILE:BYTE")
    return int(match["file"]), int(match["byte"])


def log_since(archive: Archive, position: str, is_complete: bool = False, max_bytes: int = MAX_LOG_BYTES) -> LogPart:
    """The whole lines of the log after a position, from at most `max_bytes`, and the position after these lines.

    position: ``FILE:BYTE``, which stays valid when driver.log is renamed; empty for the beginning.
    is_complete: whether nothing follows in the log, so that a last line without a line end counts as well.
    Raises PositionError for a malformed position, and UnreadableError.
    """
    first, offset = parse_position(position)

    def read(parts: dict[int, Path]) -> LogPart:
        chunks, left = [], max_bytes
        for number in sorted(number for number in parts if number >= first):
            begin = offset if number == first else 0
            with archive.open(f"logs/{parts[number].name}") as log:
                log.seek(begin)
                chunks.append((number, begin, log.read(left)))
            left -= len(chunks[-1][2])
            if not left:
                break
        data = b"".join(chunk for _number, _begin, chunk in chunks)
        end = len(data) if is_complete and left else data.rfind(b"\n") + 1
        if not end and not left:
            # A line longer than `max_bytes` is returned in pieces: otherwise, the position would never advance.
            end = len(data)
        lines, after = terminal_lines(data[:end]), position
        for number, begin, chunk in chunks:
            after = f"{number}:{begin + min(end, len(chunk))}"
            end -= len(chunk)
            if end <= 0:
                break
        return LogPart(lines, after)

    return read_with_retries(archive, read, LogPart([], position))


# Chooses lines of a job's log: those of a rank or of an attempt, or the first error of each process.

MAX_ERRORS = 20
MAX_TRACEBACK_LINES = 200
# torchrun's processes write (rank3 pid=7), torch [rank3]:, and verl [Rank 3].
RANK_MARK = re.compile(r"[(\[][Rr]ank ?([0-9]+)\b")
# The first line of each attempt but the first ends with it. Before it, that line may have a progress bar of the attempt
# before, which printed no line end.
ATTEMPT_MARK = re.compile(rf"{attempts.ATTEMPT_MARKER}([0-9]{{1,6}})$")
# States in which the current attempt has written nothing; PENDING is a state of Ray.
UNSTARTED_STATES = (JobState.QUEUED, JobState.SUBMITTED, "PENDING")


@dataclass(frozen=True)
class Selection:  # the criteria for lines of a log
    # A rank of torch.distributed, in lines of torchrun's processes and some of torch and verl; "" for all lines.
    rank: str = ""
    attempt: int = 0  # 0 for lines of all attempts
    # Of the lines that meet the other criteria, only the first error of each process.
    first_errors: bool = False

    def choose(self, lines: Sequence[str], first_attempt: int, max_lines: int) -> list[str]:
        """The last lines that meet the criteria. first_attempt: the attempt of lines[0]. max_lines: 0 for all."""
        chosen, attempt = [], first_attempt
        for line in lines:
            match = ATTEMPT_MARK.search(line)
            attempt = int(match[1]) if match else attempt
            if self.attempt in (0, attempt) and (not self.rank or self.rank in RANK_MARK.findall(ANSI.sub("", line))):
                chosen.append(line)
        if self.first_errors:
            return first_errors(chosen)
        return chosen[-max_lines:] if max_lines else chosen


def select_lines(archive: Archive, job: JobInfo, selection: Selection, tail: int, start: str | None) -> list[str]:
    """Choose from the lines in job.log, which the caller has read: at most the last `tail`, or all with a start.

    start: the position after which the lines begin; None if they are the end of the log.
    Raises OperationError for an attempt after a position, which may be in the middle of any attempt.
    """
    if start is not None:
        if selection.attempt:
            raise OperationError("an attempt can only be chosen from the whole log: leave the position out")
        return selection.choose(job.log, first_attempt=1, max_lines=0)
    is_whole = False
    with contextlib.suppress(OSError, UnreadableError):
        is_whole = sum(path.stat().st_size for path in archive.log_parts().values()) < MAX_TAIL_BYTES
    # Without a mark in them, all lines are of the latest attempt that has begun.
    latest = job.attempt - (job.state in UNSTARTED_STATES)
    first_attempt = next((int(match[1]) - 1 for line in job.log if (match := ATTEMPT_MARK.search(line))), latest)
    return selection.choose(job.log, 1 if is_whole else first_attempt, tail)


def first_errors(lines: Iterable[str]) -> list[str]:
    """The first error of each process, in the order in which they were printed; the first one with its traceback.

    The traceback begins with the frames of the user's own code.
    """
    errors: dict[str, PrintedError] = {}
    for error in printed_errors("\n".join(lines)):
        first = errors.setdefault(error.process, error)
        # A process prints Ray's exception about a task first, and then the cause, copied from the task.
        if REMOTE_ERROR.search(first.first_line):
            errors[error.process] = error
    shown: list[str] = []
    for number, (process, error) in enumerate(errors.items()):
        texts = (
            [*user_frames_first(error.stack[:MAX_TRACEBACK_LINES]), *error.text.split("\n")]
            if number == 0
            else [error.first_line]
        )
        shown += [f"{process or 'the driver'}:", *(f"  {text}" for text in texts)]
        if number + 1 == MAX_ERRORS < len(errors):
            return [*shown, f"and {len(errors) - MAX_ERRORS} more processes"]
    return shown


def user_frames_first(stack: Iterable[str]) -> list[str]:
    user_lines, other_lines, is_user = list[str](), list[str](), False
    for line in stack:
        frame = FRAME.match(line)
        is_user = USER_CODE in frame[1] if frame else is_user
        (user_lines if is_user else other_lines).append(line)
    return user_lines + other_lines
