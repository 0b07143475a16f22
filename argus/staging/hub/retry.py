# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repeats requests to the hub after transient errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import StagingError
from .errors import explain, is_file_system_error, is_transient
from .location import Location

# The pauses between tries, in seconds. A broken line may recover within a minute.
QUESTION_WAITS = (1.0, 3.0)
DOWNLOAD_WAITS = (1.0, 5.0, 15.0, 40.0)
Result = TypeVar("Result")


def with_retries(
    location: Location,
    library: Any,
    call: Callable[[], Result],
    waits: Sequence[float],
    progress: Callable[[], int] = int,
    sleep: Callable[[float], object] = time.sleep,
) -> Result:
    """The result of a call, which is repeated after transient errors.

    progress: a number that grows while the call advances; each time it has grown, all tries are available again.
    """
    left, before = iter(waits), progress()
    while True:
        try:
            return call()
        except StagingError:
            raise
        except Exception as error:
            # Errors of HTTP, of sockets, of the library, of Xet.
            if is_file_system_error(error):
                raise
            now = progress()
            if now > before:
                left, before = iter(waits), now
            wait = next(left, None) if is_transient(error) else None
            if wait is None:
                raise explain(error, location, library) from error
            sleep(wait)
