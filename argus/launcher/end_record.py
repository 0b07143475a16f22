# SPDX-License-Identifier: Apache-2.0
"""Helps to record the end of an attempt while the shared root is full or read-only.

The launcher retries its writes for some minutes. If they still fail, it prints the failure as a line in Ray's own log,
where the steward finds it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from ..archive.failures import Failure
from ..io.reading import UnreadableError, parse_json
from ..io.schema import MalformedError, json_text, parse

# How long a launcher whose trainer has ended tries to record the end.
RECORD_TIMEOUT_SECONDS = 300.0
# The same after a stop request: Ray soon kills the launcher.
STOP_RECORD_TIMEOUT_SECONDS = 5.0
RETRY_INTERVAL_SECONDS = 0.5
# Begins the line in Ray's own log with the failure that the archive lacks.
END_PREFIX = "ARGUS_VERL_END="
# How many last lines of a job's message from Ray are searched. Ray shows the last 10 lines of the log; splitlines may
# make more of them, as it also splits at carriage returns.
MAX_MESSAGE_LINES = 20
Result = TypeVar("Result")


def retry_write(write: Callable[[], Result], is_stopping: Callable[[], bool], clock: ModuleType = time) -> Result:
    """Call a function that writes to the archive until it succeeds; raises its last error after RECORD_TIMEOUT_SECONDS.

    is_stopping: whether this process was asked to end.
    """
    until = clock.monotonic() + RECORD_TIMEOUT_SECONDS
    while True:
        try:
            return write()
        except (OSError, UnreadableError) as error:
            # A job may have put something else in place of a file, which will not change.
            if isinstance(error, UnreadableError) and not error.is_transient:
                raise
            if is_stopping():
                until = min(until, clock.monotonic() + STOP_RECORD_TIMEOUT_SECONDS)
            if clock.monotonic() >= until:
                raise
        # sleep() resumes after a signal (PEP 475).
        clock.sleep(RETRY_INTERVAL_SECONDS)


def format_end_line(failure: Failure | None) -> str:
    """The line about an attempt's end; failure: None if it did not fail."""
    return END_PREFIX + json_text(failure)


def parse_end_line(message: str) -> Failure | None:
    """The failure in such a line of a job's message from Ray; None without one. A job can print such a line as well."""
    for line in reversed(message.splitlines()[-MAX_MESSAGE_LINES:]):
        if line.startswith(END_PREFIX):
            try:
                return parse(Failure, parse_json(line.removeprefix(END_PREFIX), "the end"))
            except (MalformedError, UnreadableError):
                return None
    return None
