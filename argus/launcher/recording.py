# SPDX-License-Identifier: GPL-3.0-or-later
"""Record the end of an attempt although the archive cannot be written for a while: a full or read-only shared root."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

from ..archive.failures import Failure
from ..io.reading import UnreadableError, parse_json
from ..io.schema import MalformedError, json_text, parse

# For how long the end of an attempt is tried to be recorded; its trainer is gone meanwhile.
RECORD_SECONDS = 300.0
# The same when a stop was requested, before Ray kills the launcher.
STOPPED_SECONDS = 5.0
PAUSE_SECONDS = 0.5
# Begins the line in Ray's own log with the end of an attempt that the archive does not have.
NOT_RECORDED = "ARGUS_VERL_END="
# Ray shows the last 10 lines of a log.
MESSAGE_LINES = 20
Value = TypeVar("Value")


def repeated(work: Callable[[], Value], stopped: Callable[[], bool], clock: ModuleType = time) -> Value:
    """The result of work that writes to the archive, tried again for RECORD_SECONDS; raises its last error.

    stopped: whether this process is asked to end.
    """
    until = clock.monotonic() + RECORD_SECONDS
    while True:
        try:
            return work()
        except (OSError, UnreadableError) as error:
            # What a job has put there instead of a file stays.
            if isinstance(error, UnreadableError) and not error.is_transient:
                raise
            if stopped():
                until = min(until, clock.monotonic() + STOPPED_SECONDS)
            if clock.monotonic() >= until:
                raise
        # A signal does not end it.
        clock.sleep(PAUSE_SECONDS)


def tell(failure: Failure | None) -> str:
    return NOT_RECORDED + json_text(failure)


def told(message: str) -> Failure | None:
    """The failure that a launcher told in the end of Ray's log, if it did; a job can write such a line as well."""
    for line in reversed(message.splitlines()[-MESSAGE_LINES:]):
        if line.startswith(NOT_RECORDED):
            try:
                return parse(Failure, parse_json(line.removeprefix(NOT_RECORDED), "the end"))
            except (MalformedError, UnreadableError):
                return None
    return None
