# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Durations as users write them in a JobSpec."""

from __future__ import annotations

import re

NUMBER = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)"
DURATION = re.compile(rf"(?:{NUMBER}d)?(?:{NUMBER}h)?(?:{NUMBER}m)?(?:{NUMBER}s?)?")
# Beyond it are slips, and numbers that clocks cannot add.
LONGEST_DAYS = 3650


def seconds(duration: str | None) -> float | None:
    """The seconds of ``90``, ``30m``, ``1h30m`` or ``2d``; None for None and for 0.

    Raises ValueError if the text is not a duration.
    """
    if duration is None:
        return None
    match = DURATION.fullmatch(duration)
    if not duration or not match:
        raise ValueError(f"{duration!r} is not a duration")
    days, hours, minutes, rest = (float(part or 0) for part in match.groups())
    total = days * 86_400 + hours * 3600 + minutes * 60 + rest
    if total > LONGEST_DAYS * 86_400:
        raise ValueError(f"{duration!r} is longer than {LONGEST_DAYS} days")
    return total or None
