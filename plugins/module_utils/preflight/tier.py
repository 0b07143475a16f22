# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How thorough preflight is."""

from __future__ import annotations

from enum import Enum


class Tier(str, Enum):  # noqa: UP042 - StrEnum came with Python 3.11
    """How much time checks may take: seconds, a minute, many minutes. A tier includes the ones before it."""

    FAST = "fast"
    STANDARD = "standard"
    DEEP = "deep"

    def includes(self, other: Tier) -> bool:
        order = list(Tier)
        return order.index(other) <= order.index(self)
