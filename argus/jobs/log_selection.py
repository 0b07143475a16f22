# SPDX-License-Identifier: Apache-2.0
"""Chooses lines of a job's log: those of a rank or of an attempt, or the first error of each process."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..archive.archive import Archive
from ..archive.status import JobState
from ..io.output import ANSI, FRAME, REMOTE_ERROR, USER_CODE, PrintedError, printed_errors
from ..io.reading import UnreadableError
from ..queue import attempts
from .info import JobInfo
from .logs import MAX_TAIL_BYTES
from .services import OperationError

# The maximum number of processes whose first error is shown.
MAX_ERRORS = 20
# The maximum number of lines of the traceback that is shown.
MAX_TRACEBACK_LINES = 200
# torchrun's processes write (rank3 pid=7), torch [rank3]:, and verl [Rank 3].
RANK_MARK = re.compile(r"[(\[][Rr]ank ?([0-9]+)\b")
# The first line of each attempt but the first ends with it. Before it, that line may have a progress bar of the attempt
# before, which printed no line end.
ATTEMPT_MARK = re.compile(rf"{attempts.ATTEMPT_MARKER}([0-9]{{1,6}})$")
# States in which the current attempt has written nothing; PENDING is a state of Ray.
UNSTARTED_STATES = (JobState.QUEUED, JobState.SUBMITTED, "PENDING")


@dataclass(frozen=True)
class Selection:
    """The criteria for lines of a log; a line must meet all of them."""

    # A rank of torch.distributed, which lines of torchrun's processes name, and some messages of torch and verl. Empty
    # for lines of all processes.
    rank: str = ""
    # The number of an attempt; 0 for all attempts.
    attempt: int = 0
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


def select_lines(archive: Archive, job: JobInfo, selection: Selection, tail: int, position: str | None) -> list[str]:
    """The chosen lines of `job.log`: the last `tail` of the log's end, or with a position all that follow it.

    position: the one after which job.log begins; None if job.log is the end of the log.

    Raises OperationError for an attempt after a position, which may be in the middle of any attempt.
    """
    if position is not None:
        if selection.attempt:
            raise OperationError("an attempt chooses lines of the whole log: leave the position out")
        return selection.choose(job.log, 1, 0)
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
    """The lines of a traceback, with the frames of the user's code before all others."""
    user_lines, other_lines, is_user = list[str](), list[str](), False
    for line in stack:
        frame = FRAME.match(line)
        is_user = USER_CODE in frame[1] if frame else is_user
        (user_lines if is_user else other_lines).append(line)
    return user_lines + other_lines
