# SPDX-License-Identifier: GPL-3.0-or-later
"""Some lines of a job's log: of a rank, an attempt, or the first errors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..archive.archive import Archive
from ..archive.status import JobState
from ..io.output import ANSI
from ..queue import attempts
from .info import JobInfo
from .logs import first_errors, searched
from .services import OperationError

# (rank3 pid=7) of torchrun's processes, [rank3]: of torch, [Rank 3] of verl.
RANK = re.compile(r"[(\[][Rr]ank ?([0-9]+)\b")
# The end of the first line of each attempt but the first. A progress bar of the one before may have no end.
ATTEMPT = re.compile(rf"{attempts.MARKER}([0-9]{{1,6}})$")
# States in which the current attempt has written nothing; the last one is Ray's.
NOT_BEGUN = (JobState.QUEUED, JobState.SUBMITTED, "PENDING")


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

    def of(self, lines: Sequence[str], first: int, most: int) -> list[str]:
        """The last of these lines. first: the attempt that wrote the first of them."""
        chosen = []
        for line in lines:
            match = ATTEMPT.search(line)
            first = int(match[1]) if match else first
            if self.attempt in (0, first) and (not self.rank or self.rank in RANK.findall(ANSI.sub("", line))):
                chosen.append(line)
        if self.first_errors:
            return first_errors(chosen)
        return chosen[-most:] if most else chosen


def selected(archive: Archive, job: JobInfo, selection: Selection, tail: int, position: str | None) -> list[str]:
    """The last `tail` lines up to job.log_position, or of job.log all, which are those after a position.

    Raises OperationError and UnreadableError.
    """
    if position is not None:
        if selection.attempt:
            raise OperationError("an attempt chooses lines of the whole log: leave the position out")
        return selection.of(job.log, 1, 0)
    lines, is_whole = searched(archive, job.log_position)
    # Without a mark of the next attempt, a part of the log is of the latest one that has begun.
    latest = job.attempt - (job.state in NOT_BEGUN)
    first = next((int(match[1]) - 1 for line in lines if (match := ATTEMPT.search(line))), latest)
    return selection.of(lines, 1 if is_whole else first, tail)
