# SPDX-License-Identifier: GPL-3.0-or-later
"""The steward has the pages of jobs written by a process of its own, which needs more time and memory than it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from ..archive.program import Program, spawn, wait

# How often the pages of all jobs are written, and for which part of the time at most: those of long jobs take longer.
PAGES_SECONDS, SHARE = 60.0, 0.1
# How soon a job that has ended has its last page.
LOOK_SECONDS = 2.0
# After that time, a shared root hangs.
MOST_SECONDS = 1800.0


def keep_pages(jobs: Callable[[], Iterable[str]], leaving: threading.Event) -> None:
    """Have the pages of jobs written, until the event is set. jobs: the ids of those that are looked after now."""
    earlier: set[str] = set()
    due = time.monotonic() + PAGES_SECONDS
    while not leaving.wait(LOOK_SECONDS):
        current, begin = set(jobs()), time.monotonic()
        wanted = current | earlier if begin >= due else earlier - current
        earlier = current
        if wanted:
            write_pages(sorted(wanted))
        if begin >= due:
            due = begin + max(PAGES_SECONDS, (time.monotonic() - begin) / SHARE)


def write_pages(jobs: Sequence[str]) -> None:
    try:
        command = [sys.executable, Program.of_this_process().path, "pages", *jobs]
        wait(spawn(command, sys.stderr.fileno()), MOST_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"The pages of jobs were not written: {error}", file=sys.stderr, flush=True)
