# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far the clocks of machines differ. Heartbeats, and the order of events of a job, come from several of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..argus.common.findings import ERROR, WARNING, Finding
from .checks import Problem

WARNING_SECONDS = 5.0
ERROR_SECONDS = 30.0


def bounds(probed: Mapping[str, Any]) -> tuple[float, float] | None:
    """At least and at most by how many seconds a clock is ahead of the controller's, from the result of machine_info.

    A machine was asked at `sent` and had answered at `received`: its time was read at some moment in between. So
    the time that the question and the answer took widens the bounds, and is not taken for a difference of clocks.
    """
    try:
        time, clock = float(probed["time"]), probed["clock"]
        return time - float(clock["received"]), time - float(clock["sent"])
    except (KeyError, TypeError, ValueError):
        return None


def clock_findings(probed: Mapping[str, Mapping[str, Any]], head: str) -> Iterator[Finding]:
    """Machines whose clocks certainly differ from that of the head's machine."""
    known = {machine: ahead for machine, result in probed.items() if (ahead := bounds(result))}
    for machine, (least, most) in known.items() if head in known else ():
        # The clock of the controller drops out.
        certain = max(least - known[head][1], 0.0) + min(most - known[head][0], 0.0)
        if machine != head and abs(certain) > WARNING_SECONDS:
            side = "ahead of" if certain > 0 else "behind"
            yield Problem(
                "machine.clock",
                f"its clock is at least {abs(certain):.0f} s {side} that of {head}",
                severity=ERROR if abs(certain) > ERROR_SECONDS else WARNING,
            ).finding(machine)
