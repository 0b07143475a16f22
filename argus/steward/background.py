# SPDX-License-Identifier: Apache-2.0
"""What the steward does in threads of its own, beside those of jobs: keeps their pages up to date, and makes Ray watch
the jobs of an earlier start of the head.
"""

from __future__ import annotations

import http
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from ..archive.program import Program, spawn, wait
from ..common.identity import AGENT_API
from ..ray.api import RayApiError, local_head

# The interval between writing the pages of all jobs, and the maximum share of the time that writing may take.
PAGES_INTERVAL_SECONDS, MAX_PAGES_SHARE = 60.0, 0.1
# The interval of looking for jobs that have ended, whose last page is written at once.
LAST_PAGES_INTERVAL_SECONDS = 2.0
# The limit for writing all pages: after it, the shared root counts as hanging.
PAGES_TIMEOUT_SECONDS = 1800.0
# The interval of calling Ray's job manager until it answers.
MANAGER_CALL_INTERVAL_SECONDS = 2.0


def update_pages(job_ids: Callable[[], Iterable[str]], leaving: threading.Event) -> None:
    """Have the pages of jobs written until the event is set. job_ids: returns those that are looked after now."""
    earlier: set[str] = set()
    due = time.monotonic() + PAGES_INTERVAL_SECONDS
    while not leaving.wait(LAST_PAGES_INTERVAL_SECONDS):
        current, begin = set(job_ids()), time.monotonic()
        outdated = current | earlier if begin >= due else earlier - current
        earlier = current
        if outdated:
            write_pages(sorted(outdated))
        if begin >= due:
            due = begin + max(PAGES_INTERVAL_SECONDS, (time.monotonic() - begin) / MAX_PAGES_SHARE)


def write_pages(job_ids: Sequence[str]) -> None:
    """Write pages in a process of its own, which may take more time and memory than the steward."""
    try:
        command = [sys.executable, Program.of_this_process().path, "pages", *job_ids]
        wait(spawn(command, sys.stderr.fileno()), PAGES_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"The pages of jobs were not written: {error}", file=sys.stderr, flush=True)


def recover_jobs(leaving: threading.Event) -> None:
    """Make Ray watch the jobs of an earlier start of the head.

    Ray's job manager does so, which Ray creates at the first request. Without it, Ray lists a job whose driver died
    while the head was gone as RUNNING for ever.
    """
    address = os.environ.get(AGENT_API, "")
    while address and not leaving.is_set():
        try:
            local_head(address).get("/api/job_agent/jobs/none/logs")
        except RayApiError as error:
            # The manager answers: it has no job "none".
            if error.status == http.HTTPStatus.NOT_FOUND:
                return
        leaving.wait(MANAGER_CALL_INTERVAL_SECONDS)
