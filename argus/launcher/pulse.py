# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a job has a steward, for a process on another machine: the clocks of the two may differ."""

from __future__ import annotations

import time
from collections.abc import Callable

from .archive import Archive

# A steward writes every 5 s; the shared root may show it later.
PULSE_SECONDS, POLL_SECONDS = 12.0, 0.5


def has_steward(archive: Archive, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether the heartbeat of the job's steward is recent, or changes within a while, whatever time it has."""
    first = archive.steward_heartbeat()
    if first is None or first.is_recent:
        return first is not None
    for _poll in range(round(PULSE_SECONDS / POLL_SECONDS)):
        sleep(POLL_SECONDS)
        now = archive.steward_heartbeat()
        if now and now.time != first.time:
            return True
    return False
