# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks: how far those of machines differ. Heartbeats, and the order of events of a job, come from several of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..argus.common.findings import ERROR, WARNING, Finding

# Times in status and evidence become confusing.
WARNING_SECONDS = 5.0
# Half of what a process may be silent before it counts as gone (launcher/archive.py: SILENT_SECONDS).
ERROR_SECONDS = 30.0


@dataclass(frozen=True)
class Skew:
    """The bounds between which a clock is ahead of another one, in seconds; it is behind where they are negative.

    A machine was asked at `sent` and had answered at `received`: its time was read at some moment in between. So
    the time that the question and the answer took widens the bounds, and is not taken for a difference of clocks.
    """

    least: float
    most: float

    @classmethod
    def of(cls, probed: Mapping[str, Any]) -> Skew | None:
        """Against the controller, from the result of machine_info; None if it has no times."""
        try:
            time, clock = float(probed["time"]), probed["clock"]
            return cls(time - float(clock["received"]), time - float(clock["sent"]))
        except (KeyError, TypeError, ValueError):
            return None

    def against(self, other: Skew) -> Skew:
        """The same against a third clock: that of the controller drops out."""
        return Skew(self.least - other.most, self.most - other.least)

    @property
    def certain(self) -> float:
        """By how much the clock is certainly ahead, or behind if this is negative; 0 if both could agree."""
        return max(self.least, 0.0) + min(self.most, 0.0)


def clock_findings(skews: Mapping[str, Skew], head: str) -> list[Finding]:
    """Machines whose clocks certainly differ from that of the head's machine."""
    reference = skews.get(head)
    if reference is None:
        return []
    found = []
    for machine, skew in skews.items():
        certain = skew.against(reference).certain
        if machine != head and abs(certain) > WARNING_SECONDS:
            side = "ahead of" if certain > 0 else "behind"
            found.append(
                Finding(
                    machine,
                    f"its clock is at least {abs(certain):.0f} s {side} that of {head}",
                    "synchronize the clocks: chronyc tracking, timedatectl",
                    ERROR if abs(certain) > ERROR_SECONDS else WARNING,
                )
            )
    return found
