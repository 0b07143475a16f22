# SPDX-License-Identifier: Apache-2.0
"""How Ray's head finds out that a node has ended: it calls each raylet, and after several calls in a row without an
answer the node is dead.

A raylet that was killed refuses the call at once, so a short period finds it within seconds. One that is only busy,
or stopped while its machine writes a checkpoint, answers late, so the long timeout spares it: measured with Ray 2.60,
a raylet that was stopped for 65 s lived on, and so did one whose network was cut for 40 s.
"""

from __future__ import annotations

HEALTH_CHECK_INTERVAL_SECONDS = 1
HEALTH_CHECK_TIMEOUT_SECONDS = 15
MAX_FAILED_HEALTH_CHECKS = 5

# The time until the head notices that the processes of a node were killed, on a busy machine. A lost machine or network
# takes MAX_FAILED_HEALTH_CHECKS * (HEALTH_CHECK_INTERVAL_SECONDS + HEALTH_CHECK_TIMEOUT_SECONDS).
DEATH_NOTICE_SECONDS = 20.0


def health_environment() -> dict[str, str]:
    """The variables that give Ray's head these settings."""
    return {
        "RAY_health_check_period_ms": str(1000 * HEALTH_CHECK_INTERVAL_SECONDS),
        "RAY_health_check_timeout_ms": str(1000 * HEALTH_CHECK_TIMEOUT_SECONDS),
        "RAY_health_check_failure_threshold": str(MAX_FAILED_HEALTH_CHECKS),
    }
