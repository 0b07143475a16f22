# SPDX-License-Identifier: GPL-3.0-or-later
"""The check machine.clock, as heartbeats and events of a job have times of several machines. Runs on the controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..argus.common.findings import ERROR, WARNING, Finding
from .checks import Problem

WARNING_SECONDS = 5.0
ERROR_SECONDS = 30.0


def clock_bounds(probed: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return by how many seconds a machine's clock is ahead of the controller's, at least and at most.

    probed: the result of machine_info. Its `time` was read at some moment between `sent` and `received`, times of
    the controller. So a slow connection widens the bounds, and is not taken for a difference of clocks. None without
    these times.
    """
    try:
        time, clock = float(probed["time"]), probed["clock"]
        return time - float(clock["received"]), time - float(clock["sent"])
    except (KeyError, TypeError, ValueError):
        return None


def clock_findings(probed: Mapping[str, Mapping[str, Any]], head: str) -> Iterator[Finding]:
    """Yield a finding for each machine whose clock certainly differs from that of the head's machine.

    probed: the results of machine_info by machine. head: the head's machine; without its result, nothing is compared.
    """
    offsets = {machine: ahead for machine, result in probed.items() if (ahead := clock_bounds(result))}
    for machine, (least, most) in offsets.items() if head in offsets else ():
        # In the difference, the clock of the controller cancels out.
        certain = max(least - offsets[head][1], 0.0) + min(most - offsets[head][0], 0.0)
        if machine != head and abs(certain) > WARNING_SECONDS:
            side = "ahead of" if certain > 0 else "behind"
            yield Problem(
                "machine.clock",
                f"its clock is at least {abs(certain):.0f} s {side} that of {head}",
                severity=ERROR if abs(certain) > ERROR_SECONDS else WARNING,
            ).finding(machine)
