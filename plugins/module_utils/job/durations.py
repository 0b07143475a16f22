# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

import re

DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
DURATIONS = ("deadline", "wait_for_resources", "stall_timeout")


def seconds(duration: str | None) -> float | None:
    """The seconds of ``90``, ``30m``, ``1h30m`` or ``2d``; None for nothing and for 0.

    Raises ValueError when it is none of these.
    """
    if duration is None:
        return None
    match = DURATION.fullmatch(duration)
    if not duration or not match:
        raise ValueError(f"{duration!r} is not a duration")
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    return (days * 86_400 + hours * 3600 + minutes * 60 + rest) or None
